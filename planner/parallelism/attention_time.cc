#include "planner/parallelism/attention_time.h"

#include <algorithm>

#include "planner/parallelism/collective_time.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;

/// Forward, and backward as a multiple of the same parts.
struct Core {
  Seconds forward{0}, backward{0};
  Flops forward_flops, backward_flops;
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

/// What a fused core does, and what that takes apart from starting kernels.
struct FusedWork {
  Flops flops;
  FractionalBytes traffic;
  double narrow = 1;  ///< of the rate that long sequences of wide heads reach

  FusedWork(const CalibratedHardware& m, const FusedShape& s)
      : flops(s.batch * s.heads * s.tokens * s.keys * (s.query_width + s.value_width) * 2 * s.share),
        traffic(m.element * s.batch * s.tokens * (s.heads * (s.query_width + s.value_width) + s.key_values)),
        // Heads narrower than 128 fill the matrix units less; short rows of keys start and end often.
        narrow((s.query_width < 96 ? 0.75 : 1) * s.keys / (s.keys + m.flash_ramp)) {}
  Seconds Forward(const CalibratedHardware& m) const { return std::max(flops / (m.flash_rate * narrow), traffic / m.memory_rate); }
};

Core Fused(const CalibratedHardware& m, const Sizes& s, const JobSpec& job, double t) {
  // Masked blocks are skipped: half of them, or all outside the window. Layers count as their mean.
  const FusedWork work(m, {.batch = s.batch, .heads = s.heads, .tokens = s.tokens, .keys = s.keys, .query_width = s.query_width,
                           .value_width = s.value_width,
                           .key_values = static_cast<double>(job.model.kv_heads) / t * (s.query_width + s.value_width),
                           .share = MeanAttendedShare(job.model, s.keys)});
  const Seconds backward = std::max(2.5 * work.flops / (m.flash_rate * work.narrow * 0.85), 3 * work.traffic / m.memory_rate);
  // Backward computes the scores again.
  return {work.Forward(m) + m.launch, backward + 2 * m.launch, work.flops, 2.5 * work.flops};
}

Core Unfused(const CalibratedHardware& m, const Sizes& s, bool dropout) {
  const double pairs = s.batch * s.heads;
  const auto product = [&](double rows, double columns, double depth) {
    return GemmTime(m, m.gemm16_rate, {rows, columns, depth, pairs}, m.element, m.element);
  };
  const Seconds byte_each = FractionalBytes(pairs * s.tokens * s.keys) / m.memory_rate;  // to move one byte for each score
  const double element = m.element / 1_B;
  // Scale, mask and softmax in one kernel: read, write. Dropout: read, write, mask.
  const Seconds softmax = byte_each * 2 * element + m.launch;
  const Seconds drop = dropout ? byte_each * (2 * element + 1) + m.launch : Seconds(0);
  Core core;
  core.forward_flops = Flops(2 * pairs * s.tokens * s.keys * (s.query_width + s.value_width));
  core.backward_flops = 2 * core.forward_flops;
  core.forward = product(s.tokens, s.keys, s.query_width) + softmax + drop + product(s.tokens, s.value_width, s.keys);
  core.backward = product(s.tokens, s.keys, s.value_width) + product(s.keys, s.value_width, s.tokens) +
                  product(s.tokens, s.query_width, s.keys) + product(s.keys, s.query_width, s.tokens) +
                  byte_each * 3 * element + m.launch + drop;
  return core;
}

/// What the ranks of cp exchange; `block` is the whole core's time. Backward moves keys, values and their gradients: twice the bytes
/// of the forward pass; all-gather reduces once and may gather again.
void AddContextCommunication(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const LayerKey& key,
                             Seconds block) {
  const ModelSpec& model = job.model;
  const double t = static_cast<double>(key.tp), c = static_cast<double>(key.cp);
  const double tokens = static_cast<double>(key.micro_batch * job.sequence) / c;
  const FractionalBytes q = m.element * tokens * static_cast<double>(model.QueryWidth()) / t;
  const FractionalBytes kv = model.attention == Attention::kLatent
                        ? m.element * tokens * static_cast<double>(model.QueryWidth() + model.ValueWidth()) / t
                        : m.element * tokens * 2 * std::max(static_cast<double>(model.kv_heads) / t, 1.0) *
                              static_cast<double>(model.head_dim);
  const Group group{key.cp, key.tp};
  const auto add = [&](std::string_view what, OperationKind kind, OperationPass pass, double calls, FractionalBytes bytes,
                       Seconds seconds, Seconds exposed, std::string_view algorithm) {
    layer.Communicate({.what = what, .kind = kind, .pass = pass, .calls = calls, .seconds = (calls * seconds).count(),
                       .exposed = (calls * exposed).count(), .communicator = CommunicatorKind::kContext, .group = group,
                       .bytes = bytes.count(), .algorithm = algorithm,
                       .hides_behind = kind == OperationKind::kSendReceive ? "block attention" : ""});
  };
  for (const OperationPass pass : {OperationPass::kForward, OperationPass::kData}) {
    const bool forward = pass == OperationPass::kForward;
    switch (key.context_mode) {
      case ContextMode::kRing: {
        const Seconds step = RingStepTime(m.network, group, kv);
        const Seconds exposed = ExposedBehind(m, step, block / c);
        add("context ring", OperationKind::kSendReceive, pass, (forward ? 1 : 2) * (c - 1), kv, step, exposed, "send");
        break;
      }
      case ContextMode::kAllGather: {
        const Seconds gather = GatherTime(m.network, group, kv * c);
        add("context gathers", OperationKind::kAllGather, pass, 1, kv * c, gather, gather, "ring");
        if (!forward) add("context scatters", OperationKind::kReduceScatter, pass, 1, kv * c, gather, gather, "ring");
        break;
      }
      case ContextMode::kUlysses: {
        const Seconds queries = AllToAllTime(m.network, group, q), keys = AllToAllTime(m.network, group, kv);
        add("context queries", OperationKind::kAllToAll, pass, 2, q, queries, queries, "direct");
        add("context keys and values", OperationKind::kAllToAll, pass, 1, kv, keys, keys, "direct");
        break;
      }
    }
  }
}

}  // namespace

Seconds FusedForwardTime(const CalibratedHardware& hardware, const FusedShape& shape) {
  return FusedWork(hardware, shape).Forward(hardware) + hardware.launch;
}

void AddAttentionCore(LayerTime& layer, const JobSpec& job, const CalibratedHardware& m, const SoftwareStack& stack,
                      const LayerKey& key) {
  const Sizes sizes = SizesOf(job, key);
  const bool keeps_scores = KeepsScores(job.model, stack);
  const Core core = keeps_scores ? Unfused(m, sizes, job.model.KeepsDropoutMasks())
                                 : Fused(m, sizes, job, static_cast<double>(key.tp));
  layer.core.compute = core.forward;
  layer.forward.compute += core.forward;
  layer.backward_data.compute += core.backward;
  layer.core.flops = core.forward_flops;
  layer.forward.flops += core.forward_flops;
  layer.backward_data.flops += core.backward_flops;
  if (key.cp > 1) AddContextCommunication(layer, job, m, key, core.forward);
}

}  // namespace weft::planner::parallelism
