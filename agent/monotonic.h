// The host's CLOCK_MONOTONIC, which segments, leases and samples are written in.
#pragma once

#include <time.h>

#include <cstdint>

namespace weft::agent {

/// Now, in nanoseconds. Threads: any.
inline uint64_t MonotonicNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace weft::agent
