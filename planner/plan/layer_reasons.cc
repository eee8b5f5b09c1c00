// What strategies per layer would give: the comparison that goes with the best plan, and its sentence.
#include <fmt/format.h>

#include "common/parse_units.h"
#include "planner/plan/reasons.h"

namespace weft::planner {
namespace {

constexpr int64_t kMostStageGpus = 16;  // the choices of a layer grow with the factors of this
constexpr double kWorthAWord = 1e-3;

std::string Describe(const LayerStrategy& s) {
  return fmt::format("dp={} tp={}{}{}{}", s.dp, s.tp, s.cp > 1 ? fmt::format(" cp={}", s.cp) : std::string(),
                     s.sharded ? " sharded" : "", s.recomputed ? " recomputed" : "");
}

}  // namespace

std::optional<LayerComparison> CompareLayers(const JobSpec& job, const ClusterSpec& cluster, const Strategy& best) {
  const int64_t gpus = GpuCount(best) / best.pp;
  if (job.model.IsMoe() || job.model.IsCnn() || gpus < 2 || gpus > kMostStageGpus || best.pp > job.model.layers) {
    return std::nullopt;
  }
  LayerPlanOptions options{.pp = best.pp, .micro_batches = MicroBatches(best, job.global_batch)};
  const Result<LayerPlan> free = PlanLayers(job, cluster, Calibration(), options);
  options.uniform = true;
  const Result<LayerPlan> uniform = PlanLayers(job, cluster, Calibration(), options);
  // A question that PlanLayers does not answer is none that the plan has to answer.
  if (!free || !uniform || !free->feasible || !uniform->feasible) return std::nullopt;
  if (free->iteration >= uniform->iteration * (1 - kWorthAWord)) return std::nullopt;
  return LayerComparison{.layers = *free, .uniform = uniform->iteration};
}

std::string DescribeLayers(const LayerComparison& comparison) {
  const LayerPlan& plan = comparison.layers;
  const LayerStage* most = &plan.stages.front();
  for (const LayerStage& stage : plan.stages) {
    if (stage.runs.size() > most->runs.size()) most = &stage;
  }
  std::string runs;
  for (const LayerRunPlan& run : most->runs) {
    runs += fmt::format("{}{} x ({})", runs.empty() ? "" : ", ", run.layers, Describe(run.strategy));
  }
  return fmt::format("strategies per layer, in an account of their own (full or no recomputation, only gathered units "
                     "hidden): {} against {} with one for all ({:.1f} % less); stage {} of {}: {}", FormatDuration(plan.iteration), FormatDuration(comparison.uniform),
                     100 * (1 - plan.iteration / comparison.uniform), most - plan.stages.data() + 1, plan.pp, runs);
}

}  // namespace weft::planner
