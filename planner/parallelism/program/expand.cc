#include "planner/parallelism/program/expand.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "planner/parallelism/framework.h"
#include "planner/parallelism/legality.h"
#include "planner/parallelism/program/program_limits.h"
#include "planner/parallelism/program/stage_program.h"
#include "planner/parallelism/variables.h"
#include "planner/tasks/step_program.h"

namespace weft::planner::inline parallelism {
namespace {

/// Of operators that are cut: each slice is a tensor rank's share of its own.
std::optional<std::string> WhyNoSlices(const JobSpec& job, const Strategy& s, std::span<const StageOperators> operators) {
  const ModelSpec& m = job.model;
  if (static_cast<int64_t>(operators.size()) != s.pp)
    return fmt::format("sharding=osdp: decisions of {} stages, expected those of {}", operators.size(), s.pp);
  int64_t most = 1;
  for (const StageOperators& stage : operators) {
    most = std::max(most, stage.head ? stage.head_slices : 1);
    for (const OperatorRun& run : stage.runs) {
      const int64_t a = run.attention.slices, b = run.mlp.slices;
      most = std::max({most, a, b});
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
  // Before a list is made, which grows with the slices.
  if (most > 1 && MostInstructions(job, s, most) > static_cast<double>(StepProgram::kMostInstructions)) {
    return fmt::format("sharding=osdp: operators in {} slices: up to {:.0f} instructions, expected at most {}", most,
                       MostInstructions(job, s, most), StepProgram::kMostInstructions);
  }
  return std::nullopt;
}

/// Of what the links chose.
std::optional<std::string> WhyNotChosen(const JobSpec& job, const Strategy& s, const ProgramChoices& choices) {
  const int64_t replicas = s.dp * s.cp * (job.model.IsCnn() ? s.tp : 1);
  const bool levels = choices.sums.algorithm == Algorithm::kHierarchical, servers = choices.sums.algorithm == Algorithm::kParameterServer;
  if (!levels && !servers && choices.sums.algorithm != Algorithm::kRing && choices.sums.algorithm != Algorithm::kTree)
    return fmt::format("sums by {}: not executed, expected ring, tree, hierarchical or ps", AlgorithmName(choices.sums.algorithm));
  if (servers && (choices.sums.parameter < 1 || choices.sums.parameter > replicas)) {
    return fmt::format("data_sync=parameter-server: {} servers of {} replicas: not executed, expected 1 to {}", choices.sums.parameter,
                       replicas, replicas);
  }
  if (levels && (choices.sums.parameter < 1 || replicas % choices.sums.parameter != 0)) {
    return fmt::format("data_sync=hierarchical: {} of {} replicas in a node: not executed, expected a divisor",
                       choices.sums.parameter, replicas);
  }
  if (s.data_sync == DataSync::kGossip && choices.gossip_units != 1)
    return fmt::format("data_sync=gossip of units of {} replicas: not executed, expected 1", choices.gossip_units);
  if (levels && s.gradient_wire != GradientWire::kWhole)
    return fmt::format("gradient_wire={}: not executed, expected whole with sums in levels", GradientWireName(s.gradient_wire));
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
  if (s.zero_stage >= 2) {
    return fmt::format("zero_stage={}: not executed, expected 0 or 1 with unequal shares of the batch", s.zero_stage);
  }
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
  if (s.vpp != 1) return fmt::format("vpp={}: not executed, expected 1 with stages of given layers", s.vpp);
  if (s.sharding == Sharding::kOperator) return "sharding=osdp: not executed, expected uniform with stages of given layers";
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
          .grid = GridOf(s),
          .volumes = m.cnn_layers,
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
  static const ClusterSpec kNoCluster{};
  if (auto why = WhyNoShares(job, s, choices)) return why;
  if (auto why = WhyNoLayers(job, s, choices.layers)) return why;
  for (const JobSpec& all : JobsOfShares(job, s, choices)) {
    const FrameworkQuestion question{all, kNoCluster, s};
    for (const FrameworkRule& rule : frameworks::ProgramRules()) {
      if (rule.broken(question)) return rule.words(question);
    }
  }
  return WhyNotChosen(job, s, choices);
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
  const GroupTraits traits{.tied_apart = tied_apart, .moe = job.model.IsMoe(), .spatial = job.model.IsCnn()};
  ProgramGroups groups = GroupsOf(s, traits, choices.sums);
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
