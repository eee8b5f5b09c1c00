// What can be a step program of weft-train (planner/parallelism/program/): the rules behind WhyNoProgram(), as a search asks them.
#include <fmt/format.h>

#include <algorithm>

#include "planner/parallelism/framework.h"
#include "planner/parallelism/tensor_grid.h"
#include "planner/parallelism/variables.h"
#include "planner/tasks/pipeline_order.h"
#include "planner/tasks/volume_slabs.h"

namespace weft::planner::frameworks {
namespace {

using Question = FrameworkQuestion;

constexpr std::string_view kSource = "runtime/, planner/parallelism/program/";

/// Of a transformer's own numerics; the sizes are the strategy's to divide. nullptr if it is executed.
const char* WhyNoTransformer(const ModelSpec& m) {
  const bool family =
      m.architecture == Architecture::kGpt2 || m.architecture == Architecture::kLlama || m.architecture == Architecture::kMixtral;
  if (!family || m.attention == Attention::kLatent) return "expected the gpt2, llama or mixtral family, or a 3D CNN";
  const RouterNumerics& router = m.numerics.router;
  if (m.IsMoe() && (router.jitter != 0 || !router.normalise_top_k || m.shared_experts > 0 || m.expert_mlp_bias || m.router_bias))
    return "expected experts as Mixtral has them, without noise, biases and shared ones";
  const bool plain = m.causal && m.norm_placement == NormPlacement::kPre && m.window_kind == AttentionWindow::kNone &&
                     !m.attention_sinks && !m.query_key_norm && m.head == HeadKind::kVocabulary && m.token_types == 0 &&
                     !m.embedding_norm;
  const RopeNumerics& rope = m.numerics.rope;
  const bool rotation = m.learned_positions || (rope.scaling == RopeScaling::kNone && rope.fraction == 1 && !rope.interleaved);
  const bool numerics = m.numerics.embedding_scale == 1 && m.numerics.attention_softcap == 0 && m.numerics.logit_softcap == 0 &&
                        m.numerics.attention_scale_width == 0 && !m.numerics.norm_weight_plus_one;
  if (!plain || !rotation || !numerics)
    return "expected causal attention over all positions, norms in front, plain rotary or learned positions";
  const Activation a = m.numerics.activation;
  const bool activation = m.gated_mlp ? a == Activation::kSilu : a == Activation::kGeluTanh || a == Activation::kGelu;
  if (!activation) return "expected SwiGLU, or a GELU without a gate";
  if (m.Rotates() && m.head_dim % 2 != 0) return "expected heads of an even width with rotary positions";
  return nullptr;
}

std::optional<std::string> WhyNoModel(const ModelSpec& m) {
  if (m.IsCnn()) return WhyNoVolumes(m.cnn_layers);
  const char* const why = WhyNoTransformer(m);
  return why == nullptr ? std::nullopt : std::optional<std::string>(why);
}

template <typename Value>
std::string Refused(std::string_view name, const Value& value, std::string_view expected) {
  return fmt::format("{}={}: not executed, expected {}", name, value, expected);
}

/// Of a micro-batch, on a context rank.
int64_t Tokens(const Question& q) { return q.strategy.micro_batch * q.job.sequence / q.strategy.cp; }
int64_t Replicas(const Question& q) { return q.strategy.dp * q.strategy.cp; }
bool IsMoe(const Question& q) { return q.job.model.IsMoe(); }
bool IsCnn(const Question& q) { return q.job.model.IsCnn(); }

int64_t QkvColumns(const ModelSpec& m) { return (m.heads + 2 * m.kv_heads) * m.head_dim; }
/// Whether a grid of tensor ranks has two and more on a side, and cuts matrices and vectors in whole pieces.
bool FitsGrid(const Question& q) {
  const RankGrid grid = GridOf(q.strategy);
  const ModelSpec& m = q.job.model;
  if (!grid.exists()) return false;
  const int64_t ways = m.gated_mlp ? 2 : 1;
  const auto whole = [&](int64_t n) { return n % grid.pieces() == 0; };
  return whole(m.hidden) && whole(QkvColumns(m)) && whole(ways * m.ffn_hidden) && m.ffn_hidden % grid.side == 0;
}

constexpr FrameworkRule kRules[] = {
    {"model", [](const Question& q) { return WhyNoModel(q.job.model).has_value(); },
     [](const Question& q) { return fmt::format("model {}: {}", q.job.model.name, *WhyNoModel(q.job.model)); }, kSource,
     SearchStage::kJob},
    {"precision", [](const Question& q) { return q.job.precision != Precision::kFp32; },
     [](const Question& q) { return fmt::format("precision {}: not executed, expected fp32", PrecisionName(q.job.precision)); }, kSource,
     SearchStage::kJob},
    {"context", [](const Question& q) { return q.strategy.cp > 1 && q.job.sequence % (2 * q.strategy.cp) != 0; },
     [](const Question& q) {
       return fmt::format("cp={}: does not cut a sequence of {} in two equal pieces for each rank", q.strategy.cp, q.job.sequence);
     },
     kSource},
    {"context-heads",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return s.cp > 1 && s.context_mode == ContextMode::kUlysses && q.job.model.kv_heads % (s.cp * s.tp) != 0;
     },
     [](const Question& q) {
       return fmt::format("cp={}: with tp={} does not divide the {} key/value heads, as ulysses needs", q.strategy.cp, q.strategy.tp,
                          q.job.model.kv_heads);
     },
     kSource},
    {"grid-context", [](const Question& q) { return q.strategy.tensor_mode != TensorMode::k1D && q.strategy.cp > 1; },
     [](const Question& q) {
       return Refused("cp", q.strategy.cp, fmt::format("1 with tensor_mode={}", TensorModeName(q.strategy.tensor_mode)));
     },
     kSource},
    {"grid-pieces", [](const Question& q) { return q.strategy.tensor_mode != TensorMode::k1D && !FitsGrid(q); },
     [](const Question& q) {
       const Strategy& s = q.strategy;
       const ModelSpec& m = q.job.model;
       return fmt::format(
           "tensor_mode={}: not executed with tp={} and tensor_depth={}, expected a side of 2 and more whose pieces divide width {}, "
           "inner width {} and {} columns of queries, keys and values",
           TensorModeName(s.tensor_mode), s.tp, s.tensor_depth, m.hidden, m.ffn_hidden, QkvColumns(m));
     },
     kSource},
    {"tensor-heads",
     [](const Question& q) { return q.strategy.tensor_mode == TensorMode::k1D && q.job.model.kv_heads % q.strategy.tp != 0; },
     [](const Question& q) {
       return fmt::format("tp={}: does not divide {} key/value heads", q.strategy.tp, q.job.model.kv_heads);
     },
     kSource},
    {"tensor-width",
     [](const Question& q) { return q.job.model.vocab % q.strategy.tp != 0 || q.job.model.hidden % q.strategy.tp != 0; },
     [](const Question& q) {
       return fmt::format("tp={}: does not divide vocabulary {} and width {}", q.strategy.tp, q.job.model.vocab, q.job.model.hidden);
     },
     kSource},
    {"tensor-tokens", [](const Question& q) { return !IsCnn(q) && Tokens(q) % q.strategy.tp != 0; },
     [](const Question& q) { return fmt::format("tp={}: does not divide a micro-batch's {} tokens", q.strategy.tp, Tokens(q)); }, kSource},
    {"slabs", [](const Question& q) { return IsCnn(q) && WhyNoSlabs(q.job.model.cnn_layers, q.strategy.tp).has_value(); },
     [](const Question& q) {
       return fmt::format("tp={}: {}", q.strategy.tp, *WhyNoSlabs(q.job.model.cnn_layers, q.strategy.tp));
     },
     kSource},
    {"cnn-stages", [](const Question& q) { return IsCnn(q) && (q.strategy.pp > 1 || q.strategy.etp > 1); },
     [](const Question& q) {
       return fmt::format("pp={} etp={}: not executed, expected 1 of a 3D CNN", q.strategy.pp, q.strategy.etp);
     },
     kSource},
    {"cnn-schedule", [](const Question& q) { return IsCnn(q) && SplitsBackward(q.strategy.schedule); },
     [](const Question& q) {
       return Refused("schedule", ScheduleName(q.strategy.schedule), "1f1b or gpipe of a 3D CNN");
     },
     kSource, SearchStage::kSchedule},
    {"cnn-recompute", [](const Question& q) { return IsCnn(q) && q.strategy.recompute != Recompute::kNone; },
     [](const Question& q) { return Refused("recompute", RecomputeName(q.strategy.recompute), "none of a 3D CNN"); }, kSource,
     SearchStage::kRecompute},
    // The price of stages 2 and 3, and of shard groups, leaves the slabs out of those that share.
    {"slab-shards",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return IsCnn(q) && s.tp > 1 && (s.zero_stage > 1 || s.shard_group > 0);
     },
     [](const Question& q) {
       return fmt::format(
           "zero_stage={} shard_group={}: not executed with tp={} slabs of a sample, expected zero_stage at most 1, no groups",
           q.strategy.zero_stage, q.strategy.shard_group, q.strategy.tp);
     },
     kSource, SearchStage::kExchange},
    {"expert-tokens",
     [](const Question& q) {
       const int64_t tokens = Tokens(q), tp = q.strategy.tp;
       return IsMoe(q) && tokens % tp == 0 && tokens / tp * q.job.model.experts_per_token % q.job.model.experts != 0;
     },
     [](const Question& q) {
       return fmt::format("ep={}: {} choices of a tensor rank's tokens, expected a multiple of {} experts", q.strategy.ep,
                          Tokens(q) * q.job.model.experts_per_token / q.strategy.tp, q.job.model.experts);
     },
     kSource},
    {"order",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return !CheckOrder(s.schedule, s.pp, MicroBatches(s, q.job.global_batch), s.vpp);
     },
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return CheckOrder(s.schedule, s.pp, MicroBatches(s, q.job.global_batch), s.vpp).error().message();
     },
     kSource, SearchStage::kSchedule},
    {"switches", [](const Question& q) { return q.strategy.data_sync == DataSync::kSwitch; },
     [](const Question& q) { return Refused("data_sync", DataSyncName(q.strategy.data_sync), "one that the ranks make"); }, kSource,
     SearchStage::kExchange},
    {"gossip-steps", [](const Question& q) { return q.strategy.data_sync == DataSync::kGossip && q.strategy.local_steps > 1; },
     [](const Question& q) { return Refused("local_steps", q.strategy.local_steps, "1 with data_sync=gossip"); }, kSource,
     SearchStage::kExchange},
    {"narrow-gradients",
     [](const Question& q) {
       return q.strategy.gradient_wire != GradientWire::kWhole && (q.strategy.shard_group != 0 || ReplicasDiffer(q.strategy));
     },
     [](const Question& q) {
       return Refused("gradient_wire", GradientWireName(q.strategy.gradient_wire),
                      "whole with shard groups, sums in levels, and replicas that differ");
     },
     kSource, SearchStage::kExchange},
    {"shard-group",
     [](const Question& q) { return q.strategy.zero_stage > 0 && q.strategy.shard_group == 1 && Replicas(q) > 1; },
     [](const Question& q) { return Refused("shard_group", q.strategy.shard_group, "at least 2, or zero_stage=0"); }, kSource,
     SearchStage::kExchange},
    {"grid-sharding",
     [](const Question& q) {
       return q.strategy.tensor_mode != TensorMode::k1D && q.strategy.sharding == Sharding::kOperator;
     },
     [](const Question& q) {
       return Refused("sharding", ShardingName(q.strategy.sharding),
                      fmt::format("uniform with tensor_mode={}", TensorModeName(q.strategy.tensor_mode)));
     },
     kSource, SearchStage::kExchange},
    {"expert-sharding", [](const Question& q) { return IsMoe(q) && q.strategy.sharding == Sharding::kOperator; },
     [](const Question& q) { return Refused("sharding", ShardingName(q.strategy.sharding), "uniform with experts"); }, kSource,
     SearchStage::kExchange},
    // The replicas of experts are others than those of the rest: a ring of them sums whole gradients in every step.
    {"expert-exchange",
     [](const Question& q) {
       return IsMoe(q) && q.strategy.data_sync != DataSync::kRing && q.strategy.data_sync != DataSync::kSwitch;
     },
     [](const Question& q) { return Refused("data_sync", DataSyncName(q.strategy.data_sync), "ring with experts"); }, kSource,
     SearchStage::kExchange},
    {"expert-gradients", [](const Question& q) { return IsMoe(q) && q.strategy.gradient_wire != GradientWire::kWhole; },
     [](const Question& q) { return Refused("gradient_wire", GradientWireName(q.strategy.gradient_wire), "whole with experts"); },
     kSource, SearchStage::kExchange},
    {"expert-steps", [](const Question& q) { return IsMoe(q) && q.strategy.local_steps != 1; },
     [](const Question& q) { return Refused("local_steps", q.strategy.local_steps, "1 with experts"); }, kSource,
     SearchStage::kExchange},
    {"expert-shards",
     [](const Question& q) {
       const int64_t group = q.strategy.shard_group;
       return IsMoe(q) && group > 1 && group != Replicas(q);
     },
     [](const Question& q) { return Refused("shard_group", q.strategy.shard_group, "0, all replicas, with experts"); }, kSource,
     SearchStage::kExchange},
    // Their shards would be of other ranks than those that sum them.
    {"expert-optimizer",
     [](const Question& q) { return IsMoe(q) && q.strategy.zero_stage >= 1 && ExpertDp(q.strategy) > Replicas(q); },
     [](const Question& q) {
       return fmt::format("zero_stage={}: not executed with ep={} and etp={}, expected together at least tp={}", q.strategy.zero_stage,
                          q.strategy.ep, q.strategy.etp, q.strategy.tp);
     },
     kSource, SearchStage::kExchange},
};

}  // namespace

std::span<const FrameworkRule> ProgramRules() { return kRules; }

}  // namespace weft::planner::frameworks
