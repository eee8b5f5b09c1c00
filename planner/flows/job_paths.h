// A path for every flow of every job, one way or several, so that the cluster computes most: the paths of path_choice.h first (by
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
  /// Per path and link of it, the share of the bytes that goes over the link: a "path" may be several ways at once, between which a
  /// sender divides its bytes. Empty, or empty for a path: all of them over every link. Such paths stand last.
  std::vector<std::vector<double>> shares = {};
  std::vector<std::vector<double>> divided = {};   ///< of each path that AddSplits() added, per whole path the share that takes it

  /// Paths that are one way each: the first ones.
  size_t WholePaths() const;
  /// Of the bytes, over the i-th link of path p.
  double ShareOn(size_t p, size_t i) const { return p < shares.size() && !shares[p].empty() ? shares[p][i] : 1; }
};

/// Ways that a sender divides a flow's bytes between, at most: the lanes of a connection.
inline constexpr size_t kMostLanes = 4;

/// Adds, where a flow has several whole paths, those that divide it between kMostLanes of them: all of them, or every n-th. Each way
/// gets bytes in proportion to the slowest of its links (`capacity`, per link) that not all ways share; all get the same where there is
/// none, or none carries anything.
/// Requires: whole paths only.
void AddSplits(RoutableFlow* flow, const std::vector<BitsPerSecond>& capacity);

/// Per whole path the share of the bytes that takes it, where the flow takes path `p`. Requires: paths as AddSplits() leaves them.
std::vector<double> SharesOf(const RoutableFlow& flow, size_t p);

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

/// Whole paths that balance the bytes of all flows (path_choice.h), jobs with more compute per byte first; nothing is simulated.
JobPaths BalancedJobPaths(const Topology& topology, const std::vector<RoutableJob>& jobs);

/// The job on the paths that are best for it alone: all divided, or whole ones, moved while that helps where its flows are few. Cheap
/// where either sends as fast as the links allow that the flows cannot avoid. Requires: at least one path for every flow.
PeriodicJob BestAlone(const Topology& topology, const RoutableJob& job);

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
