// NCCL 2.24 and 2.25: size_t sizes, virtual devices.
#include "netplugin/net.h"

namespace weft::net {
namespace {

int InitV9(nccl::Logger logger) { return Init(9, logger); }

int PropertiesOfV9(int dev, nccl::PropertiesV9* properties) { return FillPropertiesV9(dev, properties); }

int ListenV9(int dev, void* handle, void** comm) { return ListenWith({}, dev, handle, comm); }

int ConnectV9(int dev, void* handle, void** comm, nccl::DeviceHandle**) { return ConnectWith({}, dev, handle, comm); }

int SendV9(void* comm, void* data, size_t size, int tag, void* mhandle, void** request) {
  return SendBytes(comm, data, size, tag, mhandle, request);
}

int ReceiveV9(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
              void** request) {
  if (!sizes) return nccl::kInvalidArgument;
  return ReceiveBytes(comm, n, data, sizes[0], tags, mhandles, request);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV9 ncclNetPlugin_v9;
constinit const weft::nccl::NetV9 ncclNetPlugin_v9 = [] {
  using namespace weft::net;
  return weft::nccl::NetV9{
      .name = kName,
      .init = &Guarded<&InitV9>::Call,
      .devices = &Guarded<&Devices>::Call,
      .get_properties = &Guarded<&PropertiesOfV9>::Call,
      .listen = &Guarded<&ListenV9>::Call,
      .connect = &Guarded<&ConnectV9>::Call,
      .accept = &Guarded<&Accept>::Call,
      .reg_mr = &Guarded<&RegMr>::Call,
      .reg_mr_dma_buf = &Guarded<&RegMrDmaBuf>::Call,
      .dereg_mr = &Guarded<&DeregMr>::Call,
      .isend = &Guarded<&SendV9>::Call,
      .irecv = &Guarded<&ReceiveV9>::Call,
      .iflush = &Guarded<&Flush>::Call,
      .test = &Guarded<&Test>::Call,
      .close_send = &Guarded<&CloseSend>::Call,
      .close_recv = &Guarded<&CloseRecv>::Call,
      .close_listen = &Guarded<&CloseListen>::Call,
      .get_device_mr = nullptr,  // no device offload
      .irecv_consumed = nullptr,
      .make_vdevice = nullptr,  // NICs are not merged: a flow has its own lanes
  };
}();
}
