// The net interface's versions over one implementation: what each version's calls look like (V7 to V12), each as the
// difference to a neighbour, and the table that NCCL wants, filled from them.
#pragma once

#include <type_traits>

#include "netplugin/comm.h"
#include "netplugin/net.h"

namespace weft::net::shims {

/// A group of buffers, whose sizes may be of either type.
template <typename Size>
int Group(void* comm, int n, void** data, const Size* sizes, const int* tags, void** mhandles, void** request) {
  if (!sizes || n > kMaxRecvs) return nccl::kInvalidArgument;
  uint64_t wide[kMaxRecvs];
  for (int i = 0; i < n; ++i) {
    if constexpr (std::is_signed_v<Size>) {
      if (sizes[i] < 0) return nccl::kInvalidArgument;
    }
    wide[i] = static_cast<uint64_t>(sizes[i]);
  }
  return ReceiveGroup(comm, n, data, wide, tags, mhandles, request);
}

/// What NCCL posts for a step of protocol LL128 unless NCCL_LL128_BUFFSIZE is set. Versions before 9 tell it by nothing else.
inline constexpr uint64_t kLl128StepBytes = 614'400;

/// NCCL 2.20 to 2.23: int sizes.
struct V8 {
  static int Init(nccl::Logger logger) { return net::Init(8, logger); }
  static int PropertiesOf(int dev, nccl::PropertiesV8* properties) { return FillProperties(dev, properties); }
  static int Listen(int dev, void* handle, void** comm) { return ListenWith({}, dev, handle, comm); }
  static int Connect(int dev, void* handle, void** comm, nccl::DeviceHandle**) {
    return ConnectWith({}, dev, handle, comm);
  }
  static int RegMr(void* comm, void* data, size_t size, int type, void** mhandle) {
    return net::RegMr(comm, data, size, type, mhandle);
  }
  static int Send(void* comm, void* data, int size, int tag, void* mhandle, void** request) {
    if (size < 0) return nccl::kInvalidArgument;
    return SendBytes(comm, data, static_cast<uint64_t>(size), tag, mhandle, request);
  }
  static int Receive(void* comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
    if (n > 1) [[unlikely]] return Group(comm, n, data, sizes, tags, mhandles, request);
    if (!sizes || sizes[0] < 0) return nccl::kInvalidArgument;
    const auto size = static_cast<uint64_t>(sizes[0]);
    if (size == kLl128StepBytes) [[unlikely]] return ReceivePolled(comm, n, data, size, tags, mhandles, request);
    return ReceiveBytes(comm, n, data, size, tags, mhandles, request);
  }
};

/// NCCL 2.19: int sizes of memory to register too; the properties do not say whether a registration is global.
struct V7 : V8 {
  static int Init(nccl::Logger logger) { return net::Init(7, logger); }
  static int PropertiesOf(int dev, nccl::PropertiesV7* properties) { return FillProperties(dev, properties); }
  static int RegMr(void* comm, void* data, int size, int type, void** mhandle) {
    if (size < 0) return nccl::kInvalidArgument;
    return net::RegMr(comm, data, static_cast<size_t>(size), type, mhandle);
  }
};

/// NCCL 2.24 and 2.25: size_t sizes, virtual devices.
struct V9 : V8 {
  static int Init(nccl::Logger logger) { return net::Init(9, logger); }
  static int PropertiesOf(int dev, nccl::PropertiesV9* properties) { return FillPropertiesV9(dev, properties); }
  static int Send(void* comm, void* data, size_t size, int tag, void* mhandle, void** request) {
    return SendBytes(comm, data, size, tag, mhandle, request);
  }
  static int Receive(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void** request) {
    if (n > 1) [[unlikely]] return Group(comm, n, data, sizes, tags, mhandles, request);
    if (!sizes) return nccl::kInvalidArgument;
    // The hint can be switched off (NCCL_NET_OPTIONAL_RECV_COMPLETION=0); the protocol is the same then.
    const bool polled = (request && reinterpret_cast<uintptr_t>(*request) == nccl::kHintOptionalRecvCompletion) ||
                        sizes[0] == kLl128StepBytes;
    if (polled) [[unlikely]] return ReceivePolled(comm, n, data, sizes[0], tags, mhandles, request);
    return ReceiveBytes(comm, n, data, sizes[0], tags, mhandles, request);
  }
};

/// NCCL 2.26 and 2.27: traffic class, profiler.
struct V10 : V9 {
  static int Init(nccl::Logger logger, nccl::ProfilerCallback) { return net::Init(10, logger); }
  static int Connect(int dev, nccl::CommConfig* config, void* handle, void** comm, nccl::DeviceHandle**) {
    Context context;
    if (config) context.traffic_class = config->traffic_class;
    return ConnectWith(context, dev, handle, comm);
  }
  static int Send(void* comm, void* data, size_t size, int tag, void* mhandle, void*, void** request) {
    return V9::Send(comm, data, size, tag, mhandle, request);
  }
  static int Receive(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles, void**,
                     void** request) {
    return V9::Receive(comm, n, data, sizes, tags, mhandles, request);
  }
};

/// NCCL 2.28 and later: contexts, finalize. Version 11, or 12 (2.30): eight members of a virtual device, rail and plane.
template <int kVersion, typename Properties>
struct WithContext : V10 {
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
};
using V11 = WithContext<11, nccl::PropertiesV11>;
using V12 = WithContext<12, nccl::PropertiesV12>;

/// The table `Net` of the version whose calls are in `Calls`. What is not named stays nullptr: no device offload, and
/// NICs are not merged, since a flow has its own lanes.
template <typename Net, typename Calls>
constexpr Net Table() {
  Net table{};
  table.name = kName;
  table.init = &Guarded<&Calls::Init, true>::Call;
  table.devices = &Guarded<&Devices, true>::Call;
  table.get_properties = &Guarded<&Calls::PropertiesOf, true>::Call;
  table.listen = &Guarded<&Calls::Listen, true>::Call;
  table.connect = &Guarded<&Calls::Connect, true>::Call;
  table.accept = &Guarded<&Accept, true>::Call;
  table.reg_mr = &Guarded<&Calls::RegMr, true>::Call;
  table.reg_mr_dma_buf = &Guarded<&RegMrDmaBuf, true>::Call;
  table.dereg_mr = &Guarded<&DeregMr, true>::Call;
  table.isend = &Guarded<&Calls::Send, true>::Call;
  table.irecv = &Guarded<&Calls::Receive, true>::Call;
  table.iflush = &Guarded<&Flush, true>::Call;
  table.test = &Guarded<&Test, true>::Call;
  table.close_send = &Guarded<&CloseSend, true>::Call;
  table.close_recv = &Guarded<&CloseRecv, true>::Call;
  table.close_listen = &Guarded<&CloseListen, true>::Call;
  if constexpr (requires { table.finalize; }) table.finalize = &Guarded<&Finalize, true>::Call;
  return table;
}

}  // namespace weft::net::shims
