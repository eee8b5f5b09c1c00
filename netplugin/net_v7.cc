// NCCL 2.19: int sizes, of memory to register too; the properties do not say whether a registration is global.
#include "netplugin/net_shims.h"

namespace weft::net {
namespace {

int InitV7(nccl::Logger logger) { return Init(7, logger); }

int PropertiesOfV7(int dev, nccl::PropertiesV7* properties) { return FillProperties(dev, properties); }

int RegMrV7(void* comm, void* data, int size, int type, void** mhandle) {
  if (size < 0) return nccl::kInvalidArgument;
  return RegMr(comm, data, static_cast<size_t>(size), type, mhandle);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV7 ncclNetPlugin_v7;
constinit const weft::nccl::NetV7 ncclNetPlugin_v7 = [] {
  using namespace weft::net;
  return weft::nccl::NetV7{
      .name = kName,
      .init = &Guarded<&InitV7>::Call,
      .devices = &Guarded<&Devices>::Call,
      .get_properties = &Guarded<&PropertiesOfV7>::Call,
      .listen = &Guarded<&shims::Listen>::Call,
      .connect = &Guarded<&shims::Connect>::Call,
      .accept = &Guarded<&Accept>::Call,
      .reg_mr = &Guarded<&RegMrV7>::Call,
      .reg_mr_dma_buf = &Guarded<&RegMrDmaBuf>::Call,
      .dereg_mr = &Guarded<&DeregMr>::Call,
      .isend = &Guarded<&shims::Send>::Call,
      .irecv = &Guarded<&shims::Receive>::Call,
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
