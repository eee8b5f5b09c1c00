// What a row of a table of training measurements asks of the cost model: the model, the machines, the strategy and the
// software stack that the row names, and a named default for each thing that it does not say.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "formats/validation_csv.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/framework.h"
#include "planner/parallelism/strategy.h"
#include "planner/workload/job_spec.h"

namespace weft::formats {

/// How the measured value compares with a prediction.
enum class MetricKind { kTime, kMemory, kFits, kPart };

struct ValidationCase {
  planner::JobSpec job;
  planner::ClusterSpec cluster;
  planner::Strategy strategy;
  planner::Framework framework = planner::Framework::kAny;  ///< the stack that the row's source ran
  bool recompute_unknown = false;      ///< the least that fits is meant
  bool offloaded = false;              ///< activations that do not fit go to the host
  bool chunks_unknown = false;         ///< two layers per chunk, or one where two do not fit
  bool zero_unknown = false;           ///< 1, or 3 where nothing else fits
  MetricKind kind = MetricKind::kTime;
  double measured = 0;                 ///< s of an iteration, bytes, 0 or 1, or the metric's own unit (kPart)
  std::vector<std::string> defaults;   ///< "vpp=6: …"
};

/// Errors: kInvalidArgument or kFailedPrecondition with the reason why this row cannot be predicted.
[[nodiscard]] Result<ValidationCase> MakeValidationCase(const ValidationRow& row);

/// The model of a row: from its sizes, with what its name says about the family (gated MLP, latent attention, shared
/// experts …) from the public configurations. Errors: kFailedPrecondition naming the missing size.
[[nodiscard]] Result<planner::ModelSpec> ModelOfRow(const ValidationRow& row, std::vector<std::string>& defaults);

/// Model FLOPs of one iteration as the row's source counts them; hardware FLOPs for hw_tflops_per_gpu.
double SourceFlops(const ValidationRow& row);

}  // namespace weft::formats
