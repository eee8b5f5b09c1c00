#include "planner/parallelism/tensor_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace weft::planner {
namespace {

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

double GridForwardElements(TensorMode mode, int64_t ranks, int64_t depth, const GridProduct& p) {
  const double q = static_cast<double>(*GridSide(mode, ranks, depth)), z = static_cast<double>(depth);
  switch (mode) {
    case TensorMode::k1D: return (q - 1) / q * p.tokens * p.out;
    case TensorMode::k2D: return (q - 1) / (q * q) * (p.tokens * p.in + p.in * p.out);
    case TensorMode::k25D: return (q - 1) / (q * q) * (p.tokens * p.in / z + p.in * p.out);
    case TensorMode::k3D: return (q - 1) / (q * q * q) * (p.tokens * p.in + p.in * p.out + p.tokens * p.out);
  }
  return 0;
}

double GridElements(TensorMode mode, int64_t ranks, int64_t depth, const GridProduct& p) {
  const double forward = GridForwardElements(mode, ranks, depth, p);
  const double q = static_cast<double>(*GridSide(mode, ranks, depth)), z = static_cast<double>(depth);
  switch (mode) {
    case TensorMode::k1D: return 2 * forward;
    case TensorMode::k2D: return 3 * forward;
    case TensorMode::k25D: return 3 * forward + 2 * (z - 1) / z * p.in * p.out / (q * q);
    case TensorMode::k3D: return 2 * forward;
  }
  return 0;
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
  const double rate = inside ? m.network.intra_rate : SendRate(m.network, {static_cast<int64_t>(q), std::max(m.network.gpus_per_node, static_cast<int64_t>(q))});
  const double latency = inside ? m.network.intra_latency : m.network.nic_latency;
  const double bytes = m.narrow ? 1 : m.element;
  for (const GridProduct& p : products) {
    const Local b = LocalOf(key.tensor_mode, q, z, p);
    const double step = b.depth / b.steps * (key.tensor_mode == TensorMode::k3D ? 1 : q);  // a panel is in/q wide
    const auto gemm = [&](double rows, double columns, double depth, double out) {
      return b.steps * GemmTime(m, m.gemm_rate, {rows, columns, depth}, bytes, out);
    };
    layer.forward.compute += gemm(b.rows, b.columns, step, m.element);
    layer.backward_data.compute += gemm(b.rows, step, b.columns, m.element);
    layer.backward_weight.compute += gemm(step, b.columns, b.rows, 8);
    const double forward = GridForwardElements(key.tensor_mode, key.tp, key.tensor_depth, p) * m.element / rate;
    const double all = GridElements(key.tensor_mode, key.tp, key.tensor_depth, p) * m.element / rate;
    // Two collectives per step and pass; with double buffers a panel travels while the previous one is multiplied.
    const double waits = (key.tensor_mode == TensorMode::k3D ? 3 : 2 * q) * latency;
    layer.forward.tensor += forward * (1 - m.tensor_hidden) + waits;
    layer.backward_data.tensor += (all - forward) * (1 - m.tensor_hidden) + 2 * waits;
  }
  // Two norms: sums of two scalars per token over the q ranks of a row.
  const double norms = 2 * AllReduceTime(m.network, {static_cast<int64_t>(q), 1}, 2 * 4 * tokens / q);
  layer.forward.tensor += norms;
  layer.backward_data.tensor += norms;
}

}  // namespace weft::planner
