// NCCL 2.20 to 2.23: int sizes.
#include "netplugin/net_shims.h"

namespace weft::net {
namespace {

int InitV8(nccl::Logger logger) { return Init(8, logger); }

int PropertiesOfV8(int dev, nccl::PropertiesV8* properties) { return FillProperties(dev, properties); }

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
      .listen = &Guarded<&shims::Listen>::Call,
      .connect = &Guarded<&shims::Connect>::Call,
      .accept = &Guarded<&Accept>::Call,
      .reg_mr = &Guarded<&RegMr>::Call,
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
