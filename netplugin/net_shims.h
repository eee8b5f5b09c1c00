// What two neighbouring versions of the net interface share: int sizes (7 and 8), contexts (11 and 12).
#pragma once

#include "netplugin/net.h"

namespace weft::net::shims {

inline int Send(void* comm, void* data, int size, int tag, void* mhandle, void** request) {
  if (size < 0) return nccl::kInvalidArgument;
  return SendBytes(comm, data, static_cast<uint64_t>(size), tag, mhandle, request);
}

inline int Receive(void* comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
  if (!sizes || sizes[0] < 0) return nccl::kInvalidArgument;
  return ReceiveBytes(comm, n, data, static_cast<uint64_t>(sizes[0]), tags, mhandles, request);
}

inline int Listen(int dev, void* handle, void** comm) { return ListenWith({}, dev, handle, comm); }

inline int Connect(int dev, void* handle, void** comm, nccl::DeviceHandle**) {
  return ConnectWith({}, dev, handle, comm);
}

/// Version 11 or 12, by its properties and virtual devices.
template <int kVersion, typename Properties>
struct WithContext {
  static int Init(void** context, uint64_t comm_id, nccl::CommConfig* config, nccl::Logger logger,
                  nccl::ProfilerCallback) {
    return InitContext(kVersion, context, comm_id, config, logger);
  }
  static int PropertiesOf(int dev, Properties* properties) {
    const int result = FillPropertiesV9(dev, properties);
    if (result != nccl::kSuccess) return result;
    properties->max_multi_request_size = 1;
    if constexpr (requires { properties->rail_id; }) {
      properties->rail_id = nccl::kIdUndefined;
      properties->plane_id = nccl::kIdUndefined;
    }
    return result;
  }
  static int Listen(void* context, int dev, void* handle, void** comm) {
    if (!context) return nccl::kInvalidArgument;
    return ListenWith(*static_cast<Context*>(context), dev, handle, comm);
  }
  static int Connect(void* context, int dev, void* handle, void** comm, nccl::DeviceHandle**) {
    if (!context) return nccl::kInvalidArgument;
    return ConnectWith(*static_cast<Context*>(context), dev, handle, comm);
  }
  static int Send(void* comm, void* data, size_t size, int tag, void* mhandle, void*, void** request) {
    return SendBytes(comm, data, size, tag, mhandle, request);
  }
  static int Receive(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void**,
                     void** request) {
    if (!sizes) return nccl::kInvalidArgument;
    return ReceiveBytes(comm, n, data, sizes[0], tags, mhandles, request);
  }

  template <typename Net>
  static constexpr Net Table() {
    return {
        .name = kName,
        .init = &Guarded<&Init>::Call,
        .devices = &Guarded<&Devices>::Call,
        .get_properties = &Guarded<&PropertiesOf>::Call,
        .listen = &Guarded<&Listen>::Call,
        .connect = &Guarded<&Connect>::Call,
        .accept = &Guarded<&Accept>::Call,
        .reg_mr = &Guarded<&RegMr>::Call,
        .reg_mr_dma_buf = &Guarded<&RegMrDmaBuf>::Call,
        .dereg_mr = &Guarded<&DeregMr>::Call,
        .isend = &Guarded<&Send>::Call,
        .irecv = &Guarded<&Receive>::Call,
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
  }
};

}  // namespace weft::net::shims
