#include "planner/plan/price_given.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "planner/plan/plan_search.h"

namespace weft::planner {
namespace {

tl::unexpected<Error> Illegal(std::string why) { return Fail(Code::kFailedPrecondition, std::move(why)); }

/// What keeps every product of the rules in legality.h far from an overflow.
Status CheckRange(const JobSpec& job, const Strategy& s) {
  const std::pair<std::string_view, int64_t> ranks[] = {{"dp", s.dp}, {"tp", s.tp},   {"pp", s.pp}, {"cp", s.cp},
                                                        {"ep", s.ep}, {"etp", s.etp}, {"tensor_depth", s.tensor_depth}};
  for (const auto& [name, value] : ranks) {
    if (value >= 1 && value <= job.gpus) continue;
    return Illegal(fmt::format("{}={}, expected 1 to the job's {} GPUs", name, value, job.gpus));
  }
  int64_t product = 1;
  for (const int64_t degree : {s.dp, s.tp, s.cp, s.pp}) {
    if (degree > job.gpus / product) {
      return Illegal(fmt::format("gpus: dp={} x tp={} x cp={} x pp={}, expected the job's {}", s.dp, s.tp, s.cp, s.pp, job.gpus));
    }
    product *= degree;
  }
  if (s.vpp < 1 || s.vpp > job.model.layers + 2) {
    return Illegal(fmt::format("vpp={}, expected 1 to {}: layers with embedding and head", s.vpp, job.model.layers + 2));
  }
  if (s.micro_batch < 1 || s.micro_batch > job.global_batch / s.dp) {
    return Illegal(fmt::format("batch: dp={} x micro_batch={} does not divide the {} sequences", s.dp, s.micro_batch,
                               job.global_batch));
  }
  return Ok();
}

/// The rules of the model, the batch and the framework. Everything that may refuse a given strategy is here.
Status CheckGiven(const CostModel& model, std::optional<Framework> framework, std::string_view name, const Strategy& s) {
  WEFT_RETURN_IF_ERROR(CheckRange(model.job(), s));
  if (auto why = model.WhyIllegal(s)) return Illegal(std::move(*why));
  if (!framework) return Ok();
  if (auto why = WhyCannotRun(*framework, {model.job(), model.cluster(), s})) {
    return Illegal(fmt::format("{} does not run it: {}; weft plan --framework {} finds what it runs", FrameworkTitle(*framework),
                               *why, name));
  }
  return Ok();
}

Prediction Predict(const CostModel& model, const Strategy& s, bool& fits) {
  CostModel::Scratch scratch;
  Prediction predicted;
  const Estimate estimate = model.EvaluateSimulated(s, scratch);
  predicted.parts = estimate;
  predicted.exposed_communication = estimate.exposed_communication();
  predicted.bubble = estimate.bubble;
  predicted.memory = estimate.memory;
  predicted.fits = FitProbability(model.cluster().device, estimate.memory.total());
  FillRates(model, model.job().gpus, estimate.iteration, predicted);
  fits = estimate.fits;
  return predicted;
}

}  // namespace

Result<GivenPrice> PriceGiven(const JobSpec& job, const ClusterSpec& cluster, std::string_view framework,
                              const Strategy& given) {
  WEFT_RETURN_IF_ERROR(CheckJob(job, cluster));
  const std::optional<Framework> known = ParseFramework(framework);
  // As PlanSearch::Make.
  const CostOptions costs{.framework = known.value_or(Framework::kAny), .cuts = CutsOf(known.value_or(Framework::kAny))};
  WEFT_ASSIGN_OR_RETURN(const CostModel model, CostModel::Make(job, cluster, Calibration(), costs));
  Strategy strategy = given;
  if (strategy.bucket_bytes.count() == 0) {
    // Far from an overflow, whatever the degrees are; they are checked next.
    Strategy bounded;
    bounded.dp = std::clamp<int64_t>(given.dp, 1, model.job().gpus);
    bounded.cp = std::clamp<int64_t>(given.cp, 1, model.job().gpus);
    strategy.bucket_bytes = DefaultBucket(known.value_or(Framework::kAny), bounded, model.gradient_bytes());
  }
  WEFT_RETURN_IF_ERROR(CheckGiven(model, known, framework, strategy));
  GivenPrice price{.plan = {}, .usable = model.usable_memory()};
  price.plan.framework = known.value_or(Framework::kAny);
  price.plan.strategy = strategy;
  price.framework_asked = known && *known != Framework::kAny;
  price.plan.predicted = Predict(model, strategy, price.fits);
  CostModel::Scratch scratch;
  price.plan.operators = model.Operators(strategy, scratch);
  price.plan.operations = model.Lower(strategy, scratch);
  return price;
}

}  // namespace weft::planner
