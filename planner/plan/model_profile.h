// From a model to what a scenario needs of a job: the planner chooses the strategy on the job's hosts, the cost model's
// volumes say what each rank sends, and the plan's prediction says how much of that hides behind compute.
//
//   const ModelProfileAnswer answer = ProfileModel(job, cluster).value();
//   if (answer.profile) scenario_job.compute = answer.profile->compute;
//
// Let T be the predicted iteration, E what of it waits for communication between hosts, and C how long the bytes
// between hosts take over the hosts' own NICs. Then compute = T - min(E, C) and release = compute - (C - min(E, C)), at
// least 0: on a fabric that is nowhere narrower than the NICs the job alone iterates in T. Time of E beyond C is
// latency, which no other job lengthens; it counts as compute.
//
// Leaves out: that communication between hosts may come in several bursts per iteration (it is one, at the end); groups
// of different machines; sharding per operator, unless it is asked for (what is sent then counts as if all were
// sharded).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/jobs/simulate/job_traffic.h"
#include "planner/planner.h"

namespace weft::planner {

struct ModelProfile {
  JobPlan plan;
  Seconds compute{0};              ///< of one iteration, all that is not communication between hosts
  Seconds release{0};              ///< when in the iteration communication between hosts may start
  std::vector<PairBytes> between;  ///< hosts by their place in the cluster; on the wire: payload / network_efficiency
};

/// No profile: no strategy fits, and why.
struct ModelProfileAnswer {
  std::optional<ModelProfile> profile;
  std::vector<std::string> infeasible;
};

/// Plans `job` on all GPUs of `cluster`, one node after another. Collectives over hosts count as rings in order of
/// rank, all-to-alls as direct. `framework`: what runs it; nullopt: the fastest of the known programs, as `weft plan` chooses.
/// Requires: a cluster of one kind of node. Errors: as Plan().
[[nodiscard]] Result<ModelProfileAnswer> ProfileModel(const JobSpec& job, const ClusterSpec& cluster,
                                                      const FixedVariables& fix = {},
                                                      std::optional<Framework> framework = std::nullopt);

/// What the ranks of `strategy` send between nodes of `gpus_per_node` in one iteration, before efficiency; by rising
/// (from, to). Pairs below a millionth of the whole (a norm's eight bytes) are left out.
std::vector<PairBytes> StrategyTraffic(const CostModel& model, const Strategy& strategy, int64_t gpus_per_node);

}  // namespace weft::planner
