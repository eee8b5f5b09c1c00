// What the versions of the profiler interface share: the event descriptors differ in where things lie. Versions 4 to 6 are told at
// init who they work for; for those before them see profiler_unnamed.h.
#pragma once

#include "netplugin/guarded.h"
#include "netplugin/interfaces/profiler.h"

namespace weft::net::shims {

/// Names since version 2, numbers in version 1.
inline abi::Operation ToOperation(const char* function) { return OperationOf(function); }
inline abi::Operation ToOperation(uint8_t function) {
  return function < static_cast<uint8_t>(abi::Operation::kPointToPoint) ? static_cast<abi::Operation>(function)
                                                                         : abi::Operation::kPointToPoint;
}
inline uint32_t ToAlgorithm(const char* name) { return AlgorithmOf(name); }
inline uint32_t ToAlgorithm(uint8_t number) { return number; }
inline uint32_t ToProtocol(const char* name) { return ProtocolOf(name); }
inline uint32_t ToProtocol(uint8_t number) { return number; }

/// Fields that are read for the event's own type only: the others of the union mean nothing. Events of
/// kernels have no time of the GPU before version 4: they are of no use then.
template <typename Descriptor>
EventStart ToEventStart(const Descriptor& from) {
  EventStart start;
  start.type = from.type;
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
      if constexpr (requires { from.p2p.channels; }) start.channels = from.p2p.channels;
      start.peer = from.p2p.peer;
      break;
    case nccl::kEventProxyOp:
      start.pid = from.proxy_op.pid;
      start.peer = from.proxy_op.peer;
      break;
    case nccl::kEventKernelCh:
      if constexpr (requires { from.kernel.gpu_ns; }) {
        start.gpu_ns = from.kernel.gpu_ns;
      } else {
        start.type = 0;
      }
      break;
    default:
      break;
  }
  return start;
}

template <typename Descriptor>
int StartEvent(void* context, void** event, Descriptor* descriptor) {
  if (!descriptor) return nccl::kInvalidArgument;
  return StartProfilerEvent(context, event, ToEventStart(*descriptor));
}

inline int InitWithId(void** context, uint64_t comm_id, int* mask, const char* name, int nodes, int ranks, int rank,
                      nccl::Logger logger) {
  return OpenProfiler(context, mask, {.comm = comm_id, .rank = rank, .ranks = ranks, .nodes = nodes, .name = name},
                      logger);
}

inline int InitWithHash(void** context, int* mask, const char* name, uint64_t comm_hash, int nodes, int ranks, int rank,
                        nccl::Logger logger) {
  return InitWithId(context, comm_hash, mask, name, nodes, ranks, rank, logger);
}

/// `kInit` is InitWithHash or InitWithId.
template <typename Table, typename Descriptor, auto kInit>
constexpr Table ProfilerTable() {
  return {.name = "Weft",
          .init = &Guarded<kInit>::Call,
          .start_event = &Guarded<&StartEvent<Descriptor>>::Call,
          .stop_event = &Guarded<&StopProfilerEvent>::Call,
          .record_event_state = &Guarded<&RecordProfilerState>::Call,
          .finalize = &Guarded<&CloseProfiler>::Call};
}

}  // namespace weft::net::shims
