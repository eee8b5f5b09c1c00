#include "planner/parallelism/program/expand.h"

#include <fmt/format.h>

#include "planner/parallelism/framework.h"
#include "planner/parallelism/legality.h"
#include "planner/parallelism/program/program_limits.h"
#include "planner/parallelism/program/stage_program.h"
#include "planner/parallelism/variables.h"

namespace weft::planner::inline parallelism {
namespace {

/// Of operators that are cut: each slice is a tensor rank's share of its own.
std::optional<std::string> WhyNoSlices(const JobSpec& job, const Strategy& s, std::span<const StageOperators> operators) {
  const ModelSpec& m = job.model;
  if (static_cast<int64_t>(operators.size()) != s.pp)
    return fmt::format("sharding=osdp: decisions of {} stages, expected those of {}", operators.size(), s.pp);
  for (const StageOperators& stage : operators) {
    for (const OperatorRun& run : stage.runs) {
      const int64_t a = run.attention.slices, b = run.mlp.slices;
      if (RunsInSlices(job, s, a, b)) continue;
      if (s.sequence_parallel) return "sharding=osdp: operators in slices with sequence_parallel: not executed";
      if (s.cp > 1 && a > 1)
        return fmt::format("sharding=osdp: attention in {} slices with cp={}: not executed, expected cp=1", a, s.cp);
      return fmt::format(
          "sharding=osdp: attention in {} slices, MLP in {}: they do not divide {} key/value heads, width {}, inner width {}", a, b,
          m.kv_heads, m.hidden, m.ffn_hidden);
    }
    if (!stage.head || RunsHeadInSlices(job, s, stage.head_slices)) continue;
    return fmt::format("sharding=osdp: the head in {} slices: not executed with the embedding's table, or with {} words",
                       stage.head_slices, m.vocab);
  }
  return std::nullopt;
}

/// Of what the links chose.
std::optional<std::string> WhyNotChosen(const JobSpec& job, const Strategy& s, const ProgramChoices& choices) {
  const int64_t replicas = s.dp * s.cp;
  const bool levels = choices.sums.algorithm == Algorithm::kHierarchical;
  if (levels && replicas % choices.sums.parameter != 0) {
    return fmt::format("data_sync=hierarchical: {} of {} replicas in a node: not executed, expected a divisor",
                       choices.sums.parameter, replicas);
  }
  if (s.data_sync == DataSync::kGossip && choices.gossip_units != 1)
    return fmt::format("data_sync=gossip of units of {} replicas: not executed, expected 1", choices.gossip_units);
  if (levels && s.gradient_wire != GradientWire::kWhole)
    return fmt::format("gradient_wire={}: not executed, expected whole with sums in levels", GradientWireName(s.gradient_wire));
  return s.sharding == Sharding::kOperator ? WhyNoSlices(job, s, choices.operators) : std::nullopt;
}

}  // namespace

ProgramChoices ChoicesOf(const Strategy& s, std::span<const StageOperators> operators, const OperationList& list,
                         int64_t gpus_per_node) {
  ProgramChoices choices{.operators = operators};
  for (const StageOperations& stage : list.classes) {
    for (const Operation& o : stage.operations) {
      if (o.communicator != CommunicatorKind::kData || o.what != "gradients") continue;
      if (s.data_sync == DataSync::kGossip && o.kind != OperationKind::kSendReceive) choices.gossip_units = o.group.size;
      if (o.kind != OperationKind::kAllReduce) continue;
      if (s.data_sync == DataSync::kParameterServer)
        choices.sums = {Algorithm::kParameterServer, static_cast<int32_t>(o.group.size)};
      if (o.algorithm == AlgorithmName(Algorithm::kHierarchical))
        choices.sums = {Algorithm::kHierarchical, static_cast<int32_t>(RanksInside(o.group, gpus_per_node))};
    }
  }
  return choices;
}

std::optional<std::string> WhyNoProgram(const JobSpec& job, const Strategy& s, const ProgramChoices& choices) {
  static const ClusterSpec kNoCluster{};
  const FrameworkQuestion question{job, kNoCluster, s};
  for (const FrameworkRule& rule : frameworks::ProgramRules()) {
    if (rule.broken(question)) return rule.words(question);
  }
  return WhyNotChosen(job, s, choices);
}

Result<StepProgram> ExpandProgram(const JobSpec& job, const Strategy& s, ElementType type, const ProgramChoices& choices) {
  if (const auto why = WhyIllegal(job, GpuCount(s), s)) return Fail(Code::kInvalidArgument, *why);
  if (const auto why = WhyNoProgram(job, s, choices)) return Fail(Code::kInvalidArgument, *why);
  const int64_t last_stage = PlaceOf(s.schedule, s.pp * s.vpp - 1, s.pp).stage;
  const bool tied_apart = job.model.tied_embeddings && last_stage != 0;
  const ModelSpec& m = job.model;
  ProgramGroups groups = GroupsOf(s, tied_apart, m.IsMoe(), choices.sums);
  const bool decided = s.sharding == Sharding::kOperator;
  const ProgramFrame frame{.job = job,
                           .strategy = s,
                           .groups = groups,
                           .type = type,
                           .tied_apart = tied_apart,
                           .operators = decided ? choices.operators : std::span<const StageOperators>()};
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
