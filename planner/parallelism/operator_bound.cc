// QuickOperatorBound. Every collective's time per parameter falls with its size (a start-up time, then a rate), so a
// part of a layer never costs less per parameter than the whole layer does. With that rate each way has a price and a
// number of bytes per parameter, and the least price within the budget is a linear programme in three shares:
//   replicated  kg·a + optimizer(1)           kg: the share of hidden communication that slows computation, or 1
//   kept        m·kg·s + kp·f + optimizer(1/n)
//   sharded     m·(2·i·g + kg·s) + optimizer(1/n)
// with a, s, f, g the seconds per parameter of sum, scatter, fetch and gather, and i the interference. Besides, what must
// be sharded is gathered twice per layer, and what exceeds the layers' computation is seen: exposure is convex, so that
// an even spread over the layers costs least (Jensen).
#include <algorithm>
#include <limits>

#include "planner/parallelism/data_time.h"
#include "planner/parallelism/operator_sharding.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr Seconds kNever(std::numeric_limits<double>::infinity());

/// Of one parameter.
struct Rates {
  Seconds reduce = kNever, scatter = kNever, fetch = kNever, gather = kNever;
};

Rates RatesOf(const OperatorProblem& p) {
  Rates least;
  const Strategy& s = p.strategy;
  for (const bool moe : {false, true}) {
    const OperatorProblem::Kind& kind = moe ? p.moe : p.dense;
    const double whole = kind.parts[0] + kind.parts[1];
    if (kind.layers == 0 || whole <= 0) continue;
    const UnitTime unit = ComputeUnitTime(*p.hardware, *p.stack, s, *p.state, whole);
    least.gather = std::min(least.gather, unit.gather / whole);
    least.scatter = std::min(least.scatter, unit.scatter / whole);
    least.fetch = std::min(least.fetch, ParameterGatherTime(*p.hardware, s, *p.state, whole) / whole);
    least.reduce =
        std::min(least.reduce, GradientSumTime(*p.hardware, s, *p.state, ReplicaGroup(s), whole) / whole);
    // Routed experts are summed over fewer replicas.
    if (moe) {
      least.reduce = std::min(least.reduce, GradientSumTime(*p.hardware, s, *p.state, ExpertReplicaGroup(s), whole) / whole);
    }
  }
  return least;
}

/// Of one parameter.
struct Way {
  Seconds price;
  FractionalBytes bytes;
};

/// Least mean price of a mixture of ways with a mean of at most `bytes` each. +infinity if none.
Seconds LeastPrice(const Way (&ways)[3], FractionalBytes bytes) {
  Seconds least = kNever;
  for (const Way& a : ways) {
    if (a.bytes <= bytes) least = std::min(least, a.price);
    for (const Way& b : ways) {
      if (a.bytes > bytes || b.bytes <= bytes) continue;
      const double share = (bytes - a.bytes) / (b.bytes - a.bytes);
      least = std::min(least, (1 - share) * a.price + share * b.price);
    }
  }
  return least;
}

}  // namespace

Seconds QuickOperatorBound(const OperatorProblem& p) {
  const double layers = static_cast<double>(p.dense.layers + p.moe.layers);
  const double parameters = static_cast<double>(p.dense.layers) * (p.dense.parts[0] + p.dense.parts[1]) +
                            static_cast<double>(p.moe.layers) * (p.moe.parts[0] + p.moe.parts[1]);
  if (parameters <= 0) return Seconds(0);
  if (p.budget < Bytes(0)) return kNever;
  const Strategy& s = p.strategy;
  const StateBytes& state = *p.state;
  const Rates rate = RatesOf(p);
  const double m = static_cast<double>(p.micro_batches), slows = p.hardware->interference;
  const double seen = p.stack->overlaps_gradients ? slows : 1, fetched = p.stack->overlaps_parameters ? slows : 1;
  const double shards = static_cast<double>(s.shard_group > 0 ? s.shard_group : s.dp * s.cp);
  const FractionalBytes whole = state.parameter + state.gradient + state.optimizer;
  const Seconds step = OptimizerTime(*p.hardware, 1);
  const Way ways[] = {
      {seen * rate.reduce + step, whole},
      {m * seen * rate.scatter + fetched * rate.fetch + step / shards, whole / shards + state.gathered},
      {m * (2 * slows * rate.gather + seen * rate.scatter) + step / shards, whole / shards},
  };
  const FractionalBytes room = FractionalBytes(p.budget) / parameters;
  const Seconds linear = parameters * LeastPrice(ways, room);
  const FractionalBytes smallest = std::min(ways[0].bytes, ways[1].bytes) - ways[2].bytes;
  const double must = smallest.count() > 0 ? std::clamp(1 - (room - ways[2].bytes) / smallest, 0.0, 1.0) : 0;
  const Seconds gathered = must * rate.gather * parameters / layers;
  const auto exposed = [&](Seconds compute) {
    return std::max(Seconds(0), gathered - compute) + slows * std::min(gathered, compute);
  };
  return std::max(linear, m * layers * (exposed(p.forward) + exposed(p.backward)));
}

}  // namespace weft::planner::parallelism
