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

}  // namespace weft::planner::parallelism
