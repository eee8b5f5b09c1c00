#include "planner/parallelism/attention_time.h"

#include <algorithm>

namespace weft::planner {
namespace {

/// Forward, and backward as a multiple of the same parts.
struct Core {
  double forward = 0, backward = 0;
};

struct Sizes {
  double batch, heads, tokens, keys, query_width, value_width;
};

Sizes SizesOf(const JobSpec& job, const LayerKey& key) {
  const ModelSpec& model = job.model;
  const double t = static_cast<double>(key.tp), c = static_cast<double>(key.cp);
  const double heads = static_cast<double>(model.heads) / t;
  return {static_cast<double>(key.micro_batch), heads, static_cast<double>(job.sequence) / c,
          static_cast<double>(job.sequence), static_cast<double>(model.QueryWidth()) / t / heads,
          static_cast<double>(model.ValueWidth()) / t / heads};
}

Core Fused(const CalibratedHardware& m, const Sizes& s, const JobSpec& job, double t) {
  // Masked blocks are skipped: half of them, or all outside the window. Layers count as their mean.
  const double share = MeanAttendedShare(job.model, s.keys);
  const double work = s.batch * s.heads * s.tokens * s.keys * (s.query_width + s.value_width) * 2 * share;
  // Heads narrower than 128 fill the matrix units less.
  const double narrow = s.query_width < 96 ? 0.75 : 1;
  const double kv = static_cast<double>(job.model.kv_heads) / t * (s.query_width + s.value_width);
  const double traffic = m.element * s.batch * s.tokens * (s.heads * (s.query_width + s.value_width) + kv);
  const double forward = std::max(work / (m.flash_rate * narrow), traffic / m.memory_rate) + m.launch;
  const double backward = std::max(2.5 * work / (m.flash_rate * narrow * 0.85), 3 * traffic / m.memory_rate);
  return {forward, backward + 2 * m.launch};
}

Core Unfused(const CalibratedHardware& m, const Sizes& s, bool dropout) {
  const double pairs = s.batch * s.heads;
  const auto product = [&](double rows, double columns, double depth) {
    return GemmTime(m, m.gemm16_rate, {rows, columns, depth, pairs}, m.element, m.element);
  };
  const double scores = pairs * s.tokens * s.keys / m.memory_rate;
  // Scale, mask and softmax in one kernel: read, write. Dropout: read, write, mask.
  const double softmax = scores * 2 * m.element + m.launch;
  const double drop = dropout ? scores * (2 * m.element + 1) + m.launch : 0;
  Core core;
  core.forward = product(s.tokens, s.keys, s.query_width) + softmax + drop + product(s.tokens, s.value_width, s.keys);
  core.backward = product(s.tokens, s.keys, s.value_width) + product(s.keys, s.value_width, s.tokens) +
                  product(s.tokens, s.query_width, s.keys) + product(s.keys, s.query_width, s.tokens) +
                  scores * 3 * m.element + m.launch + drop;
  return core;
}

/// Exposed communication of cp in one forward; `block` is the whole core's time.
double ContextForward(const JobSpec& job, const CalibratedHardware& m, const LayerKey& key, double block) {
  const ModelSpec& model = job.model;
  const double t = static_cast<double>(key.tp), c = static_cast<double>(key.cp);
  const double tokens = static_cast<double>(key.micro_batch * job.sequence) / c;
  const double q = m.element * tokens * static_cast<double>(model.QueryWidth()) / t;
  const double kv = model.attention == Attention::kLatent
                        ? m.element * tokens * static_cast<double>(model.QueryWidth() + model.ValueWidth()) / t
                        : m.element * tokens * 2 * std::max(static_cast<double>(model.kv_heads) / t, 1.0) *
                              static_cast<double>(model.head_dim);
  const Group group{key.cp, key.tp};
  switch (key.context_mode) {
    case ContextMode::kRing: {
      const double step = RingStepTime(m.network, {key.cp, key.tp}, kv);
      return (c - 1) * std::max(0.0, step - block / c) + (c - 1) * m.interference * std::min(step, block / c);
    }
    case ContextMode::kAllGather: return GatherTime(m.network, group, kv * c);
    case ContextMode::kUlysses: return 2 * AllToAllTime(m.network, group, q) + AllToAllTime(m.network, group, kv);
  }
  return 0;
}

}  // namespace

void AddAttentionCore(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const SoftwareStack& stack,
                      const LayerKey& key) {
  const Sizes sizes = SizesOf(job, key);
  const bool keeps_scores = KeepsScores(job.model, stack);
  const Core core = keeps_scores ? Unfused(m, sizes, job.model.KeepsDropoutMasks())
                                 : Fused(m, sizes, job, static_cast<double>(key.tp));
  layer.core.compute = core.forward;
  layer.forward.compute += core.forward;
  layer.backward_data.compute += core.backward;
  if (key.cp == 1) return;
  const double context = ContextForward(job, m, key, core.forward);
  layer.forward.context += context;
  // Backward moves keys, values and their gradients: twice the bytes of the forward; all-gather reduces once and may
  // gather again.
  layer.backward_data.context += key.context_mode == ContextMode::kUlysses ? context : 2 * context;
}

}  // namespace weft::planner
