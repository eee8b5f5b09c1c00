#include "planner/parallelism/partition.h"

#include <algorithm>

namespace weft::planner::inline parallelism {

int64_t StageLayers(int64_t layers, int64_t pp, int64_t stage) {
  if (pp == 1) return layers;
  if (layers % pp != 0 && (layers + 2) % pp == 0) {
    return (layers + 2) / pp - (stage == 0 ? 1 : 0) - (stage == pp - 1 ? 1 : 0);
  }
  return layers / pp + (stage >= 1 && stage <= layers % pp ? 1 : 0);
}

int64_t StageBegin(int64_t layers, int64_t pp, int64_t stage) {
  if (stage == 0) return 0;
  if (stage == pp) return layers;
  if (layers % pp != 0 && (layers + 2) % pp == 0) return stage * ((layers + 2) / pp) - 1;
  return stage * (layers / pp) + std::min(stage - 1, layers % pp);
}

std::vector<int64_t> StagesByProducts(int64_t layers, int64_t pp, double layer, double head) {
  std::vector<int64_t> stages(static_cast<size_t>(pp), 0);
  const double share = (static_cast<double>(layers) * layer + head) / static_cast<double>(pp);
  size_t stage = 0;
  for (int64_t i = 1; i <= layers; ++i) {
    ++stages[stage];
    if (static_cast<double>(i) * layer > share * static_cast<double>(stage + 1)) ++stage;
  }
  return stages;
}

std::vector<int64_t> StagesLastMore(int64_t layers, int64_t pp) {
  std::vector<int64_t> stages(static_cast<size_t>(pp), layers / pp);
  for (int64_t i = 0; i < layers % pp; ++i) ++stages[static_cast<size_t>(pp - 1 - i)];
  return stages;
}

}  // namespace weft::planner::parallelism
