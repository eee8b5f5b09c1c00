// StrategySpace: bounds, prices and the order of leaves.
#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/parallelism/space.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

bool StrategySpace::AnyExchangeFits(const Strategy& s, std::optional<Sharding> sharding, Scratch& scratch) const {
  std::vector<Strategy> exchanges;
  Exchanges(s, exchanges);
  return std::any_of(exchanges.begin(), exchanges.end(), [&](const Strategy& exchange) {
    // Groups and ways of exchange never need less than all replicas together in a ring.
    if (sharding && exchange.sharding != *sharding) return false;
    if (exchange.shard_group != 0 && !Fixed("shard_group")) return false;
    if (exchange.data_sync != DataSync::kRing && !Fixed("data_sync")) return false;
    if (exchange.gradient_wire != GradientWire::kWhole && !Fixed("gradient_wire")) return false;
    if (exchange.local_steps > 1 && !Fixed("local_steps")) return false;
    return model_.Fits(exchange, scratch);
  });
}

double StrategySpace::Bound(const Node& node, Scratch& scratch) const {
  Strategy s = node.strategy;
  if (node.level >= 4) {
    if (node.level == 4 && !model_.Fits(s, scratch)) return kInfinity;
    return model_.OperatorBound(s, node.level > 4, scratch).count();
  }
  s.sharding = Sharding::kUniform;
  // Sharded optimizer states are updated fastest, and ZeRO-1 adds nothing to the passes.
  s.zero_stage = s.dp * s.cp > 1 ? 1 : 0;
  if (node.level == 1) return model_.AnyScheduleBound(s, scratch).count();
  const Estimate e = model_.Evaluate(s, scratch);
  if (node.level == 2) {
    // Memory falls or rises steadily with the number of layers recomputed: an extreme fits if any does.
    Strategy extreme = node.strategy;
    bool fits = false;
    for (const Recompute kind : {Recompute::kFull, Recompute::kSelective, Recompute::kNone}) {
      extreme.recompute = kind;
      fits = fits || AnyExchangeFits(extreme, std::nullopt, scratch);
    }
    if (!fits) return kInfinity;
  } else if (!AnyExchangeFits(node.strategy, node.strategy.sharding, scratch)) {
    return kInfinity;
  }
  return (e.iteration - e.data).count();
}

StrategySpace::Value StrategySpace::Evaluate(const Node& leaf, Scratch& scratch) const {
  const Estimate e = model_.Evaluate(leaf.strategy, scratch);
  return {e.iteration.count(), static_cast<double>(e.memory.total().count()), e.fits};
}

bool StrategySpace::Before(const Node& a, const Node& b) const {
  const auto key = [](const Strategy& s) {
    return std::tuple(s.pp, s.tp, s.cp, s.ep, s.etp, s.recompute, s.zero_stage, s.vpp, s.micro_batch);
  };
  const auto ka = key(a.strategy), kb = key(b.strategy);
  return ka != kb ? ka < kb : a.strategy < b.strategy;
}

std::optional<Strategy> StrategySpace::Leanest(Scratch& scratch) const {
  std::vector<Node> roots;
  Roots(roots);
  std::optional<Strategy> leanest;
  Bytes least;
  for (const Node& root : roots) {
    // Larger micro-batches need more.
    const bool smallest = root.strategy.micro_batch == 1 || Fixed("micro_batch") ||
                          root.strategy.tensor_mode != TensorMode::k1D;
    if (!smallest) continue;
    std::vector<Node> schedules;
    Schedules(root, schedules);
    for (const Node& schedule : schedules) {
      std::vector<Strategy> recomputes;
      Recomputes(schedule.strategy, recomputes);
      for (const Strategy& recompute : {recomputes.front(), recomputes.back()}) {
        std::vector<Strategy> exchanges;
        Exchanges(recompute, exchanges);
        if (exchanges.empty()) continue;
        // The first shards most; the last, where it decides per operator, may gather in slices.
        for (const Strategy& exchange : {exchanges.front(), exchanges.back()}) {
          MemoryUse memory;
          model_.Fits(exchange, scratch, &memory);
          if (leanest && memory.total() >= least) continue;
          least = memory.total();
          leanest = exchange;
        }
      }
    }
  }
  return leanest;
}

}  // namespace weft::planner::parallelism
