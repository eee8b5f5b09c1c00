#include "runtime/profile/recognise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "planner/planner.h"

namespace weft::runtime {
namespace {

/// FLOPs of the model's products by the planner's account, forward, of the traced input.
double PlannedFlops(const planner::ModelSpec& model, const TracedModel& traced) {
  planner::JobSpec job{.name = model.name, .model = model, .global_batch = traced.input.front()};
  job.sequence = model.IsCnn() ? 1 : traced.input.back();
  job.precision = planner::Precision::kFp32;
  double flops = 0;
  for (const planner::OperatorGroup& group : planner::OperatorsOf(job).groups) {
    for (const planner::ModelOperator& o : group.operators) {
      const bool pools = o.type == "pooling" || o.type == "global_pooling";  // no product
      if (!pools) flops += static_cast<double>(group.count) * o.flops.count();
    }
  }
  return flops;
}

}  // namespace

bool HasAttention(const TracedModel& traced) {
  return std::ranges::any_of(traced.operators, [](const TracedOperator& o) { return o.flops > 0 && o.parameters.empty(); });
}

Result<Recognised> Recognise(const TracedModel& traced) {
  for (const TracedParameter& p : traced.parameters) {
    if (p.Count() > 0) continue;
    return Fail(Code::kFailedPrecondition, fmt::format("{}: parameter {} of shape {}: expected at least one element in each",
                                                       traced.name, p.name, fmt::join(p.shape, "x")));
  }
  WEFT_ASSIGN_OR_RETURN(Recognised found, HasAttention(traced) ? RecogniseDecoder(traced) : RecogniseSequence(traced));
  found.model.name = traced.name;
  if (const int64_t counted = planner::ParameterCount(found.model); counted != traced.Parameters()) {
    return Fail(
        Code::kFailedPrecondition,
        fmt::format("{}: {} parameters, but a {} of the same sizes has {}: something in it has no place in that family, expected a "
                    "model as docs/inputs.md lists them",
                    traced.name, traced.Parameters(), found.model.IsCnn() ? "sequence of layers" : "decoder", counted));
  }
  const double planned = PlannedFlops(found.model, traced);
  const double biases = found.model.IsCnn() ? 0 : 1.0 / static_cast<double>(found.model.hidden);
  if (!(std::abs(planned / traced.Flops() - 1) <= 0.01 + biases)) {  // nor NaN
    return Fail(
        Code::kFailedPrecondition,
        fmt::format(
            "{}: its products are {:.4g} FLOPs forward, of the model that its sizes make {:.4g}: expected the same within 1 %",
            traced.name, traced.Flops(), planned));
  }
  return found;
}

}  // namespace weft::runtime
