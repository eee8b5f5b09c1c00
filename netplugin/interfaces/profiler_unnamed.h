// What versions 1 to 3 of the profiler interface share: no identity at init, the communicator's hash and name in the events
// of its operations, how many ranks there are nowhere.
#pragma once

#include "netplugin/interfaces/profiler_shims.h"

namespace weft::net::shims {

template <typename Descriptor>
int StartUnnamedEvent(void* context, void** event, Descriptor* descriptor) {
  if (!descriptor) return nccl::kInvalidArgument;
  const Descriptor& from = *descriptor;
  if (from.type == nccl::kEventColl) {
    NameCommunicator(context, {.comm = from.coll.comm_hash, .rank = from.rank, .name = from.coll.name});
  } else if (from.type == nccl::kEventP2p) {
    NameCommunicator(context, {.comm = from.p2p.comm_hash, .rank = from.rank, .name = from.p2p.name});
  }
  return StartProfilerEvent(context, event, ToEventStart(from));
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
