// A strategy for every layer (Galvatron): inside a pipeline stage each layer chooses tensor, Ulysses and data
// parallelism over the stage's GPUs, whether its state is sharded (ZeRO-3) and whether it is recomputed; where
// neighbours differ the activations are re-laid out. One pipeline degree and one number of micro-batches for all; the
// budget is the device's.
//
//   const LayerPlan plan = PlanLayers(job, cluster).value();
//   for (const LayerStage& stage : plan.stages) for (const LayerRunPlan& run : stage.runs) ...
//
// Leaves out: experts, CNNs, uneven stages (stage_partition.h), the loss's place in the pipeline's bubble.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/calibration.h"
#include "planner/parallelism/strategy.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

struct LayerStrategy {
  int64_t tp = 1, cp = 1, dp = 1;   ///< their product is the stage's GPUs; cp is Ulysses; tp > 1 splits norms as well
  bool sharded = false;             ///< ZeRO-3
  bool recomputed = false;          ///< in full
  friend auto operator<=>(const LayerStrategy&, const LayerStrategy&) = default;
};

/// Neighbouring layers of one strategy.
struct LayerRunPlan {
  LayerStrategy strategy;
  int64_t layers = 0;
};

struct LayerStage {
  std::vector<LayerRunPlan> runs;   ///< transformer layers only; embedding and head take part in time and memory
  Seconds time{0};                  ///< per iteration, without waiting for other stages
  Bytes memory;
};

struct LayerPlan {
  bool feasible = false;
  bool complete = true;             ///< every stage of every pipeline degree was solved to the tolerance
  int64_t pp = 1, micro_batches = 1;
  Seconds iteration{0};
  std::vector<LayerStage> stages;
  int64_t problems = 0;             ///< chains solved
};

struct LayerPlanOptions {
  int64_t pp = 0;                   ///< 0: the best of all
  int64_t micro_batches = 0;        ///< 0: the best of all
  double tolerance = 1e-6;          ///< relative, per stage
  bool uniform = false;             ///< one strategy for all layers: what the others are to be held against
};

/// The fastest plan. Each stage's own problem is solved exactly (layer_chain.h); an iteration is the slowest stage
/// and one pass of a micro-batch through the others. Errors: kInvalidArgument for an MoE model, a CNN or impossible
/// sizes.
/// Complexity: pp and micro-batches each at most their divisors, a chain per stage.
/// Source: search space and outer loops, arXiv 2211.13878 sections 3 to 5; costs, layer_time.h and memory_model.h.
[[nodiscard]] Result<LayerPlan> PlanLayers(const JobSpec& job, const ClusterSpec& cluster,
                                           const Calibration& calibration = Calibration(),
                                           const LayerPlanOptions& options = {});

}  // namespace weft::planner::parallelism
