// From a strategy of a model to what a scenario needs of a job: the cost model's volumes say what each rank sends, and the plan's
// prediction says how much of that hides behind compute. Which strategies there are to choose from, model_ways.h says.
//
//   const ModelProfile profile = ProfileOf(job, cluster, plan).value();   // profile.compute, profile.bursts
//
// What passes send comes in as many bursts as there are micro-batches (neighbours put together beyond kMostPassBursts), and
// what is sent once per iteration, gradients above all, in one more behind them. Let T be the predicted iteration, C how
// long the bytes between hosts take over the hosts' own NICs, and E ≤ C what of that the prediction waits for, each for
// the passes and for what is sent once. Then compute = T - E of both, the last burst is released C - E before the end, and
// before that the passes' bursts are needed at even distances, each released its share of C - E earlier: on a fabric
// that is nowhere narrower than the NICs the job alone iterates in T. Time waited beyond C is latency, which no other job
// lengthens; it counts as compute. Where all that has no room in the iteration, everything is one burst at its end.
//
// Leaves out: that hosts of different pipeline stages send at different times (all of a job's hosts send together);
// groups of different machines; sharding per operator, unless it is asked for (what is sent then counts as if all were
// sharded).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/jobs/simulate/job_traffic.h"
#include "planner/planner.h"

namespace weft::planner {

inline constexpr int64_t kMostPassBursts = 8;
/// And at most so many where every micro-batch's is told apart: with the one behind them what a scenario's job may have.
inline constexpr int64_t kMostFineBursts = static_cast<int64_t>(kMostBursts) - 1;

/// What the hosts send each other in one burst.
struct ProfileBurst {
  BurstTimes times;
  std::vector<PairBytes> between;    ///< hosts by their place in the cluster; on the wire: payload / network_efficiency
};

struct ModelProfile {
  JobPlan plan;
  Seconds compute{0};                ///< of one iteration, all that is not communication between hosts
  std::vector<ProfileBurst> bursts;  ///< as ScenarioJob::bursts; none where nothing is sent
  std::vector<ProfileBurst> fine;    ///< the same with a burst per micro-batch, up to kMostFineBursts
};

/// The profile of a plan that was priced on `cluster`, of a job of its GPUs, one node after another. Collectives over hosts count as
/// rings in order of rank, all-to-alls as direct. Requires: a cluster of one kind of node. Errors: as Plan().
[[nodiscard]] Result<ModelProfile> ProfileOf(const JobSpec& job, const ClusterSpec& cluster, JobPlan plan);

/// What the ranks of a strategy send between nodes in one iteration, by rising (from, to). Pairs below a millionth of the whole
/// (a norm's eight bytes) are left out.
struct IterationTraffic {
  std::vector<PairBytes> passes;     ///< of all micro-batches together
  std::vector<PairBytes> once;
};

/// By a list of operations that was made for the strategy. Nodes of `gpus_per_node`; before efficiency.
IterationTraffic ListTraffic(const OperationList& list, const Strategy& strategy, int64_t gpus_per_node);
/// The same by the model's list.
IterationTraffic StrategyTraffic(const CostModel& model, const Strategy& strategy, int64_t gpus_per_node);

}  // namespace weft::planner
