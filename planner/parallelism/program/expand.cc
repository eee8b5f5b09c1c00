#include "planner/parallelism/program/expand.h"

#include <fmt/format.h>

#include "planner/parallelism/legality.h"
#include "planner/parallelism/program/stage_program.h"
#include "planner/parallelism/variables.h"

namespace weft::planner::inline parallelism {
namespace {

/// Of the model's own numerics; the sizes are the strategy's to divide.
std::optional<std::string> WhyNoModel(const ModelSpec& m) {
  const bool family =
      m.architecture == Architecture::kGpt2 || m.architecture == Architecture::kLlama || m.architecture == Architecture::kMixtral;
  if (!family || m.attention == Attention::kLatent)
    return fmt::format("model {}: expected the gpt2, llama or mixtral family", m.name);
  const RouterNumerics& router = m.numerics.router;
  if (m.IsMoe() && (router.jitter != 0 || !router.normalise_top_k || m.shared_experts > 0 || m.expert_mlp_bias || m.router_bias))
    return fmt::format("model {}: expected experts as Mixtral has them, without noise, biases and shared ones", m.name);
  const bool plain = m.causal && m.norm_placement == NormPlacement::kPre && m.window_kind == AttentionWindow::kNone &&
                     !m.attention_sinks && !m.query_key_norm && m.head == HeadKind::kVocabulary && m.token_types == 0 &&
                     !m.embedding_norm;
  const RopeNumerics& rope = m.numerics.rope;
  const bool rotation = m.learned_positions || (rope.scaling == RopeScaling::kNone && rope.fraction == 1 && !rope.interleaved);
  const bool numerics = m.numerics.embedding_scale == 1 && m.numerics.attention_softcap == 0 && m.numerics.logit_softcap == 0 &&
                        m.numerics.attention_scale_width == 0 && !m.numerics.norm_weight_plus_one;
  if (!plain || !rotation || !numerics) {
    return fmt::format("model {}: expected causal attention over all positions, norms in front, plain rotary or learned positions",
                       m.name);
  }
  const Activation a = m.numerics.activation;
  const bool activation = m.gated_mlp ? a == Activation::kSilu : a == Activation::kGeluTanh || a == Activation::kGelu;
  if (!activation) return fmt::format("model {}: expected SwiGLU, or a GELU without a gate", m.name);
  if (m.Rotates() && m.head_dim % 2 != 0)
    return fmt::format("model {}: heads of width {}, expected an even one with rotary positions", m.name, m.head_dim);
  return std::nullopt;
}

std::optional<std::string> WhyNoExperts(const JobSpec& job, const Strategy& s) {
  const ModelSpec& m = job.model;
  if (s.zero_stage >= 2) return fmt::format("zero_stage={}: not executed, expected 0 or 1 with experts", s.zero_stage);
  // Their shards would be of other ranks than those that sum them.
  if (s.zero_stage == 1 && ExpertDp(s) > s.dp * s.cp) {
    return fmt::format("zero_stage=1: not executed with ep={} and etp={}, expected together at least tp={}", s.ep, s.etp, s.tp);
  }
  const int64_t tokens = s.micro_batch * job.sequence / s.cp;
  if (tokens % s.tp != 0 || tokens / s.tp * m.experts_per_token % m.experts != 0) {
    return fmt::format("ep={}: {} choices of a tensor rank's tokens, expected a multiple of {} experts", s.ep,
                       tokens * m.experts_per_token / s.tp, m.experts);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> WhyNoProgram(const JobSpec& job, const Strategy& s) {
  const ModelSpec& m = job.model;
  if (auto why = WhyNoModel(m)) return why;
  if (job.precision != Precision::kFp32)
    return fmt::format("precision {}: not executed, expected fp32", PrecisionName(job.precision));
  const auto refuse = [](std::string_view name, const auto& value, std::string_view expected) {
    return fmt::format("{}={}: not executed, expected {}", name, value, expected);
  };
  if (s.cp > 1 && job.sequence % (2 * s.cp) != 0)
    return fmt::format("cp={}: does not cut a sequence of {} in two equal pieces for each rank", s.cp, job.sequence);
  if (s.cp > 1 && s.context_mode == ContextMode::kUlysses && m.kv_heads % (s.cp * s.tp) != 0)
    return fmt::format("cp={}: with tp={} does not divide the {} key/value heads, as ulysses needs", s.cp, s.tp, m.kv_heads);
  if (m.IsMoe()) {
    if (auto why = WhyNoExperts(job, s)) return why;
  }
  if (s.tensor_mode != TensorMode::k1D) return refuse("tensor_mode", TensorModeName(s.tensor_mode), "1d");
  if (s.data_sync != DataSync::kRing) return refuse("data_sync", DataSyncName(s.data_sync), "ring");
  if (s.sharding != Sharding::kUniform) return refuse("sharding", ShardingName(s.sharding), "uniform");
  if (s.gradient_wire != GradientWire::kWhole) return refuse("gradient_wire", GradientWireName(s.gradient_wire), "whole");
  if (s.local_steps != 1) return refuse("local_steps", s.local_steps, "1");
  if (s.shard_group != 0 && s.shard_group != s.dp * s.cp) return refuse("shard_group", s.shard_group, "0, all replicas");
  if (s.sequence_parallel && s.zero_stage >= 2) return refuse("zero_stage", s.zero_stage, "0 or 1 with sequence_parallel");
  if (m.kv_heads % s.tp != 0) return fmt::format("tp={}: does not divide {} key/value heads", s.tp, m.kv_heads);
  if (m.vocab % s.tp != 0 || m.hidden % s.tp != 0)
    return fmt::format("tp={}: does not divide vocabulary {} and width {}", s.tp, m.vocab, m.hidden);
  const int64_t tokens = s.micro_batch * job.sequence / s.cp;
  if (tokens % s.tp != 0) return fmt::format("tp={}: does not divide a micro-batch's {} tokens", s.tp, tokens);
  if (Status order = CheckOrder(s.schedule, s.pp, MicroBatches(s, job.global_batch), s.vpp); !order) return order.error().message();
  return std::nullopt;
}

Result<StepProgram> ExpandProgram(const JobSpec& job, const Strategy& s, ElementType type) {
  if (const auto why = WhyIllegal(job, GpuCount(s), s)) return Fail(Code::kInvalidArgument, *why);
  if (const auto why = WhyNoProgram(job, s)) return Fail(Code::kInvalidArgument, *why);
  const int64_t last_stage = PlaceOf(s.schedule, s.pp * s.vpp - 1, s.pp).stage;
  const bool tied_apart = job.model.tied_embeddings && last_stage != 0;
  const ModelSpec& m = job.model;
  ProgramGroups groups = GroupsOf(s, tied_apart, m.IsMoe());
  const ProgramFrame frame{.job = job, .strategy = s, .groups = groups, .type = type, .tied_apart = tied_apart};
  StepProgram program{.model = m.name,
                      .strategy = DescribeStrategy(s),
                      .layers = m.layers,
                      .hidden = m.hidden,
                      .heads = m.heads,
                      .kv_heads = m.kv_heads,
                      .head_dim = m.head_dim,
                      .ffn_hidden = m.ffn_hidden,
                      .vocab = m.vocab,
                      .type = type,
                      .sequence = job.sequence,
                      .global_batch = job.global_batch,
                      .micro_batch = s.micro_batch,
                      .replicas = s.dp,
                      .tensor = s.tp,
                      .context = s.cp,
                      .stages = s.pp,
                      .chunks = s.vpp,
                      .experts = m.experts,
                      .experts_per_token = m.experts_per_token,
                      .expert_hidden = m.expert_ffn_hidden,
                      .expert_ranks = s.ep,
                      .expert_tensor = s.etp,
                      .schedule = s.schedule,
                      .communicators = {},
                      .classes = {},
                      .ranks = {}};
  for (int64_t stage = 0; stage < s.pp; ++stage) {
    program.classes.push_back(StageProgram(frame, stage).Make());
    int64_t instructions = 0;
    for (const RankClass& c : program.classes) instructions += static_cast<int64_t>(c.instructions.size());
    if (instructions > StepProgram::kMostInstructions) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: a program of more than {} instructions", program.strategy, StepProgram::kMostInstructions));
    }
  }
  program.communicators = std::move(groups.communicators);
  program.ranks = std::move(groups.ranks);
  WEFT_RETURN_IF_ERROR(CheckProgram(program));
  return program;
}

}  // namespace weft::planner::parallelism
