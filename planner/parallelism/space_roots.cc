// The roots of the space: degrees, modes, experts and micro-batches; or the one strategy that is fixed.
#include <algorithm>

#include "planner/parallelism/data_parallel.h"
#include "planner/parallelism/space.h"
#include "planner/parallelism/tensor_grid.h"

namespace weft::planner {
namespace {

constexpr int64_t kLeastTokens = 512;  // of a sequence on one context-parallel rank

}  // namespace

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
      if (mode == TensorMode::k25D && (depth == 1 || depth == s.tp)) continue;
      if (!GridSide(mode, s.tp, depth)) continue;
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
      for (Node node : nodes) {
        node.strategy.micro_batch = micro_batch;
        node.strategy.sequence_parallel = sequence_parallel;
        if (!model_.IsLegal(node.strategy)) continue;
        node.passes = CountPasses(node.strategy);
        if (node.passes > 0) out.push_back(node);
      }
    }
  }
}

}  // namespace weft::planner
