// A call that the plugin exports beside NCCL's tables, for drivers that would rather sleep than poll: our own runtime takes it
// where a plugin has it (collectives/net_adapter.h).
#pragma once

#include <cstdint>

namespace weft::abi {

inline constexpr char kWaitName[] = "weftNetWait_v1";

/// Sleeps until test() of one of `requests` may get further, or a signal comes, at most `most_ns`. `requests`: of any communicators
/// that the calling thread uses, from isend() or irecv(), not done; so many that 64 descriptors do.
/// Of a message that is under way not every segment ends it, but what is left or 32 KiB.
/// Returns 1: something is there to be moved; 0: the time is over; -1: nothing was slept, as the kernel cannot tell when one of these
/// gets further (a gate, RDMA): ask test() again later. A new lane, a new policy and the watchdog end no sleep: let it be short.
/// One system call. Allocates nothing.
using WaitCall = int(void* const* requests, int count, int64_t most_ns);

}  // namespace weft::abi
