#include "planner/parallelism/pipeline_hops.h"

#include <algorithm>
#include <numeric>

namespace weft::planner::inline parallelism {

int64_t HopStride(const Strategy& s) { return s.rank_order == RankOrder::kTpCpPpDp ? s.tp * s.cp : s.tp * s.cp * s.dp; }

size_t HopLeaves(const GroupNetwork& network, const Strategy& s, int64_t stage) {
  const int64_t next = (stage + 1) % s.pp;
  const auto [low, high] = std::minmax(stage, next);
  const int64_t pipelines = s.rank_order == RankOrder::kTpCpPpDp ? s.dp : 1;
  const int64_t stride = HopStride(s), period = s.pp * stride, first = low * stride, last = (high + 1) * stride - 1;
  return UnitsLeft(network, [&](int64_t gpus) {
    // Pipelines begin at multiples of `grid` in units, at each of them if there are enough.
    const int64_t grid = std::gcd(gpus, period);
    if (pipelines >= gpus / grid) return first / grid != last / grid;
    for (int64_t begin = 0; begin < pipelines * period; begin += period) {
      if ((begin + first) / gpus != (begin + last) / gpus) return true;
    }
    return false;
  });
}

size_t LeastHopLeaves(const GroupNetwork& network, const Strategy& s) {
  const int64_t two = 2 * HopStride(s);
  return UnitsLeft(network, [two](int64_t gpus) { return two > gpus; });
}

}  // namespace weft::planner::inline parallelism
