// One whole path for every flow of every job, so that the cluster computes most: the paths of path_choice.h first (by
// intensity, then local search on the most loaded links), then moves while the simulated GPU use rises: of one flow, of
// all flows of a job to their n-th paths, of two flows at once, and from a few drawn starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/flows/path_choice.h"
#include "planner/flows/periodic.h"

namespace weft::planner::inline flows {

struct RoutableFlow {
  Bytes bytes;                          ///< per iteration
  std::vector<CandidatePath> paths;     ///< at least one
  std::vector<Bytes> per_burst = {};    ///< of `bytes`, in each burst of its job; empty: all in one
};

/// A periodic job whose loads follow from the paths of its flows.
struct RoutableJob {
  double gpus = 1;
  Seconds compute{0};
  Seconds release{0};
  std::vector<RoutableFlow> flows;
  std::vector<BurstTimes> bursts = {};  ///< as PeriodicJob::bursts; empty: one
};

/// [job][flow]: the path taken.
using JobPaths = std::vector<std::vector<size_t>>;

/// The job with its flows on these paths. Requires: links of `topology`.
PeriodicJob OnPaths(const RoutableJob& job, const std::vector<size_t>& paths);

struct JobPathPlan {
  JobPaths paths;
  double gpu_use = 0;        ///< simulated, all jobs in one class
  double gpu_use_balanced = 0;  ///< of path_choice.h's answer alone
  bool complete = true;
};

struct JobPathOptions {
  int64_t evaluations = 1000;  ///< simulations at most
  PeriodicOptions simulation;
};

/// A function: same input, same answer.
JobPathPlan PlanJobPaths(const Topology& topology, const std::vector<RoutableJob>& jobs, const JobPathOptions& options = {});

/// Simulated GPU use of an assignment, all jobs in one class.
double GpuUse(const Topology& topology, const std::vector<RoutableJob>& jobs, const JobPaths& paths,
              const PeriodicOptions& simulation = {});

}  // namespace weft::planner::flows
