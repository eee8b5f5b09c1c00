// NCCL 2.26 and 2.27: traffic class, profiler.
#include "netplugin/net.h"

namespace weft::net {
namespace {

int InitV10(nccl::Logger logger, nccl::ProfilerCallback) { return Init(10, logger); }

int PropertiesOfV10(int dev, nccl::PropertiesV10* properties) { return FillPropertiesV9(dev, properties); }

int ListenV10(int dev, void* handle, void** comm) { return ListenWith({}, dev, handle, comm); }

int ConnectV10(int dev, nccl::CommConfig* config, void* handle, void** comm, nccl::DeviceHandle**) {
  Context context;
  if (config) context.traffic_class = config->traffic_class;
  return ConnectWith(context, dev, handle, comm);
}

int SendV10(void* comm, void* data, size_t size, int tag, void* mhandle, void*, void** request) {
  return SendBytes(comm, data, size, tag, mhandle, request);
}

int ReceiveV10(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void**,
               void** request) {
  if (!sizes) return nccl::kInvalidArgument;
  return ReceiveBytes(comm, n, data, sizes[0], tags, mhandles, request);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV10 ncclNetPlugin_v10;
constinit const weft::nccl::NetV10 ncclNetPlugin_v10 = [] {
  using namespace weft::net;
  return weft::nccl::NetV10{
      .name = kName,
      .init = &Guarded<&InitV10>::Call,
      .devices = &Guarded<&Devices>::Call,
      .get_properties = &Guarded<&PropertiesOfV10>::Call,
      .listen = &Guarded<&ListenV10>::Call,
      .connect = &Guarded<&ConnectV10>::Call,
      .accept = &Guarded<&Accept>::Call,
      .reg_mr = &Guarded<&RegMr>::Call,
      .reg_mr_dma_buf = &Guarded<&RegMrDmaBuf>::Call,
      .dereg_mr = &Guarded<&DeregMr>::Call,
      .isend = &Guarded<&SendV10>::Call,
      .irecv = &Guarded<&ReceiveV10>::Call,
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
