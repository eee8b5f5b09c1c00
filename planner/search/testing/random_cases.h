// Jobs and clusters that are small enough for every strategy to be priced, and all strategies of a space. For tests.
#pragma once

#include <random>
#include <vector>

#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/calibration.h"
#include "planner/parallelism/memory_risk.h"
#include "planner/parallelism/space.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline search {

/// A small model with random shape, dense or an MoE model; sizes small enough that all strategies can be priced.
inline JobSpec RandomJob(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> values) { return *(values.begin() + random() % values.size()); };
  JobSpec job;
  ModelSpec& model = job.model;
  model.name = "random";
  model.architecture = random() % 2 == 0 ? Architecture::kGpt2 : Architecture::kLlama;
  model.layers = pick({1, 2, 3, 4, 6});
  model.heads = pick({4, 8, 12});
  model.head_dim = pick({64, 128});
  model.hidden = model.heads * model.head_dim * pick({1, 2});
  model.kv_heads = pick({2, 4});
  model.attention = Attention::kGroupedQuery;
  model.ffn_hidden = 4 * model.hidden;
  model.gated_mlp = random() % 2 == 0;
  model.vocab = pick({8192, 50304});
  model.max_positions = 65536;
  if (random() % 4 == 0) {
    model.architecture = Architecture::kMixtral;
    model.experts = pick({4, 8});
    model.experts_per_token = 2;
    model.expert_ffn_hidden = 2 * model.hidden;
  }
  job.global_batch = pick({1, 2, 4, 6, 8});
  job.sequence = pick({512, 1024, 2048});
  return job;
}

/// The same of a family that weft-train trains.
inline JobSpec RandomTrainJob(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> values) { return *(values.begin() + random() % values.size()); };
  JobSpec job{.name = "j", .precision = Precision::kFp32};
  ModelSpec& m = job.model;
  m = {.name = "gpt", .architecture = Architecture::kGpt2, .layers = pick({1, 2, 3, 4, 6}), .heads = pick({4, 8}), .head_dim = 64};
  m.kv_heads = m.heads;
  m.hidden = m.heads * m.head_dim;
  m.ffn_hidden = 4 * m.hidden;
  m.vocab = 256;
  m.max_positions = 65536;
  const uint32_t family = random() % 4;
  if (family > 0) {
    m.name = "llama";
    m.architecture = Architecture::kLlama;
    m.kv_heads = pick({2, 4});
    m.attention = Attention::kGroupedQuery;
    m.gated_mlp = m.rms_norm = true;
    m.attention_bias = m.mlp_bias = m.learned_positions = m.tied_embeddings = false;
    m.numerics.activation = Activation::kSilu;
  }
  if (family == 3) {
    m.name = "mixtral";
    m.architecture = Architecture::kMixtral;
    m.experts = pick({4, 8});
    m.experts_per_token = 2;
    m.expert_ffn_hidden = m.ffn_hidden;
  }
  job.global_batch = pick({1, 2, 4, 6, 8});
  job.sequence = pick({30, 512, 1024, 2048});
  return job;
}

/// One to four nodes of one to four GPUs, one time in three under leaves that give less than their nodes ask for; from far too little
/// memory to plenty, and slow NICs or fast ones.
inline ClusterSpec RandomCluster(std::mt19937& random) {
  ClusterSpec cluster =
      FindClusterPreset(random() % 2 == 0 ? "dgx-a100" : "dgx-h100", int64_t{1} << (random() % 3)).value();
  cluster.gpus_per_node = int64_t{1} << (random() % 3);
  // What the allocator is asked for.
  const double asked = static_cast<double>(int64_t{1} << (26 + random() % 9));
  const double needed = (asked + Calibration().Get("memory", "context")) * MemoryFactor(kDefaultRisk);
  cluster.device.memory = Bytes(static_cast<int64_t>(needed));
  cluster.nic_rate = cluster.nic_rate * (random() % 2 == 0 ? 1 : 0.05);
  if (cluster.nodes > 1 && random() % 2 == 0) {
    const double share = 1.0 / static_cast<double>(int64_t{1} << (random() % 4));
    cluster.tiers = {{"leaf", cluster.nodes / 2, cluster.nic_rate * share}, {"spine", cluster.nodes, BitsPerSecond(0)}};
  }
  cluster.switch_sums = random() % 4 == 0;
  return cluster;
}

/// Every leaf of a space, in no order that anybody may rely on.
inline std::vector<Strategy> LeavesOf(const StrategySpace& space) {
  std::vector<StrategySpace::Node> open;
  std::vector<Strategy> leaves;
  space.Roots(open);
  while (!open.empty()) {
    const StrategySpace::Node node = open.back();
    open.pop_back();
    if (space.IsLeaf(node)) {
      leaves.push_back(node.strategy);
    } else {
      space.Children(node, open);
    }
  }
  return leaves;
}

/// Some leaves of the space of all strategies, each kind of tensor mode, context mode, exchange and schedule among them.
inline std::vector<Strategy> DrawLeaves(const CostModel& model, std::mt19937& random, size_t count, const SpaceOptions& options = {}) {
  const StrategySpace space(model, options);
  std::vector<Strategy> drawn;
  std::vector<StrategySpace::Node> roots;
  space.Roots(roots);
  if (roots.empty()) return drawn;
  for (size_t tries = 0; tries < 20 * count && drawn.size() < count; ++tries) {
    StrategySpace::Node node = roots[random() % roots.size()];
    while (!space.IsLeaf(node)) {
      std::vector<StrategySpace::Node> children;
      space.Children(node, children);
      if (children.empty()) break;
      node = children[random() % children.size()];
    }
    if (space.IsLeaf(node)) drawn.push_back(node.strategy);
  }
  return drawn;
}

}  // namespace weft::planner::search
