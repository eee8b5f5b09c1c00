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

/// Panels of one product. With double buffers one travels while the one before is multiplied; every call's latency is seen.
void AddGridCommunication(LayerTime& layer, const CalibratedHardware& m, const LayerKey& key, const GridProduct& p, double q,
                          BitsPerSecond rate, Seconds latency) {
  const double z = static_cast<double>(key.tensor_depth), side = q * q;
  const auto add = [&](std::string_view what, OperationKind kind, OperationPass pass, int64_t group, int64_t stride, double calls,
                       FractionalBytes bytes, double waits, std::string_view behind) {
    const double n = static_cast<double>(group);
    const FractionalBytes received = calls * (kind == OperationKind::kAllReduce ? 2 : 1) * (n - 1) / n * bytes;
    layer.Communicate({.what = what, .kind = kind, .pass = pass, .calls = calls,
                       .seconds = (received / rate + waits * latency).count(),
                       .exposed = (received / rate * (1 - m.tensor_hidden) + waits * latency).count(),
                       .communicator = CommunicatorKind::kTensor, .group = {group, stride}, .bytes = bytes.count(),
                       .algorithm = "ring", .hides_behind = behind});
  };
  const auto ranks = static_cast<int64_t>(q);
  const FractionalBytes x = m.element * p.tokens * p.in / side, weight = m.element * p.in * p.out / side;
  for (const OperationPass pass : {OperationPass::kForward, OperationPass::kData}) {
    const double twice = pass == OperationPass::kForward ? 1 : 2;
    if (key.tensor_mode == TensorMode::k3D) {
      add("3d inputs", OperationKind::kAllGather, pass, ranks, 1, 1, x, twice, "partly");
      add("3d weights", OperationKind::kAllGather, pass, ranks, ranks, 1, weight, twice, "partly");
      add("3d outputs", OperationKind::kReduceScatter, pass, ranks, ranks * ranks, 1, m.element * p.tokens * p.out / side, twice, "partly");
      continue;
    }
    // Every rank of a row, or of a column, broadcasts its block in turn.
    add("2d input panels", OperationKind::kBroadcast, pass, ranks, 1, twice * q, x / z, twice * q, "the panel before");
    add("2d weight panels", OperationKind::kBroadcast, pass, ranks, ranks, twice * q, weight, twice * q, "the panel before");
  }
  if (key.tensor_mode == TensorMode::k25D && key.tensor_depth > 1) {
    add("2.5d depth", OperationKind::kAllReduce, OperationPass::kData, key.tensor_depth, ranks * ranks, 1, weight, 0, "backward");
  }
}

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

void AddGridLinears(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key) {
  const ModelSpec& model = job.model;
  const double tokens = static_cast<double>(key.micro_batch * job.sequence) / static_cast<double>(key.cp);
  const double h = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn_hidden);
  const double heads = static_cast<double>(model.heads * model.head_dim);
  const double kv = static_cast<double>(model.kv_heads * model.head_dim);
  const std::array products = {GridProduct{tokens, h, heads + 2 * kv}, GridProduct{tokens, heads, h},
                               GridProduct{tokens, h, model.gated_mlp ? 2 * f : f}, GridProduct{tokens, f, h}};
  const double q = static_cast<double>(*GridSide(key.tensor_mode, key.tp, key.tensor_depth));
  const double z = static_cast<double>(key.tensor_depth);
  const bool inside = key.tp <= m.network.gpus_per_node;
  const Group across{static_cast<int64_t>(q), std::max(m.network.gpus_per_node, static_cast<int64_t>(q))};
  const BitsPerSecond rate(8 * (inside ? m.network.intra_rate : SendRate(m.network, across)));
  const Seconds latency(inside ? m.network.intra_latency : m.network.nic_latency);
  const FractionalBytes element = m.narrow ? 1_B : m.element;
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
    AddGridCommunication(layer, m, key, p, q, rate, latency);
  }
  // Two norms: sums of two scalars per token over the q ranks of a row.
  const Group row{static_cast<int64_t>(q), 1};
  const FractionalBytes sums(2 * 4 * tokens / q);
  const Seconds seconds = 2 * AllReduceTime(m.network, row, sums);
  for (const OperationPass pass : {OperationPass::kForward, OperationPass::kData}) {
    layer.Communicate({.what = "norms", .kind = OperationKind::kAllReduce, .pass = pass, .calls = 2, .seconds = seconds.count(),
                       .exposed = seconds.count(), .communicator = CommunicatorKind::kTensor, .group = row, .bytes = sums.count(),
                       .algorithm = "ring"});
  }
}

}  // namespace weft::planner::parallelism
