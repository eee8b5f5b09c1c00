#include "planner/workload/flops.h"

#include <vector>

namespace weft::planner {

Flops AttentionCoreForward(const ModelSpec& model, int64_t sequence, ScoreWork scores) {
  const auto s = static_cast<double>(sequence);
  const double share = scores == ScoreWork::kCausalHalf ? 0.5 : 1;
  return Flops(2 * s * s * static_cast<double>(model.QueryWidth() + model.ValueWidth()) * share);
}

IterationFlops CountFlops(const ModelSpec& model, int64_t sequence, int64_t batch, Recompute recompute,
                          ScoreWork scores) {
  const std::vector<LayerCost> layers = LayerCosts(model, sequence, 1, 2);
  const double cores = static_cast<double>(model.IsCnn() ? 0 : model.layers);
  const double whole = AttentionCoreForward(model, sequence).count() * cores;
  const double core = AttentionCoreForward(model, sequence, scores).count() * cores;
  double forward = core - whole;  // LayerCosts counts the core whole
  double repeated = core - whole;
  for (const LayerCost& layer : layers) {
    forward += layer.forward.count();
    if (layer.name != "head" && layer.name != "embedding") repeated += layer.forward.count();
  }
  if (recompute == Recompute::kNone) repeated = 0;
  if (recompute == Recompute::kSelective) repeated = model.KeepsScores() ? 3 * core : 0;
  const auto n = static_cast<double>(batch);
  return {.model = Flops(3 * forward * n), .hardware = Flops((3 * forward + repeated) * n)};
}

}  // namespace weft::planner
