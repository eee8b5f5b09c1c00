#include "planner/parallelism/tensor_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/parallelism/collective_time.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;

std::optional<int64_t> Root(int64_t n, int power) {
  for (int64_t q = 1; q <= n; ++q) {
    const int64_t value = power == 2 ? q * q : q * q * q;
    if (value == n) return q;
    if (value > n) break;
  }
  return std::nullopt;
}

/// The grid of one product as one rank sees it: local block of the GEMM, number of steps it comes in.
struct Local {
  double rows, columns, depth, steps;
};

Local LocalOf(TensorMode mode, double q, double z, const GridProduct& p) {
  if (mode == TensorMode::k3D) return {p.tokens / q, p.out / q, p.in / q, 1};
  const double rows = p.tokens / q / (mode == TensorMode::k25D ? z : 1);
  return {rows, p.out / q, p.in / q, q};
}

/// What one product communicates. With double buffers one panel travels while the one before is multiplied; every call's latency is
/// seen.
class GridCommunication {
 public:
  GridCommunication(LayerTime& layer, const CalibratedHardware& m, const LayerKey& key, double q, BitsPerSecond rate,
                    Seconds latency)
      : layer_(layer), m_(m), key_(key), q_(q), rate_(rate), latency_(latency) {}

  void Add(const GridProduct& p) const {
    const auto ranks = static_cast<int64_t>(q_);
    const double z = static_cast<double>(key_.tensor_depth), side = q_ * q_;
    const FractionalBytes x = m_.element * p.tokens * p.in / side, weight = m_.element * (p.in * p.out + p.bias) / side;
    if (key_.tensor_mode == TensorMode::k3D) return AddCube(x, weight, m_.element * p.tokens * p.out / side);
    for (const OperationPass pass : {OperationPass::kForward, OperationPass::kData}) {
      const double twice = pass == OperationPass::kForward ? 1 : 2;
      // Every rank of a row, or of a column, broadcasts its block in turn; backward it also gets the sum that is its own.
      Put("2d input panels", OperationKind::kBroadcast, pass, {ranks, 1}, twice * q_, x / z, twice * q_, "the panel before");
      Put("2d weight panels", OperationKind::kBroadcast, pass, {ranks, ranks}, twice * q_, weight, twice * q_, "the panel before");
    }
    const Group depth{key_.tensor_depth, ranks * ranks};
    if (depth.size > 1) Put("2.5d depth", OperationKind::kAllReduce, OperationPass::kData, depth, 1, weight, 0, "backward");
  }

 private:
  /// Backward the outputs' gradients are gathered, and those of inputs and matrices scattered.
  void AddCube(FractionalBytes x, FractionalBytes weight, FractionalBytes y) const {
    using enum OperationKind;
    const auto ranks = static_cast<int64_t>(q_);
    const Group inputs{ranks, 1}, matrices{ranks, ranks}, outputs{ranks, ranks * ranks};
    Put("3d inputs", kAllGather, OperationPass::kForward, inputs, 1, x, 1, "partly");
    Put("3d weights", kAllGather, OperationPass::kForward, matrices, 1, weight, 1, "partly");
    Put("3d outputs", kReduceScatter, OperationPass::kForward, outputs, 1, y, 1, "partly");
    Put("3d output gradients", kAllGather, OperationPass::kData, outputs, 1, y, 1, "partly");
    Put("3d input gradients", kReduceScatter, OperationPass::kData, inputs, 1, x, 1, "partly");
    Put("3d weight gradients", kReduceScatter, OperationPass::kData, matrices, 1, weight, 1, "partly");
  }

  void Put(std::string_view what, OperationKind kind, OperationPass pass, const Group& group, double calls, FractionalBytes bytes,
           double waits, std::string_view behind) const {
    const double n = static_cast<double>(group.size);
    const FractionalBytes received = calls * (kind == OperationKind::kAllReduce ? 2 : 1) * (n - 1) / n * bytes;
    layer_.Communicate({.what = what, .kind = kind, .pass = pass, .calls = calls,
                        .seconds = (received / rate_ + waits * latency_).count(),
                        .exposed = (received / rate_ * (1 - m_.tensor_hidden) + waits * latency_).count(),
                        .communicator = CommunicatorKind::kTensor, .group = group, .bytes = bytes.count(),
                        .algorithm = "ring", .hides_behind = behind});
  }

  LayerTime& layer_;
  const CalibratedHardware& m_;
  const LayerKey& key_;
  double q_;
  BitsPerSecond rate_;
  Seconds latency_;
};

}  // namespace

std::optional<int64_t> GridSide(TensorMode mode, int64_t ranks, int64_t depth) {
  switch (mode) {
    case TensorMode::k1D: return ranks;
    case TensorMode::k2D: return Root(ranks, 2);
    case TensorMode::k25D: return depth < 1 || ranks % depth != 0 ? std::nullopt : Root(ranks / depth, 2);
    case TensorMode::k3D: return Root(ranks, 3);
  }
  return std::nullopt;
}

RankGrid GridOf(TensorMode mode, int64_t ranks, int64_t depth) {
  if (mode == TensorMode::k1D || ranks == 1) return {};
  return {.side = GridSide(mode, ranks, depth).value_or(1), .depth = depth, .cube = mode == TensorMode::k3D};
}

RankGrid GridOf(const Strategy& s) { return GridOf(s.tensor_mode, s.tp, s.tensor_depth); }

void AddGridNorm(std::vector<Operation>* list, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key) {
  const RankGrid grid = GridOf(key.tensor_mode, key.tp, key.tensor_depth);
  const int64_t q = grid.side;
  const double each = job.model.rms_norm ? 1 : 2, width = static_cast<double>(job.model.hidden) / static_cast<double>(q);
  const double tokens = static_cast<double>(key.micro_batch * job.sequence) / static_cast<double>(key.cp * grid.batches());
  const FractionalBytes parameters = m.element * each * width, sums(4 * each * tokens);
  const Group same_rows{q, grid.cube ? q * q : 1}, same_columns = grid.cube ? Group{q * q, 1} : Group{q, q};
  const auto put = [&](std::string_view what, OperationKind kind, OperationPass pass, const Group& group, FractionalBytes bytes) {
    const bool all = kind == OperationKind::kAllReduce;
    const Seconds seconds = all ? AllReduceTime(m.network, group, bytes) : GatherTime(m.network, group, bytes);
    list->push_back({.what = what, .kind = kind, .pass = pass, .calls = 1, .seconds = seconds.count(), .exposed = seconds.count(),
                     .communicator = CommunicatorKind::kTensor, .group = group, .bytes = bytes.count(), .algorithm = "ring"});
  };
  put("norm parameters", OperationKind::kAllGather, OperationPass::kForward, same_columns, parameters);
  put("norms", OperationKind::kAllReduce, OperationPass::kForward, same_rows, sums);
  put("norms", OperationKind::kAllReduce, OperationPass::kData, same_rows, sums);
  put("norm parameters", OperationKind::kReduceScatter, OperationPass::kData, same_columns, parameters);
  if (grid.depth == 1) return;
  const FractionalBytes own = parameters / static_cast<double>(q);
  put("norm parameters", OperationKind::kAllReduce, OperationPass::kData, {grid.depth, q * q}, own);
}

void AddGridLinears(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key) {
  const ModelSpec& model = job.model;
  const double tokens = static_cast<double>(key.micro_batch * job.sequence) / static_cast<double>(key.cp);
  const double h = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn_hidden);
  const double heads = static_cast<double>(model.heads * model.head_dim);
  const double kv = static_cast<double>(model.kv_heads * model.head_dim);
  const double inner = model.gated_mlp ? 2 * f : f;
  const bool out_bias = model.attention_bias && model.attention_output_bias;
  const std::array products = {GridProduct{tokens, h, heads + 2 * kv, model.attention_bias ? heads + 2 * kv : 0},
                               GridProduct{tokens, heads, h, out_bias ? h : 0},
                               GridProduct{tokens, h, inner, model.mlp_bias ? inner : 0},
                               GridProduct{tokens, f, h, model.mlp_bias ? h : 0}};
  const double q = static_cast<double>(*GridSide(key.tensor_mode, key.tp, key.tensor_depth));
  const double z = static_cast<double>(key.tensor_depth);
  const bool inside = key.tp <= m.network.gpus_per_node;
  const Group across{static_cast<int64_t>(q), std::max(m.network.gpus_per_node, static_cast<int64_t>(q))};
  const BitsPerSecond rate(8 * (inside ? m.network.intra_rate : SendRate(m.network, across)));
  const Seconds latency(inside ? m.network.intra_latency : m.network.nic_latency);
  const FractionalBytes element = m.narrow ? 1_B : m.element;
  const GridCommunication communication(layer, m, key, q, rate, latency);
  for (const GridProduct& p : products) {
    const Local b = LocalOf(key.tensor_mode, q, z, p);
    const double step = b.depth / b.steps * (key.tensor_mode == TensorMode::k3D ? 1 : q);  // a panel is in/q wide
    const auto gemm = [&](double rows, double columns, double depth, FractionalBytes out) {
      return b.steps * GemmTime(m, m.gemm_rate, {rows, columns, depth}, element, out);
    };
    layer.forward.compute += gemm(b.rows, b.columns, step, m.element);
    layer.backward_data.compute += gemm(b.rows, step, b.columns, m.element);
    layer.backward_weight.compute += gemm(step, b.columns, b.rows, 8_B);
    for (PassTime* pass : {&layer.forward, &layer.backward_data, &layer.backward_weight}) {
      pass->flops += Flops(2 * p.tokens * p.in * p.out / static_cast<double>(key.tp));
    }
    communication.Add(p);
  }
  std::vector<Operation> norm;
  if (GridOf(key.tensor_mode, key.tp, key.tensor_depth).exists()) AddGridNorm(&norm, job, m, key);
  for (int i = 0; i < 2; ++i) {
    for (const Operation& o : norm) layer.Communicate(o);
  }
}

}  // namespace weft::planner::parallelism
