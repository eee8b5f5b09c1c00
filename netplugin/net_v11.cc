// NCCL 2.28 and later: contexts, finalize.
#include "netplugin/net.h"

namespace weft::net {
namespace {

int InitV11(void** context, uint64_t comm_id, nccl::CommConfig* config, nccl::Logger logger, nccl::ProfilerCallback) {
  return InitContext(context, comm_id, config, logger);
}

int PropertiesOfV11(int dev, nccl::PropertiesV11* properties) {
  const int result = FillPropertiesV9(dev, properties);
  if (result == nccl::kSuccess) properties->max_multi_request_size = 1;
  return result;
}

int ListenV11(void* context, int dev, void* handle, void** comm) {
  if (!context) return nccl::kInvalidArgument;
  return ListenWith(*static_cast<Context*>(context), dev, handle, comm);
}

int ConnectV11(void* context, int dev, void* handle, void** comm, nccl::DeviceHandle**) {
  if (!context) return nccl::kInvalidArgument;
  return ConnectWith(*static_cast<Context*>(context), dev, handle, comm);
}

int SendV11(void* comm, void* data, size_t size, int tag, void* mhandle, void*, void** request) {
  return SendBytes(comm, data, size, tag, mhandle, request);
}

int ReceiveV11(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void**,
               void** request) {
  if (!sizes) return nccl::kInvalidArgument;
  return ReceiveBytes(comm, n, data, sizes[0], tags, mhandles, request);
}

}  // namespace
}  // namespace weft::net

extern "C" {
[[gnu::visibility("default")]] extern const weft::nccl::NetV11 ncclNetPlugin_v11;
constinit const weft::nccl::NetV11 ncclNetPlugin_v11 = [] {
  using namespace weft::net;
  return weft::nccl::NetV11{
      .name = kName,
      .init = &Guarded<&InitV11>::Call,
      .devices = &Guarded<&Devices>::Call,
      .get_properties = &Guarded<&PropertiesOfV11>::Call,
      .listen = &Guarded<&ListenV11>::Call,
      .connect = &Guarded<&ConnectV11>::Call,
      .accept = &Guarded<&Accept>::Call,
      .reg_mr = &Guarded<&RegMr>::Call,
      .reg_mr_dma_buf = &Guarded<&RegMrDmaBuf>::Call,
      .dereg_mr = &Guarded<&DeregMr>::Call,
      .isend = &Guarded<&SendV11>::Call,
      .irecv = &Guarded<&ReceiveV11>::Call,
      .iflush = &Guarded<&Flush>::Call,
      .test = &Guarded<&Test>::Call,
      .close_send = &Guarded<&CloseSend>::Call,
      .close_recv = &Guarded<&CloseRecv>::Call,
      .close_listen = &Guarded<&CloseListen>::Call,
      .get_device_mr = nullptr,  // no device offload
      .irecv_consumed = nullptr,
      .make_vdevice = nullptr,  // NICs are not merged: a flow has its own lanes
      .finalize = &Guarded<&Finalize>::Call,
      .set_net_attr = nullptr,
  };
}();
}
