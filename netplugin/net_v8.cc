// NCCL 2.20 to 2.23: int sizes.
#include "netplugin/net.h"

namespace weft::net {
namespace {

int InitV8(nccl::Logger logger) { return Init(8, logger); }

int PropertiesOfV8(int dev, nccl::PropertiesV8* properties) { return FillProperties(dev, properties); }

int ListenV8(int dev, void* handle, void** comm) { return ListenWith({}, dev, handle, comm); }

int ConnectV8(int dev, void* handle, void** comm, nccl::DeviceHandle**) { return ConnectWith({}, dev, handle, comm); }

int SendV8(void* comm, void* data, int size, int tag, void* mhandle, void** request) {
  if (size < 0) return nccl::kInvalidArgument;
  return SendBytes(comm, data, static_cast<uint64_t>(size), tag, mhandle, request);
}

int ReceiveV8(void* comm, int n, void** data, int* sizes, int* tags, void** mhandles,
              void** request) {
  if (!sizes || sizes[0] < 0) return nccl::kInvalidArgument;
  return ReceiveBytes(comm, n, data, static_cast<uint64_t>(sizes[0]), tags, mhandles, request);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV8 ncclNetPlugin_v8;
constinit const weft::nccl::NetV8 ncclNetPlugin_v8 = [] {
  using namespace weft::net;
  return weft::nccl::NetV8{
      .name = kName,
      .init = &Guarded<&InitV8>::Call,
      .devices = &Guarded<&Devices>::Call,
      .get_properties = &Guarded<&PropertiesOfV8>::Call,
      .listen = &Guarded<&ListenV8>::Call,
      .connect = &Guarded<&ConnectV8>::Call,
      .accept = &Guarded<&Accept>::Call,
      .reg_mr = &Guarded<&RegMr>::Call,
      .reg_mr_dma_buf = &Guarded<&RegMrDmaBuf>::Call,
      .dereg_mr = &Guarded<&DeregMr>::Call,
      .isend = &Guarded<&SendV8>::Call,
      .irecv = &Guarded<&ReceiveV8>::Call,
      .iflush = &Guarded<&Flush>::Call,
      .test = &Guarded<&Test>::Call,
      .close_send = &Guarded<&CloseSend>::Call,
      .close_recv = &Guarded<&CloseRecv>::Call,
      .close_listen = &Guarded<&CloseListen>::Call,
      .get_device_mr = nullptr,  // no device offload
      .irecv_consumed = nullptr,
  };
}();
}
