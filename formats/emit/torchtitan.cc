#include <fmt/format.h>

#include <utility>

#include "formats/emit/writers.h"
#include "planner/parallelism/partition.h"

namespace weft::formats {
namespace {

using planner::Strategy;

constexpr std::pair<std::string_view, std::pair<std::string_view, std::string_view>> kFlavors[] = {
    {"llama3-8b", {"llama3", "8B"}},
    {"llama3-70b", {"llama3", "70B"}},
    {"llama3-405b", {"llama3", "405B"}},
    {"deepseek-v3", {"deepseek_v3", "671B"}},
};

std::string ModelTable(const EmitInput& input) {
  std::string text = "[model]\n";
  bool known = false;
  for (const auto& [preset, flavor] : kFlavors) {
    if (input.job.model.name != preset) continue;
    known = true;
    text += fmt::format("name = \"{}\"\nflavor = \"{}\"\n", flavor.first, flavor.second);
  }
  if (!known) text += "# name and flavor: those under which your model is registered\n";
  if (input.job.precision == planner::Precision::kFp8) text += "converters = [\"float8\"]\n";
  return text;
}

/// torchtitan's name of a schedule; nullptr for one that it lacks.
const char* ScheduleClass(planner::ScheduleKind kind) {
  switch (kind) {
    case planner::ScheduleKind::kGpipe: return "GPipe";
    case planner::ScheduleKind::k1F1B: return "1F1B";
    case planner::ScheduleKind::kInterleaved: return "Interleaved1F1B";
    case planner::ScheduleKind::kZbV: return "ZBVZeroBubble";
    case planner::ScheduleKind::kEager1F1B:
    case planner::ScheduleKind::kZbH1:
    case planner::ScheduleKind::kZbH2: break;
  }
  return nullptr;
}

/// Degrees of replication and of sharding, of which torchtitan multiplies the second by cp: no copy is shared by fewer
/// ranks than cp. (0, 0): not possible.
std::pair<int64_t, int64_t> DataDegrees(const Strategy& s) {
  const int64_t group = s.shard_group > 0 ? s.shard_group : s.dp * s.cp;
  if (s.zero_stage == 0 || group < s.cp) return {s.dp, 1};
  if (group % s.cp != 0 || s.dp % (group / s.cp) != 0) return {0, 0};
  return {s.dp / (group / s.cp), group / s.cp};
}

/// The first part of the strategy that torchtitan cannot run, or nothing.
std::string Obstacle(const EmitInput& input) {
  const Strategy& s = input.strategy;
  if (input.job.model.IsCnn()) return "a 3D CNN, expected a transformer";
  if (s.tensor_mode != planner::TensorMode::k1D) {
    return fmt::format("tensor mode {}, expected 1d", planner::TensorModeName(s.tensor_mode));
  }
  if (s.zero_stage == 1) return "zero_stage=1, expected 0 (replicas), 2 (shards that stay) or 3";
  if (s.pp > 1 && ScheduleClass(s.schedule) == nullptr) {
    return fmt::format("schedule {}, expected gpipe, 1f1b, interleaved or zb-v", planner::ScheduleName(s.schedule));
  }
  if (DataDegrees(s).first == 0) {
    return fmt::format("zero_stage={} shard_group={} with cp={}, expected shards over a multiple of cp", s.zero_stage,
                       s.shard_group, s.cp);
  }
  if (s.cp > 1 && s.context_mode == planner::ContextMode::kUlysses) return "context mode ulysses, expected ring or all-gather";
  if (s.etp != 1 && s.etp != s.tp) return fmt::format("etp={}, expected 1 or tp={}", s.etp, s.tp);
  if (s.data_sync == planner::DataSync::kParameterServer) return "a parameter server, expected ring or hierarchical";
  if (input.job.precision == planner::Precision::kFp16 || input.job.precision == planner::Precision::kFp4) {
    return fmt::format("precision {}, expected bf16, fp8 or fp32", planner::PrecisionName(input.job.precision));
  }
  return "";
}

std::string ParallelismTable(const EmitInput& input) {
  const Strategy& s = input.strategy;
  const auto [replicas, shards] = DataDegrees(s);
  std::string text = "[parallelism]\n";
  const auto add = [&text](std::string_view key, const auto& value) { text += fmt::format("{} = {}\n", key, value); };
  if (s.cp > 1 && shards == 1) text += "# torchtitan shards parameters over the ranks of cp in any case\n";
  add("data_parallel_replicate_degree", replicas);
  add("data_parallel_shard_degree", shards);
  text += OperatorComments(input);
  add("fsdp_reshard_after_forward", s.zero_stage == 3 && !s.keep_after_forward ? "\"always\"" : "\"never\"");
  if (s.tp > 1 && !s.sequence_parallel) text += "# torchtitan runs sequence parallelism wherever it runs tensor parallelism\n";
  add("tensor_parallel_degree", s.tp);
  add("pipeline_parallel_degree", s.pp);
  if (s.pp > 1) {
    add("pipeline_parallel_schedule", fmt::format("\"{}\"", ScheduleClass(s.schedule)));
    add("pipeline_parallel_microbatch_size", s.micro_batch);
    const int64_t chunks = s.pp * s.vpp;
    if (input.job.model.layers % chunks == 0) {
      add("pipeline_parallel_layers_per_stage", input.job.model.layers / chunks);
      add("pipeline_parallel_first_stage_less_layers", 0);
      add("pipeline_parallel_last_stage_less_layers", 0);
    } else if ((input.job.model.layers + 2) % chunks == 0) {
      add("pipeline_parallel_layers_per_stage", (input.job.model.layers + 2) / chunks);
      add("pipeline_parallel_first_stage_less_layers", 1);
      add("pipeline_parallel_last_stage_less_layers", 1);
    }
  }
  add("context_parallel_degree", s.cp);
  if (s.cp > 1) {
    add("context_parallel_rotate_method", s.context_mode == planner::ContextMode::kRing ? "\"alltoall\"" : "\"allgather\"");
  }
  if (input.job.model.IsMoe()) {
    add("expert_parallel_degree", s.ep);
    add("expert_tensor_parallel_degree", s.etp);
  }
  return text;
}

/// Full recomputation of n of a stage's layers becomes that of every k-th, as many or more.
std::string CheckpointTable(const EmitInput& input) {
  const Strategy& s = input.strategy;
  const int64_t layers = planner::StageLayers(input.job.model.layers, s.pp, s.pp / 2);
  const bool some = s.recompute_layers > 0 && s.recompute_layers < layers;
  switch (s.recompute_layers == 0 ? planner::Recompute::kNone : s.recompute) {
    case planner::Recompute::kNone: break;
    case planner::Recompute::kSelective:
      return "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n";
    case planner::Recompute::kFull:
      if (!some) return "[activation_checkpoint]\nmode = \"full\"\n";
      return fmt::format("[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"{}\"\n",
                         layers / s.recompute_layers);
  }
  return "[activation_checkpoint]\nmode = \"none\"\n";
}

}  // namespace

Result<std::string> EmitTorchtitan(const EmitInput& input) {
  if (const std::string obstacle = Obstacle(input); !obstacle.empty()) {
    return CannotEmit(EmitTarget::kTorchtitan, obstacle);
  }
  const Strategy& s = input.strategy;
  // A pipeline cuts the local batch in micro-batches itself; without one, gradients accumulate over local batches.
  const int64_t local_batch = s.pp > 1 ? input.job.global_batch / s.dp : s.micro_batch;
  const bool wide = planner::StorageBytes(input.job.precision) == 4;
  return fmt::format(
      "# {}\n{}\n[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\n"
      "mixed_precision_param = \"{}\"\n\n{}\n{}",
      PlanSummary(input), ModelTable(input), local_batch, input.job.global_batch, input.job.sequence,
      wide ? "float32" : "bfloat16", ParallelismTable(input), CheckpointTable(input));
}

}  // namespace weft::formats
