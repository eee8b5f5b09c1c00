// The planner's front door: every other part of Weft includes this header (collectives/ also schedule.h and ring.h).
// All of it is pure: no I/O, no clock, no threads of its own, no global state; same input, same answer, byte for byte.
//
//   const PlanAnswer answer = Plan(job, cluster, {});
//   if (answer.plans.empty()) for (const auto& reason : answer.infeasible) ...
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/cluster/cluster_spec.h"
#include "planner/collectives/ring.h"
#include "planner/collectives/schedule.h"
#include "planner/flows/path_choice.h"
#include "planner/network/max_min.h"
#include "planner/network/simulation.h"
#include "planner/network/topology.h"
#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/strategy.h"
#include "planner/parallelism/variables.h"
#include "planner/tasks/timeline.h"
#include "planner/workload/device_spec.h"
#include "planner/workload/job_spec.h"
#include "planner/workload/layer_cost.h"
#include "planner/workload/model_spec.h"

namespace weft::planner {

struct PlanOptions {
  int top = 1;                                ///< how many plans, best first
  /// Variable of Strategy -> value, e.g. {"dp", 4}, {"micro_batch", 1}; recompute is 0 (none) or 1 (full).
  std::map<std::string, int64_t> fix;
  int64_t node_budget = 1'000'000;            ///< strategies evaluated; past it `complete` is false
};

struct Prediction {
  Seconds iteration{0};
  double tokens_per_s = 0;
  double tflops_per_gpu = 0;                  ///< model FLOPs
  double mfu = 0;
  Seconds exposed_communication{0};
  Seconds bubble{0};
  MemoryUse memory;
};

struct JobPlan {
  Strategy strategy;
  Prediction predicted;
  Seconds lower_bound{0};
  double gap = 0;                             ///< (predicted - bound) / bound
  std::vector<std::string> why;               ///< why each setting, and why the runner-up lost
};

struct PlanAnswer {
  std::vector<JobPlan> plans;                 ///< best first; empty: infeasible
  std::vector<std::string> infeasible;        ///< which constraint failed, and by how much
  int64_t strategies = 0;                     ///< legal ones, bucket sizes counted apart
  int64_t evaluated = 0, pruned = 0;          ///< by simulation of the iteration; by memory or by lower bound
  bool complete = true;
};

/// Chooses a strategy for one job on one cluster: the optimum of the modelled space, by branch and bound. Errors: kInvalidArgument for a job or a fix that makes no sense
/// (names the field, its value and what was expected); a job that does not fit is an answer without plans.
[[nodiscard]] Result<PlanAnswer> Plan(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options);

}  // namespace weft::planner
