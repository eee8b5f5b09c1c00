#include "planner/parallelism/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/parallelism/divisors.h"
#include "planner/parallelism/legality.h"
#include "planner/parallelism/tensor_grid.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr int64_t kLeastTokens = 512;     // of a sequence on one context-parallel rank
constexpr int64_t kMostChunks = 16;       // per stage

/// Layers of the largest stage.
int64_t LayersPerStage(const ModelSpec& model, const Strategy& s) { return (model.layers + s.pp - 1) / s.pp; }

}  // namespace

StrategySpace::StrategySpace(const CostModel& model, const SpaceOptions& options)
    : model_(model),
      options_(options),
      description_(Describe(options.framework)),
      restricted_(!description_.rules.empty() || !description_.release_rules.empty()),
      gpus_(model.job().gpus) {
  // "recompute=full" is of all layers unless a number is given too.
  if (options_.fixed.contains("recompute")) options_.fixed.try_emplace("recompute_layers", -1);
  wires_ = options_.allow.low_precision || Fixed("gradient_wire");
  steps_ = options_.allow.local_steps || Fixed("local_steps");
  gossips_ = options_.allow.gossip || Fixed("data_sync");
  if (Fixed("local_steps")) local_steps_ = options_.fixed.at("local_steps");
  // No bucket is larger than what there is to exchange.
  const Bytes all(static_cast<int64_t>(model_.gradient_bytes() * static_cast<double>(ParameterCount(model_.job().model))));
  for (const Bytes bucket : description_.buckets) {
    if (Fixed("bucket_bytes") || (!buckets_.empty() && buckets_.back() == all)) break;
    buckets_.push_back(std::min(bucket, all));
  }
}

bool StrategySpace::Allowed(const Strategy& s, SearchStage decided) const {
  return !restricted_ || RunsPart(options_.framework, {.job = model_.job(), .cluster = model_.cluster(), .strategy = s}, decided);
}

Bytes StrategySpace::Bucket(const Strategy& s) const {
  const auto fixed = options_.fixed.find("bucket_bytes");
  if (fixed != options_.fixed.end()) return Bytes(fixed->second);
  return DefaultBucket(options_.framework, s, model_.gradient_bytes());
}

std::optional<Strategy> StrategySpace::TheOne() const {
  if (options_.fixed.size() < StrategyVariables().size()) return std::nullopt;
  Strategy s;
  for (const StrategyVariable& variable : StrategyVariables()) variable.set(s, options_.fixed.at(std::string(variable.name)));
  return s;
}

void StrategySpace::Roots(std::vector<Node>& out) const {
  const JobSpec& job = model_.job();
  if (const auto one = TheOne()) {
    const FrameworkQuestion question{.job = job, .cluster = model_.cluster(), .strategy = *one};
    if (model_.IsLegal(*one) && !WhyCannotRun(options_.framework, question)) out.push_back({.strategy = *one, .level = 4});
    return;
  }
  if (!Allowed(Strategy(), SearchStage::kJob)) return;
  for (const int64_t tp : Divisors(gpus_)) {
    if (!Keeps(options_.fixed, "tp", tp)) continue;
    for (const int64_t cp : Divisors(gpus_ / tp)) {
      if (cp > 1 && (job.sequence % (2 * cp) != 0 || job.sequence / cp < kLeastTokens)) break;
      if (!Keeps(options_.fixed, "cp", cp)) continue;
      Strategy s;
      s.tp = tp;
      s.cp = cp;
      const std::vector<Node> stages = Stages(s);
      if (!stages.empty()) AddExperts(s, stages, out);
    }
  }
}

/// The choices of pp and dp.
std::vector<StrategySpace::Node> StrategySpace::Stages(Strategy s) const {
  const int64_t rest = gpus_ / s.tp / s.cp;
  std::vector<Node> stages;
  for (const int64_t pp : Divisors(rest)) {
    s.pp = pp;
    s.dp = rest / pp;
    if (!Keeps(options_.fixed, "pp", pp) || !Keeps(options_.fixed, "dp", s.dp)) continue;
    if (model_.job().global_batch % s.dp != 0 || pp > model_.job().model.layers + 2) continue;
    stages.push_back({.strategy = s, .level = 1});
  }
  return stages;
}

void StrategySpace::AddExperts(Strategy s, const std::vector<Node>& stages, std::vector<Node>& out) const {
  const ModelSpec& model = model_.job().model;
  if (!model.IsMoe()) return AddModes(s, stages, out);
  for (const int64_t etp : {int64_t{1}, s.tp}) {
    for (const int64_t ep : Divisors(model.experts)) {
      s.ep = ep;
      s.etp = etp;
      if (Keeps(options_.fixed, "ep", ep) && Keeps(options_.fixed, "etp", etp)) AddModes(s, stages, out);
    }
    if (s.tp == 1) break;  // both are 1
  }
}

void StrategySpace::AddModes(const Strategy& s, const std::vector<Node>& stages, std::vector<Node>& out) const {
  std::vector<Strategy> grids = {s};
  for (const TensorMode mode : {TensorMode::k2D, TensorMode::k25D, TensorMode::k3D}) {
    if (s.tp == 1) break;
    for (const int64_t depth : mode == TensorMode::k25D ? Divisors(s.tp) : std::vector<int64_t>{1}) {
      if ((mode == TensorMode::k25D && (depth == 1 || depth == s.tp)) || !GridSide(mode, s.tp, depth)) continue;
      grids.push_back(s);
      grids.back().tensor_mode = mode;
      grids.back().tensor_depth = depth;
    }
  }
  for (Strategy& grid : grids) {
    if (!Keeps(options_.fixed, "tensor_mode", static_cast<int64_t>(grid.tensor_mode)) ||
        !Keeps(options_.fixed, "tensor_depth", grid.tensor_depth)) {
      continue;
    }
    for (const ContextMode mode : {ContextMode::kRing, ContextMode::kAllGather, ContextMode::kUlysses}) {
      if (s.cp == 1 && mode != ContextMode::kRing) break;
      grid.context_mode = mode;
      if (Keeps(options_.fixed, "context_mode", static_cast<int64_t>(mode))) AddBatches(grid, stages, out);
    }
  }
}

void StrategySpace::AddBatches(const Strategy& from, const std::vector<Node>& stages, std::vector<Node>& out) const {
  const JobSpec& job = model_.job();
  std::vector<Node> nodes;
  std::vector<Strategy> exchanges;
  for (const Node& stage : stages) {
    Node node = stage;
    node.strategy = from;
    node.strategy.pp = stage.strategy.pp;
    node.strategy.dp = stage.strategy.dp;
    node.strategy.bucket_bytes = Bucket(node.strategy);
    exchanges.clear();
    Exchanges(node.strategy, exchanges);
    const auto uniform = std::count_if(exchanges.begin(), exchanges.end(), [](const Strategy& exchange) {
      return exchange.sharding == Sharding::kUniform;
    });
    node.exchanges = static_cast<int32_t>(uniform);
    node.operators = static_cast<int32_t>(static_cast<int64_t>(exchanges.size()) - uniform);
    if (!exchanges.empty()) nodes.push_back(node);
  }
  // Stages vary fastest: roots that share a layer's costs lie together, so that these are computed once.
  for (const int64_t micro_batch : Divisors(job.global_batch)) {
    if (!Keeps(options_.fixed, "micro_batch", micro_batch)) continue;
    for (const bool sequence_parallel : {false, true}) {
      if (!Keeps(options_.fixed, "sequence_parallel", sequence_parallel ? 1 : 0)) continue;
      if (sequence_parallel && (from.tp == 1 || from.tensor_mode != TensorMode::k1D)) continue;
      for (Node& node : nodes) {
        if (job.global_batch / node.strategy.dp % micro_batch != 0) continue;  // most of them: IsLegal() would say so later
        node.strategy.micro_batch = micro_batch;
        node.strategy.sequence_parallel = sequence_parallel;
        if (!model_.IsLegal(node.strategy) || !Allowed(node.strategy, SearchStage::kDegrees)) continue;
        node.passes = CountPasses(node.strategy);
        if (node.passes > 0) out.push_back(node);
      }
    }
  }
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
      if (kept && Allowed(s, SearchStage::kSchedule)) use(s);
    }
  };
  if (s.pp == 1) return add(ScheduleKind::k1F1B, 1);
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kEager1F1B}) add(kind, 1);
  // With fewer micro-batches the warm-up of a zero-bubble schedule has nothing to fill it.
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

/// How many numbers of layers of a stage can be recomputed in full, short of all.
int32_t StrategySpace::CountPartial(const Strategy& s) const {
  const int64_t layers = model_.job().model.layers, most = LayersPerStage(model_.job().model, s);
  if (const auto fixed = options_.fixed.empty() ? options_.fixed.end() : options_.fixed.find("recompute_layers");
      fixed != options_.fixed.end()) {
    const int64_t wanted = fixed->second;
    return wanted >= 1 && wanted < most && RecomputesSome(options_.framework, layers, s, wanted) ? 1 : 0;
  }
  switch (description_.partial) {
    case PartialRecompute::kNone: return 0;
    case PartialRecompute::kAnyNumber: return static_cast<int32_t>(most - 1);
    case PartialRecompute::kPerChunk: return static_cast<int32_t>((most - 1) / s.vpp);
    case PartialRecompute::kEveryNth: break;
  }
  int32_t count = 0;
  for (int64_t n = 1; n < most; ++n) count += RecomputesSome(options_.framework, layers, s, n) ? 1 : 0;
  return count;
}

/// How many Recomputes() gives, without asking for each number of layers. No rule but RecomputesSome() knows the number.
int32_t StrategySpace::CountRecomputes(const Strategy& from) const {
  if (!restricted_ && options_.fixed.empty()) return 3 + CountPartial(from);
  Strategy s = from;
  int32_t count = 0;
  for (const Recompute kind : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (!Keeps(options_.fixed, "recompute", static_cast<int64_t>(kind))) continue;
    s.recompute = kind;
    if (!Allowed(s, SearchStage::kRecompute)) continue;
    if (Keeps(options_.fixed, "recompute_layers", -1)) ++count;
    if (kind == Recompute::kFull) count += CountPartial(s);
  }
  return count;
}

void StrategySpace::Recomputes(const Strategy& from, std::vector<Strategy>& out) const {
  Strategy s = from;
  const auto add = [&](Recompute kind, int64_t layers) {
    s.recompute = kind;
    s.recompute_layers = layers;
    if (Keeps(options_.fixed, "recompute", static_cast<int64_t>(kind)) &&
        Keeps(options_.fixed, "recompute_layers", layers) && Allowed(s, SearchStage::kRecompute)) {
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
        !Keeps(options_.fixed, "sharding", static_cast<int64_t>(s.sharding))) {
      return;
    }
    AddChanges(s, out);
  };
  s.sharding = Sharding::kUniform;
  if (replicas == 1) return add(0, 0, false, DataSync::kRing);
  const bool switches = model_.cluster().switch_sums;
  // What needs least memory first: then the question whether anything fits ends early.
  for (const int64_t stage : {3, 2, 1, 0}) {
    for (const int64_t group : groups) {
      if (stage == 0 && group != 0) break;
      for (const bool keep : {false, true}) {
        if (keep ? stage != 3 : stage == 3 && s.pp > 1) continue;
        add(stage, group, keep, DataSync::kRing);
        add(stage, group, keep, DataSync::kHierarchical);
        if (stage == 0) add(stage, group, keep, DataSync::kParameterServer);
        if (stage == 0 && switches) add(stage, group, keep, DataSync::kSwitch);
        if (stage == 0 && gossips_) add(stage, group, keep, DataSync::kGossip);
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

void StrategySpace::AddChanges(const Strategy& exchange, std::vector<Strategy>& out) const {
  const auto add = [&](const Strategy& s) {
    if (!Keeps(options_.fixed, "gradient_wire", static_cast<int64_t>(s.gradient_wire)) || !Keeps(options_.fixed, "local_steps", s.local_steps)) {
      return;
    }
    if (!ReplicasFit(model_.job().model, s) || !Allowed(s, SearchStage::kExchange)) return;
    if (buckets_.empty() || s.dp * s.cp == 1) return out.push_back(s);
    for (const Bytes bucket : buckets_) {
      out.push_back(s);
      out.back().bucket_bytes = bucket;
    }
  };
  if (!wires_ && !steps_) return add(exchange);
  for (const GradientWire wire : {GradientWire::kWhole, GradientWire::kBf16, GradientWire::kFp8}) {
    // What the program sends is no wider.
    if (wire != GradientWire::kWhole && (!wires_ || (wire == GradientWire::kBf16 && model_.gradient_bytes() <= 2))) continue;
    Strategy s = exchange;
    s.gradient_wire = wire;
    add(s);
    s.local_steps = local_steps_;
    if (steps_ && local_steps_ > 1) add(s);
  }
}

Result<TrainingChanges> ParseTrainingChanges(std::string_view text) {
  TrainingChanges changes;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    bool* change = word == "low_precision" ? &changes.low_precision
                   : word == "local_steps" ? &changes.local_steps
                   : word == "gossip"      ? &changes.gossip
                                           : nullptr;
    if (change == nullptr) {
      return Fail(Code::kInvalidArgument, fmt::format("allow \"{}\": expected low_precision, local_steps or gossip, several with commas", word));
    }
    *change = true;
  }
  return changes;
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

}  // namespace weft::planner::parallelism
