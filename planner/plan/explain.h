// The sentences that go with an answer: why each setting, why the runner-up lost, what does not fit. Internal to planner.
#pragma once

#include <string>
#include <vector>

#include "planner/parallelism/data_parallel.h"
#include "planner/planner.h"

namespace weft::planner {

/// A strategy with what the search found out about it.
struct Candidate {
  Strategy strategy;
  MemoryUse memory;
  DataParallelTime time;
};

/// "dp=8, micro_batch=2, recompute=none, bucket=25MiB".
std::string Describe(const Strategy& strategy);

/// Why `chosen` is as it is, and why `runner_up` (may be null) lost.
std::vector<std::string> Why(const JobSpec& job, const ClusterSpec& cluster, const Candidate& chosen,
                             const Candidate* runner_up, Seconds lower_bound);

/// "micro_batch=1, recompute=full: 91.0 GiB of 80.0 GiB: parameters …": the memory line of a strategy that does not fit.
std::string TooLarge(const ClusterSpec& cluster, const Strategy& strategy, const MemoryUse& memory);

}  // namespace weft::planner
