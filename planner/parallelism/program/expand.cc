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

template <typename Value>
std::string Refused(std::string_view name, const Value& value, std::string_view expected) {
  return fmt::format("{}={}: not executed, expected {}", name, value, expected);
}

/// Of operators that are cut: each slice is a tensor rank's share of its own.
std::optional<std::string> WhyNoSlices(const JobSpec& job, const Strategy& s, std::span<const StageOperators> operators) {
  const ModelSpec& m = job.model;
  const auto whole = [&](int64_t size, int64_t slices) { return size % (s.tp * slices) == 0; };
  if (static_cast<int64_t>(operators.size()) != s.pp)
    return fmt::format("sharding=osdp: decisions of {} stages, expected those of {}", operators.size(), s.pp);
  for (const StageOperators& stage : operators) {
    for (const OperatorRun& run : stage.runs) {
      const int64_t a = run.attention.slices, b = run.mlp.slices;
      if (s.sequence_parallel && (a > 1 || b > 1)) return "sharding=osdp: operators in slices with sequence_parallel: not executed";
      if (s.cp > 1 && a > 1)
        return fmt::format("sharding=osdp: attention in {} slices with cp={}: not executed, expected cp=1", a, s.cp);
      if (!whole(m.kv_heads, a) || !whole(m.hidden, std::max(a, b)) || !whole(m.ffn_hidden, b)) {
        return fmt::format(
            "sharding=osdp: attention in {} slices, MLP in {}: they do not divide {} key/value heads, width {}, inner width {}", a,
            b, m.kv_heads, m.hidden, m.ffn_hidden);
      }
    }
    if (!stage.head || stage.head_slices == 1) continue;
    if (m.tied_embeddings || !whole(m.vocab, stage.head_slices)) {
      return fmt::format("sharding=osdp: the head in {} slices: not executed with the embedding's table, or with {} words",
                         stage.head_slices, m.vocab);
    }
  }
  return std::nullopt;
}

/// Of how replicas share and exchange what they train.
std::optional<std::string> WhyNoExchange(const JobSpec& job, const Strategy& s, const ProgramChoices& choices) {
  const int64_t replicas = s.dp * s.cp;
  const bool levels = choices.sums.algorithm == Algorithm::kHierarchical;
  if (s.data_sync == DataSync::kSwitch) return Refused("data_sync", DataSyncName(s.data_sync), "one that the ranks make");
  if (levels && replicas % choices.sums.parameter != 0) {
    return fmt::format("data_sync=hierarchical: {} of {} replicas in a node: not executed, expected a divisor",
                       choices.sums.parameter, replicas);
  }
  if (s.data_sync == DataSync::kGossip && (s.local_steps > 1 || choices.gossip_units != 1)) {
    return fmt::format("data_sync=gossip of units of {} replicas, local_steps={}: not executed, expected 1 and 1",
                       choices.gossip_units, s.local_steps);
  }
  if (s.gradient_wire != GradientWire::kWhole && (s.shard_group != 0 || levels || ReplicasDiffer(s))) {
    return Refused("gradient_wire", GradientWireName(s.gradient_wire),
                   "whole with shard groups, sums in levels, and replicas that differ");
  }
  if (s.zero_stage > 0 && s.shard_group == 1 && replicas > 1)
    return Refused("shard_group", s.shard_group, "at least 2, or zero_stage=0");
  return s.sharding == Sharding::kOperator ? WhyNoSlices(job, s, choices.operators) : std::nullopt;
}

/// The job as it would be if all replicas had as much of the batch as those of a share; without shares the job itself.
std::vector<JobSpec> JobsOfShares(const JobSpec& job, const Strategy& s, const ProgramChoices& choices) {
  if (choices.shares.empty()) return {job};
  std::vector<JobSpec> jobs;
  for (const BatchShare& share : choices.shares) {
    jobs.push_back(job);
    jobs.back().global_batch = s.dp * (share.sequences / share.replicas);
  }
  return jobs;
}

/// Of replicas that have unequal shares of the batch: they exchange once per step, and what they do in between is nobody else's.
std::optional<std::string> WhyNoShares(const JobSpec& job, const Strategy& s, const ProgramChoices& choices) {
  if (choices.shares.empty()) return std::nullopt;
  int64_t replicas = 0, sequences = 0;
  for (const BatchShare& share : choices.shares) {
    if (share.replicas < 1 || share.sequences < 1 || share.sequences % (share.replicas * s.micro_batch) != 0) {
      return fmt::format("a share of {} sequences of {} replicas: expected whole micro-batches of {} for each", share.sequences,
                         share.replicas, s.micro_batch);
    }
    replicas += share.replicas;
    sequences += share.sequences;
  }
  if (replicas != s.dp || sequences != job.global_batch) {
    return fmt::format("shares of {} replicas and {} sequences, expected {} and {}", replicas, sequences, s.dp, job.global_batch);
  }
  if (s.zero_stage >= 2) return Refused("zero_stage", s.zero_stage, "0 or 1 with unequal shares of the batch");
  if (job.model.IsMoe()) return fmt::format("model {}: experts with unequal shares of the batch are not executed", job.model.name);
  if (ReplicasDiffer(s)) return "replicas that differ, with unequal shares of the batch: not executed";
  return std::nullopt;
}

/// Of stages that have as many layers as they are told.
std::optional<std::string> WhyNoLayers(const JobSpec& job, const Strategy& s, std::span<const int64_t> layers) {
  if (layers.empty()) return std::nullopt;
  int64_t all = 0;
  bool counts = static_cast<int64_t>(layers.size()) == s.pp;
  for (const int64_t of_stage : layers) {
    counts = counts && of_stage >= 0 && of_stage <= job.model.layers;
    all += counts ? of_stage : 0;
  }
  if (!counts || all != job.model.layers) {
    return fmt::format("stages of {} layers: expected {} stages with {} layers together", fmt::join(layers, ", "), s.pp,
                       job.model.layers);
  }
  if (s.vpp != 1) return Refused("vpp", s.vpp, "1 with stages of given layers");
  return s.sharding == Sharding::kOperator ? std::optional(Refused("sharding", "osdp", "uniform with stages of given layers"))
                                           : std::nullopt;
}

/// Of an MoE model.
std::optional<std::string> WhyNoExperts(const JobSpec& job, const Strategy& s) {
  const ModelSpec& m = job.model;
  if (s.sharding == Sharding::kOperator) return Refused("sharding", ShardingName(s.sharding), "uniform with experts");
  // The replicas of experts are others than those of the rest: a ring of them sums whole gradients in every step.
  if (s.data_sync != DataSync::kRing) return Refused("data_sync", DataSyncName(s.data_sync), "ring with experts");
  if (s.gradient_wire != GradientWire::kWhole)
    return Refused("gradient_wire", GradientWireName(s.gradient_wire), "whole with experts");
  if (s.local_steps != 1) return Refused("local_steps", s.local_steps, "1 with experts");
  if (s.shard_group != 0 && s.shard_group != s.dp * s.cp)
    return Refused("shard_group", s.shard_group, "0, all replicas, with experts");
  // Their shards would be of other ranks than those that sum them.
  if (s.zero_stage >= 1 && ExpertDp(s) > s.dp * s.cp) {
    return fmt::format("zero_stage={}: not executed with ep={} and etp={}, expected together at least tp={}", s.zero_stage, s.ep,
                       s.etp, s.tp);
  }
  const int64_t tokens = s.micro_batch * job.sequence / s.cp;
  if (tokens % s.tp != 0 || tokens / s.tp * m.experts_per_token % m.experts != 0) {
    return fmt::format("ep={}: {} choices of a tensor rank's tokens, expected a multiple of {} experts", s.ep,
                       tokens * m.experts_per_token / s.tp, m.experts);
  }
  return std::nullopt;
}

/// Of attention whose tokens lie on several ranks.
std::optional<std::string> WhyNoContext(const JobSpec& job, const Strategy& s) {
  if (s.cp == 1) return std::nullopt;
  if (job.sequence % (2 * s.cp) != 0)
    return fmt::format("cp={}: does not cut a sequence of {} in two equal pieces for each rank", s.cp, job.sequence);
  if (s.context_mode == ContextMode::kUlysses && job.model.kv_heads % (s.cp * s.tp) != 0) {
    return fmt::format("cp={}: with tp={} does not divide the {} key/value heads, as ulysses needs", s.cp, s.tp,
                       job.model.kv_heads);
  }
  return std::nullopt;
}

/// All but classes, communicators and ranks.
StepProgram HeaderOf(const JobSpec& job, const Strategy& s, ElementType type) {
  const ModelSpec& m = job.model;
  return {.model = m.name,
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
          .replicas_differ = ReplicasDiffer(s),
          .experts = m.experts,
          .experts_per_token = m.experts_per_token,
          .expert_hidden = m.expert_ffn_hidden,
          .expert_ranks = s.ep,
          .expert_tensor = s.etp,
          .schedule = s.schedule,
          .communicators = {},
          .classes = {},
          .ranks = {}};
}

/// The lists of all stages, of replicas that have as much of the batch as the frame says.
Status AddClasses(const ProgramFrame& frame, StepProgram* program) {
  for (int64_t stage = 0; stage < frame.strategy.pp; ++stage) {
    program->classes.push_back(StageProgram(frame, stage).Make());
    int64_t instructions = 0;
    for (const RankClass& c : program->classes) instructions += static_cast<int64_t>(c.instructions.size());
    if (instructions > StepProgram::kMostInstructions) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: a program of more than {} instructions", program->strategy, StepProgram::kMostInstructions));
    }
  }
  return Ok();
}

/// Says which replica has how much of the batch; replicas of one share have the classes of its stages.
void AddShares(std::span<const BatchShare> shares, StepProgram* program) {
  std::vector<int32_t> share_of;  // by replica
  std::vector<std::string> text;
  for (const BatchShare& share : shares) {
    program->shares.insert(program->shares.end(), static_cast<size_t>(share.replicas), share.sequences / share.replicas);
    share_of.insert(share_of.end(), static_cast<size_t>(share.replicas), static_cast<int32_t>(text.size()));
    text.push_back(fmt::format("{}", share.sequences));
  }
  if (shares.empty()) return;
  program->strategy += fmt::format(" shares={}", fmt::join(text, "+"));
  for (RankPlace& place : program->ranks)
    place.rank_class += share_of[static_cast<size_t>(place.replica)] * static_cast<int32_t>(program->stages);
}

}  // namespace

ProgramChoices ChoicesOf(const Strategy& s, std::span<const StageOperators> operators, const OperationList& list,
                         int64_t gpus_per_node) {
  ProgramChoices choices{.operators = operators};
  int64_t trees = 0, others = 0;
  for (const StageOperations& stage : list.classes) {
    for (const Operation& o : stage.operations) {
      if (o.communicator != CommunicatorKind::kData || o.what != "gradients") continue;
      if (s.data_sync == DataSync::kGossip && o.kind != OperationKind::kSendReceive) choices.gossip_units = o.group.size;
      if (o.kind != OperationKind::kAllReduce) continue;
      if (s.data_sync == DataSync::kParameterServer)
        choices.sums = {Algorithm::kParameterServer, static_cast<int32_t>(o.group.size)};
      if (o.algorithm == AlgorithmName(Algorithm::kHierarchical))
        choices.sums = {Algorithm::kHierarchical, static_cast<int32_t>(RanksInside(o.group, gpus_per_node))};
      ++(o.algorithm == AlgorithmName(Algorithm::kTree) ? trees : others);
    }
  }
  // A communicator sums in one way: by trees where that is the list's for all buckets. Narrow gradients go to who sums them.
  if (trees > 0 && others == 0 && s.gradient_wire == GradientWire::kWhole) choices.sums = {Algorithm::kTree};
  return choices;
}

std::optional<std::string> WhyNoProgram(const JobSpec& job, const Strategy& s, const ProgramChoices& choices) {
  const ModelSpec& m = job.model;
  if (auto why = WhyNoModel(m)) return why;
  if (job.precision != Precision::kFp32)
    return fmt::format("precision {}: not executed, expected fp32", PrecisionName(job.precision));
  if (auto why = WhyNoContext(job, s)) return why;
  if (m.IsMoe()) {
    if (auto why = WhyNoExperts(job, s)) return why;
  }
  if (s.tensor_mode != TensorMode::k1D) return Refused("tensor_mode", TensorModeName(s.tensor_mode), "1d");
  if (auto why = WhyNoExchange(job, s, choices)) return why;
  if (auto why = WhyNoShares(job, s, choices)) return why;
  if (auto why = WhyNoLayers(job, s, choices.layers)) return why;
  if (m.kv_heads % s.tp != 0) return fmt::format("tp={}: does not divide {} key/value heads", s.tp, m.kv_heads);
  if (m.vocab % s.tp != 0 || m.hidden % s.tp != 0)
    return fmt::format("tp={}: does not divide vocabulary {} and width {}", s.tp, m.vocab, m.hidden);
  const int64_t tokens = s.micro_batch * job.sequence / s.cp;
  if (tokens % s.tp != 0) return fmt::format("tp={}: does not divide a micro-batch's {} tokens", s.tp, tokens);
  for (const JobSpec& all : JobsOfShares(job, s, choices)) {
    const Status order = CheckOrder(s.schedule, s.pp, MicroBatches(s, all.global_batch), s.vpp);
    if (!order) return order.error().message();
  }
  return std::nullopt;
}

Result<StepProgram> ExpandProgram(const JobSpec& job, const Strategy& s, ElementType type, const ProgramChoices& choices) {
  if (const auto why = WhyNoShares(job, s, choices)) return Fail(Code::kInvalidArgument, *why);
  const std::vector<JobSpec> jobs = JobsOfShares(job, s, choices);
  for (const JobSpec& all : jobs) {
    if (const auto why = WhyIllegal(all, GpuCount(s), s)) return Fail(Code::kInvalidArgument, *why);
  }
  if (const auto why = WhyNoProgram(job, s, choices)) return Fail(Code::kInvalidArgument, *why);
  const int64_t last_stage = PlaceOf(s.schedule, s.pp * s.vpp - 1, s.pp).stage;
  const bool tied_apart = job.model.tied_embeddings && last_stage != 0;
  ProgramGroups groups = GroupsOf(s, tied_apart, job.model.IsMoe(), choices.sums);
  const bool decided = s.sharding == Sharding::kOperator;
  ProgramFrame frame{.job = job,
                     .strategy = s,
                     .groups = groups,
                     .type = type,
                     .tied_apart = tied_apart,
                     .operators = decided ? choices.operators : std::span<const StageOperators>(),
                     .layers = choices.layers};
  StepProgram program = HeaderOf(job, s, type);
  for (const JobSpec& all : jobs) {
    frame.sequences = all.global_batch / s.dp;
    WEFT_RETURN_IF_ERROR(AddClasses(frame, &program));
  }
  program.communicators = std::move(groups.communicators);
  program.ranks = std::move(groups.ranks);
  AddShares(choices.shares, &program);
  if (!choices.layers.empty()) program.strategy += fmt::format(" layers={}", fmt::join(choices.layers, "+"));
  WEFT_RETURN_IF_ERROR(CheckProgram(program));
  return program;
}

}  // namespace weft::planner::parallelism
