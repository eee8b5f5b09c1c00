// What versions 1 to 3 of the profiler interface share: no identity at init, the communicator's hash and name in the events
// of its operations, how many ranks there are nowhere.
#pragma once

#include <type_traits>

#include "netplugin/guarded.h"
#include "netplugin/profiler.h"

namespace weft::net::shims {

/// Names in versions 2 and 3, numbers in version 1.
inline abi::Operation ToOperation(const char* function) { return OperationOf(function); }
inline abi::Operation ToOperation(uint8_t function) {
  return function < static_cast<uint8_t>(abi::Operation::kPointToPoint) ? static_cast<abi::Operation>(function)
                                                                         : abi::Operation::kPointToPoint;
}
inline uint32_t ToAlgorithm(const char* name) { return AlgorithmOf(name); }
inline uint32_t ToAlgorithm(uint8_t number) { return number; }
inline uint32_t ToProtocol(const char* name) { return ProtocolOf(name); }
inline uint32_t ToProtocol(uint8_t number) { return number; }

/// Fields that are read for the event's own type only. Events of kernels have no time of the GPU before version 4: they are
/// of no use here.
template <typename Descriptor>
EventStart ToUnnamedStart(const Descriptor& from) {
  EventStart start;
  start.type = from.type == nccl::kEventKernelCh ? 0 : from.type;
  start.parent = reinterpret_cast<uintptr_t>(from.parent);
  switch (start.type) {
    case nccl::kEventColl:
      start.operation = ToOperation(from.coll.function);
      start.sequence = from.coll.sequence;
      start.bytes = from.coll.count * ElementBytes(from.coll.datatype);
      start.algorithm = ToAlgorithm(from.coll.algorithm);
      start.protocol = ToProtocol(from.coll.protocol);
      start.channels = from.coll.channels;
      break;
    case nccl::kEventP2p:
      start.bytes = from.p2p.count * ElementBytes(from.p2p.datatype);
      start.peer = from.p2p.peer;
      break;
    case nccl::kEventProxyOp:
      start.pid = from.proxy_op.pid;
      start.peer = from.proxy_op.peer;
      break;
    default:
      break;
  }
  return start;
}

template <typename Descriptor>
int StartUnnamedEvent(void* context, void** event, Descriptor* descriptor) {
  if (!descriptor) return nccl::kInvalidArgument;
  const Descriptor& from = *descriptor;
  if (from.type == nccl::kEventColl) {
    NameCommunicator(context, {.comm = from.coll.comm_hash, .rank = from.rank, .name = from.coll.name});
  } else if (from.type == nccl::kEventP2p) {
    NameCommunicator(context, {.comm = from.p2p.comm_hash, .rank = from.rank, .name = from.p2p.name});
  }
  return StartProfilerEvent(context, event, ToUnnamedStart(from));
}

/// The states of steps have the numbers of version 4; what else versions 1 to 3 record is of no use here.
inline int RecordUnnamedState(void* event, int state, nccl::ProfilerStateArgumentsV1*) {
  return RecordProfilerState(event, state, nullptr);
}

template <typename Descriptor>
constexpr nccl::ProfilerPlain<Descriptor> UnnamedProfilerTable() {
  return {.name = "Weft",
          .init = &Guarded<&OpenUnnamedProfiler>::Call,
          .start_event = &Guarded<&StartUnnamedEvent<Descriptor>>::Call,
          .stop_event = &Guarded<&StopProfilerEvent>::Call,
          .record_event_state = &Guarded<&RecordUnnamedState>::Call,
          .finalize = &Guarded<&CloseProfiler>::Call};
}

}  // namespace weft::net::shims
