#include "planner/parallelism/space.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace weft::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMostChunks = 16;       // per stage

/// Layers of the largest stage.
int64_t LayersPerStage(const ModelSpec& model, const Strategy& s) { return (model.layers + s.pp - 1) / s.pp; }

}  // namespace

StrategySpace::StrategySpace(const CostModel& model, const SpaceOptions& options)
    : model_(model), options_(options), gpus_(model.job().gpus) {}

bool StrategySpace::Allowed(const Strategy& s, bool exchange) const {
  return RunsPart(options_.framework, {.job = model_.job(), .cluster = model_.cluster(), .strategy = s}, exchange);
}

Bytes StrategySpace::Bucket(const Strategy& s) const {
  const auto fixed = options_.fixed.find("bucket_bytes");
  if (fixed != options_.fixed.end()) return Bytes(fixed->second);
  return DefaultBucket(options_.framework, s, model_.gradient_bytes());
}

/// Calls `use` with the root's strategy under every schedule. Legal by construction: chunks have a layer each.
template <typename Use>
void StrategySpace::ForEachSchedule(const Strategy& root, const Use& use) const {
  Strategy s = root;
  const ModelSpec& model = model_.job().model;
  const int64_t micro_batches = MicroBatches(s, model_.job().global_batch);
  const auto add = [&](ScheduleKind kind, int64_t chunks) {
    s.schedule = kind;
    s.vpp = chunks;
    for (const RankOrder order : {RankOrder::kTpCpEpDpPp, RankOrder::kTpCpPpDp}) {
      if (order != RankOrder::kTpCpEpDpPp && (s.pp == 1 || s.dp == 1)) break;  // the same order
      s.rank_order = order;
      const bool kept = Keeps(options_.fixed, "schedule", static_cast<int64_t>(kind)) &&
                        Keeps(options_.fixed, "vpp", chunks) &&
                        Keeps(options_.fixed, "rank_order", static_cast<int64_t>(order));
      if (kept && Allowed(s, false)) use(s);
    }
  };
  if (s.pp == 1) return add(ScheduleKind::k1F1B, 1);
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kEager1F1B}) add(kind, 1);
  // With fewer micro-batches the warm-up of a zero-bubble schedule has nothing to fill it, and its closed form no
  // meaning.
  if (micro_batches >= s.pp) add(ScheduleKind::kZbH1, 1);
  if (micro_batches >= 2 * s.pp - 1) add(ScheduleKind::kZbH2, 1);
  if (model.IsCnn()) return;
  if (micro_batches >= 2 * s.pp && 2 * s.pp <= model.layers) add(ScheduleKind::kZbV, 2);
  if (micro_batches % s.pp != 0) return;
  for (int64_t chunks = 2; chunks <= kMostChunks && chunks * s.pp <= model.layers; ++chunks) {
    // Whole chunks; embedding and head may stand for a layer each.
    const bool whole = model.layers % (chunks * s.pp) == 0 || (model.layers + 2) % (chunks * s.pp) == 0;
    if (whole) add(ScheduleKind::kInterleaved, chunks);
  }
}

int32_t StrategySpace::CountPasses(const Strategy& root) const {
  int32_t count = 0;
  ForEachSchedule(root, [&](const Strategy& s) { count += CountRecomputes(s); });
  return count;
}

void StrategySpace::Schedules(const Node& node, std::vector<Node>& out) const {
  ForEachSchedule(node.strategy, [&](const Strategy& s) {
    const int32_t recomputes = CountRecomputes(s);
    if (recomputes == 0) return;
    out.push_back(node);
    out.back().strategy = s;
    out.back().level = 2;
    out.back().recomputes = recomputes;
  });
}

/// How many Recomputes() gives, without asking for each number of layers. No rule but RecomputesSome() knows the number.
int32_t StrategySpace::CountRecomputes(const Strategy& from) const {
  Strategy s = from;
  int32_t count = 0;
  for (const Recompute kind : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (!Keeps(options_.fixed, "recompute", static_cast<int64_t>(kind))) continue;
    s.recompute = kind;
    if (!Allowed(s, false)) continue;
    if (Keeps(options_.fixed, "recompute_layers", -1)) ++count;
    if (kind != Recompute::kFull) continue;
    const int64_t most = LayersPerStage(model_.job().model, s);
    const auto fixed = options_.fixed.find("recompute_layers");
    const bool one = fixed != options_.fixed.end();
    for (int64_t layers = one ? std::max<int64_t>(1, fixed->second) : 1; layers < (one ? std::min(most, fixed->second + 1) : most);
         ++layers) {
      if (RecomputesSome(options_.framework, model_.job().model.layers, s, layers)) ++count;
    }
  }
  return count;
}

void StrategySpace::Recomputes(const Strategy& from, std::vector<Strategy>& out) const {
  Strategy s = from;
  const auto add = [&](Recompute kind, int64_t layers) {
    s.recompute = kind;
    s.recompute_layers = layers;
    if (Keeps(options_.fixed, "recompute", static_cast<int64_t>(kind)) &&
        Keeps(options_.fixed, "recompute_layers", layers) && Allowed(s, false)) {
      out.push_back(s);
    }
  };
  add(Recompute::kNone, -1);
  add(Recompute::kSelective, -1);
  for (int64_t layers = 1; layers < LayersPerStage(model_.job().model, s); ++layers) {
    if (RecomputesSome(options_.framework, model_.job().model.layers, s, layers)) add(Recompute::kFull, layers);
  }
  add(Recompute::kFull, -1);
}

void StrategySpace::Exchanges(const Strategy& from, std::vector<Strategy>& out) const {
  Strategy s = from;
  const int64_t replicas = s.dp * s.cp;
  const int64_t per_node = std::max<int64_t>(1, model_.cluster().gpus_per_node / s.tp);
  std::vector<int64_t> groups = {0};
  for (const int64_t group : {per_node, 4 * per_node, 16 * per_node}) {
    if (group > 1 && group < replicas && replicas % group == 0) groups.push_back(group);
  }
  const auto add = [&](int64_t stage, int64_t group, bool keep, DataSync sync) {
    s.zero_stage = stage;
    s.shard_group = group;
    s.keep_after_forward = keep;
    s.data_sync = sync;
    if (!Keeps(options_.fixed, "zero_stage", stage) || !Keeps(options_.fixed, "shard_group", group) ||
        !Keeps(options_.fixed, "keep_after_forward", keep ? 1 : 0) ||
        !Keeps(options_.fixed, "data_sync", static_cast<int64_t>(sync)) ||
        !Keeps(options_.fixed, "sharding", static_cast<int64_t>(s.sharding)) || !Allowed(s, true)) {
      return;
    }
    out.push_back(s);
  };
  s.sharding = Sharding::kUniform;
  if (replicas == 1) return add(0, 0, false, DataSync::kRing);
  // What needs least memory first: then the question whether anything fits ends early.
  for (const int64_t stage : {3, 2, 1, 0}) {
    for (const int64_t group : groups) {
      if (stage == 0 && group != 0) break;
      for (const bool keep : {false, true}) {
        if (keep ? stage != 3 : stage == 3 && s.pp > 1) continue;
        add(stage, group, keep, DataSync::kRing);
        add(stage, group, keep, DataSync::kHierarchical);
        if (stage == 0) add(stage, group, keep, DataSync::kParameterServer);
      }
    }
  }
  if (model_.job().model.IsCnn()) return;
  s.sharding = Sharding::kOperator;
  for (const int64_t group : groups) {
    add(3, group, false, DataSync::kRing);
    add(3, group, false, DataSync::kHierarchical);
  }
}

void StrategySpace::Children(const Node& node, std::vector<Node>& out) const {
  if (node.level == 1) return Schedules(node, out);
  if (node.level >= 4) {
    out.push_back(node);
    ++out.back().level;
    return;
  }
  std::vector<Strategy> strategies;
  if (node.level == 2) {
    Recomputes(node.strategy, strategies);
  } else {
    Exchanges(node.strategy, strategies);
  }
  const auto add = [&](const Strategy& strategy, Sharding sharding) {
    out.push_back(node);
    out.back().strategy = strategy;
    out.back().strategy.sharding = sharding;
    ++out.back().level;
  };
  for (const Strategy& strategy : strategies) {
    if (node.level == 3) {
      if (strategy.sharding == node.strategy.sharding) add(strategy, strategy.sharding);
      continue;
    }
    if (node.exchanges > 0) add(strategy, Sharding::kUniform);
    if (node.operators > 0) add(strategy, Sharding::kOperator);
  }
}

int64_t StrategySpace::Leaves(const Node& node) const {
  if (node.level >= 4) return 1;
  const bool both = node.level < 3;
  int64_t leaves = both || node.strategy.sharding == Sharding::kUniform ? node.exchanges : 0;
  if (both || node.strategy.sharding == Sharding::kOperator) leaves += node.operators;
  if (node.level == 2) leaves *= node.recomputes;
  if (node.level == 1) leaves *= node.passes;
  return leaves;
}

bool StrategySpace::AnyExchangeFits(const Strategy& s, std::optional<Sharding> sharding, Scratch& scratch) const {
  std::vector<Strategy> exchanges;
  Exchanges(s, exchanges);
  return std::any_of(exchanges.begin(), exchanges.end(), [&](const Strategy& exchange) {
    // Groups and ways of exchange never need less than all replicas together in a ring.
    if (sharding && exchange.sharding != *sharding) return false;
    if (exchange.shard_group != 0 && !Fixed("shard_group")) return false;
    if (exchange.data_sync != DataSync::kRing && !Fixed("data_sync")) return false;
    return model_.Fits(exchange, scratch);
  });
}

double StrategySpace::Bound(const Node& node, Scratch& scratch) const {
  Strategy s = node.strategy;
  if (IsLeaf(node)) {
    const Value value = Evaluate(node, scratch);
    return value.feasible ? value.value : kInfinity;
  }
  if (node.level >= 4) {
    if (node.level == 4 && !model_.Fits(s, scratch)) return kInfinity;
    return model_.OperatorBound(s, node.level > 4, scratch).count();
  }
  s.sharding = Sharding::kUniform;
  // Sharded optimizer states are updated fastest, and ZeRO-1 adds nothing to the passes.
  s.zero_stage = s.dp * s.cp > 1 ? 1 : 0;
  const Estimate e = model_.Evaluate(s, scratch);
  if (node.level == 1) {
    // Stages of 1F1B: the span is their sum and m - 1 times the slowest. Any schedule works for m times their mean.
    const double m = static_cast<double>(MicroBatches(s, model_.job().global_batch));
    const double slowest = (e.compute + e.tensor + e.context + e.expert).count() / m;
    const double mean = (slowest + e.bubble.count()) / static_cast<double>(s.pp);
    return m * mean + e.overhead.count();
  }
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
    if (root.level >= 4) return root.strategy;
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

}  // namespace weft::planner
