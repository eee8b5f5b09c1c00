// The planner's front door: every other part of Weft includes this header (collectives/ also schedule.h and ring.h).
// All of it is pure: no I/O, no clock, no threads of its own, no global state; same input, same answer, byte for byte.
//
//   const PlanAnswer answer = Plan(job, cluster, {});
//   if (answer.plans.empty()) for (const auto& reason : answer.infeasible) ...
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/ring.h"
#include "planner/collectives/schedule.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/fabric/device_spec.h"
#include "planner/fabric/topology.h"
#include "planner/flows/path_choice.h"
#include "planner/jobs/multi_job_plan.h"
#include "planner/jobs/simulate/scenario.h"
#include "planner/jobs/starts/placements.h"
#include "planner/jobs/starts/start_plan.h"
#include "planner/network/max_min.h"
#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/group_network.h"
#include "planner/parallelism/layer_strategy.h"
#include "planner/parallelism/learned_constants.h"
#include "planner/parallelism/model_operators.h"
#include "planner/parallelism/prediction_interval.h"
#include "planner/parallelism/program/expand.h"
#include "planner/parallelism/space.h"
#include "planner/parallelism/strategy.h"
#include "planner/parallelism/variables.h"
#include "planner/tasks/memory_over_time.h"
#include "planner/tasks/step_program.h"
#include "planner/workload/job_spec.h"
#include "planner/workload/recompute.h"
#include "planner/workload/model_spec.h"

namespace weft::planner {

struct PlanOptions {
  int top = 1;                                ///< how many plans, best first
  FixedVariables fix;                         ///< variables of Strategy that keep their value: ParseFixed()
  TrainingChanges allow = {};                 ///< exchanges that change what is trained
  Framework framework = Framework::kAny;      ///< what will run the job
  bool known_programs = false;                ///< in place of `framework`: the fastest that one of KnownFrameworks() runs
  bool advise = false;                        ///< also say which number of GPUs or batch near the job's would be faster
  int64_t node_budget = 1'000'000;            ///< strategies that one search evaluates; past it `complete` is false
  std::optional<double> risk = kDefaultRisk;  ///< of running out of memory, at most; nullopt: the prediction has to fit
  bool exhaustive = false;                    ///< evaluate every strategy, cut nothing: the proof of the search itself
  double front_slack = 0;                     ///< > 0: also the front of time and memory, up to (1 + slack) · best time
};

struct Prediction {
  Seconds iteration{0};
  double tokens_per_s = 0;
  double tflops_per_gpu = 0;                  ///< model FLOPs
  double mfu = 0;
  Seconds exposed_communication{0};
  Seconds bubble{0};
  MemoryUse memory;                           ///< of the worst stage
  double fits = 1;                            ///< probability that it does not run out of memory
  Estimate parts;                             ///< where the iteration goes; zero for groups that do different things
};

/// What one group of a heterogeneous cluster does.
struct GroupShare {
  std::string name;
  int64_t gpus = 0;
  int64_t sequences = 0;                      ///< of the global batch
  std::vector<int64_t> layers;                ///< of its stages, where one pipeline runs through all groups
  Strategy strategy;                          ///< inside the group
  Seconds time{0};                            ///< its iteration, without the exchange between groups
  MemoryUse memory;                           ///< of its fullest stage; zero for one pipeline through all groups
};

struct JobPlan {
  Framework framework = Framework::kAny;      ///< which program runs it, and how it was priced
  Strategy strategy;                          ///< of the first group, if there are several
  Prediction predicted;
  Seconds lower_bound{0};                     ///< no strategy of the space is faster: proved (groups: ideal throughput)
  double gap = 0;                             ///< (predicted - bound) / bound
  std::vector<std::string> why;               ///< why each setting, and why the runner-up lost
  std::vector<CommunicatorUse> communicators; ///< by kind; none for groups that do different things
  OperationList operations;                   ///< one iteration; without classes for groups that do different things
  std::vector<StageOperators> operators;      ///< sharding=osdp: what the operators of each stage do
  std::vector<GroupShare> groups;             ///< where groups of a heterogeneous cluster do different things
};

struct FrontPoint {
  Strategy strategy;
  Seconds iteration{0};
  Bytes memory;
};

/// A strategy for every layer (Galvatron) at the best plan's stages and micro-batches, held against one strategy for all
/// layers in the same account: that of layer_strategy.h, which hides less than the plans' own.
struct LayerComparison {
  LayerPlan layers;
  Seconds uniform{0};
};

struct PlanAnswer {
  std::vector<JobPlan> plans;                 ///< best first; empty: infeasible
  std::vector<FrontPoint> front;              ///< ascending time, descending memory; if asked for
  std::vector<std::string> infeasible;        ///< which constraint failed, and by how much
  int64_t strategies = 0;                     ///< legal ones
  int64_t evaluated = 0;                      ///< time and memory of every stage computed
  int64_t pruned = 0;                         ///< ruled out by a bound on time or memory
  int64_t simulated = 0;                      ///< of those priced the best by their bounds: the plans are the fastest of these
  Seconds bound{0};                           ///< no strategy that was not simulated is predicted faster
  Seconds ideal{0};                           ///< bound without looking: no bubble, recomputation or exposed gradients
  bool complete = true;
  std::optional<LayerComparison> layers;      ///< where strategies per layer are faster
};

struct PlanProgress {
  int64_t evaluated = 0;
  std::optional<Seconds> best;                ///< bound of the best strategy until now
};

/// A search that the caller's threads drive: Make, then Work() from as many threads as are at hand, then Finish(). The
/// plans are the same for any number of threads.
class PlanSearch {
 public:
  class Impl;  ///< internal to planner

  /// Errors: as Plan().
  [[nodiscard]] static Result<PlanSearch> Make(const JobSpec& job, const ClusterSpec& cluster,
                                               const PlanOptions& options);
  PlanSearch(PlanSearch&&) noexcept;
  PlanSearch& operator=(PlanSearch&&) noexcept;
  ~PlanSearch();

  /// Searches until the optimum is proved, the budget is spent or `stop` asks. Threads: any number at once.
  void Work(const std::stop_token& stop = {});
  /// Threads: any, also while Work() runs.
  PlanProgress Progress() const;
  /// Requires: every Work() has returned.
  PlanAnswer Finish();

 private:
  explicit PlanSearch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Chooses a strategy for one job on one cluster: the optimum of the modelled space, by branch and bound, on the
/// caller's thread. Errors: kInvalidArgument for a job or a fix that makes no sense (names the field, its value and
/// what was expected); a job that does not fit is an answer without plans.
[[nodiscard]] Result<PlanAnswer> Plan(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options);

/// The program of one step of a plan of `job` on `cluster`, which weft-train executes. Of groups of machines: one where replicas
/// have unequal shares of the batch, if groups' strategies are the same but for the number of replicas; or of the one pipeline
/// through all of them. Errors: kInvalidArgument, as ExpandProgram(), and for groups that have no program, saying why.
[[nodiscard]] Result<StepProgram> ProgramOf(const JobSpec& job, const ClusterSpec& cluster, const JobPlan& plan, ElementType type);

}  // namespace weft::planner
