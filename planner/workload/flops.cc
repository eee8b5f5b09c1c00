#include "planner/workload/flops.h"

#include <vector>

namespace weft::planner {

namespace {

/// Of all layers, one sequence.
double CoresForward(const ModelSpec& model, int64_t sequence, ScoreWork scores) {
  double sum = 0;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    sum += AttentionCoreForward(model, sequence, scores, layer).count();
  }
  return sum;
}

}  // namespace

Flops AttentionCoreForward(const ModelSpec& model, int64_t sequence, ScoreWork scores, int64_t layer) {
  if (model.IsCnn()) return Flops(0);
  const auto s = static_cast<double>(sequence);
  const double share = scores == ScoreWork::kCausalHalf && model.causal ? 0.5 : 1;
  const double keys = CountedKeys(model, layer, s);
  return Flops(2 * s * keys * static_cast<double>(model.QueryWidth() + model.ValueWidth()) * share);
}

IterationFlops CountFlops(const ModelSpec& model, int64_t sequence, int64_t batch, Recompute recompute,
                          ScoreWork scores) {
  const std::vector<LayerCost> layers = LayerCosts(model, sequence, 1, 2);
  const double whole = CoresForward(model, sequence, ScoreWork::kWhole);
  const double core = CoresForward(model, sequence, scores);
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
