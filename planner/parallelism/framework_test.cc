// Each rule alone: a strategy that breaks it and no other, and one beside it that breaks none.
// Long because every rule of every program has its line here.
#include "planner/parallelism/framework.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/parallelism/program/testing/small_models.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Edit = void (*)(JobSpec& job);

void Same(JobSpec&) {}
void Mixtral(JobSpec& job) { job.model = FindModelPreset("mixtral-8x7b").value(); }
void Gpt2(JobSpec& job) { job.model = FindModelPreset("gpt2").value(); }
void DeepSeek(JobSpec& job) { job.model = FindModelPreset("deepseek-v3").value(); }
/// DeepSeek-V3 without groups of experts.
void Ungrouped(JobSpec& job) {
  DeepSeek(job);
  job.model.numerics.router.groups = job.model.numerics.router.groups_per_token = 1;
}
void UngroupedFp32(JobSpec& job) {
  Ungrouped(job);
  job.precision = Precision::kFp32;
}
void SoftCapped(JobSpec& job) { job.model.numerics.attention_softcap = 50; }
void Biased(JobSpec& job) {
  Mixtral(job);
  job.model.mlp_bias = job.model.attention_bias = job.model.attention_output_bias = true;
}
void Gated(JobSpec& job) {
  Mixtral(job);
  job.model.shared_experts = 1;
  job.model.shared_expert_ffn_hidden = 1024;
  job.model.shared_expert_gate = true;
}
void Ungated(JobSpec& job) {
  Gated(job);
  job.model.shared_expert_gate = false;
}
void Yarn(JobSpec& job) {
  job.model.numerics.rope.scaling = RopeScaling::kYarn;
  job.model.numerics.rope.factor = 4;
}
void Qwen3(JobSpec& job) { job.model.query_key_norm = true; }
void Windowed(JobSpec& job) {
  job.model.window_kind = AttentionWindow::kSliding;
  job.model.attention_window = 1024;
}
void OtherExperts(JobSpec& job) {
  Mixtral(job);
  job.model.architecture = Architecture::kLlama4;
}
void Image(JobSpec& job) { job.model.head = HeadKind::kClasses; }
template <int64_t sequence>
void Sequence(JobSpec& job) { job.sequence = sequence; }
template <Precision precision>
void In(JobSpec& job) { job.precision = precision; }
template <Precision precision>
void MixtralIn(JobSpec& job) {
  Mixtral(job);
  job.precision = precision;
}

/// llama3-8b in bf16, 256 sequences of 8192 tokens.
/// What weft-train trains: words are bytes.
void Words(JobSpec& job) {
  job.model.vocab = 256;
  job.precision = Precision::kFp32;
}
void Experts(JobSpec& job) {
  Mixtral(job);
  Words(job);
}
/// 16 planes, eight of them from the third layer on.
void Volumes(JobSpec& job) {
  job.model = SmallCnn();
  job.sequence = 1;
  job.precision = Precision::kFp32;
}
void Wide(JobSpec& job) { job.model.ffn_hidden = int64_t{1} << 32; }
void OddWidth(JobSpec& job) { job.model.hidden = 4100; }
template <int64_t sequences>
void Batch(JobSpec& job) { job.global_batch = sequences; }
template <Edit first, Edit second>
void Edits(JobSpec& job) {
  first(job);
  second(job);
}

JobSpec Job(Edit edit) {
  JobSpec job{.name = "j", .model = FindModelPreset("llama3-8b").value(), .global_batch = 256, .sequence = 8192};
  edit(job);
  return job;
}

struct Case {
  std::string_view program;  ///< all of its releases
  std::string_view rule;
  Edit job;
  Strategy breaks, keeps;
  Edit other = nullptr;      ///< the job of `keeps`, where it is another
  const char* cluster = "dgx-h100";
};

constexpr auto kInterleaved = ScheduleKind::kInterleaved;
constexpr auto kGather = ContextMode::kAllGather;
constexpr auto kUlysses = ContextMode::kUlysses;
constexpr auto kInside = RankOrder::kTpCpPpDp;
constexpr auto kSelective = Recompute::kSelective;

const Case kMegatronCases[] = {
    {"Megatron-LM", "model", SoftCapped, {.dp = 8}, {.dp = 8}, Same},
    {"Megatron-LM", "tensor-mode", Same, {.tp = 4, .tensor_mode = TensorMode::k2D}, {.tp = 4}},
    {"Megatron-LM", "zero-stage", Same, {.dp = 8, .zero_stage = 2}, {.dp = 8, .zero_stage = 1}},
    {"Megatron-LM", "zero-stage", Same, {.dp = 8, .zero_stage = 1, .sharding = Sharding::kOperator}, {.dp = 8, .zero_stage = 1}},
    {"Megatron-LM", "gradient-exchange", Same, {.dp = 8, .data_sync = DataSync::kHierarchical}, {.dp = 8}},
    {"Megatron-LM", "schedule", Same, {.dp = 2, .pp = 4, .schedule = ScheduleKind::kGpipe}, {.dp = 2, .pp = 4}},
    // 256 / (2 · 64) = 2 micro-batches over 4 stages; of 32 sequences each 4.
    {"Megatron-LM", "interleaved-batches", Same, {.dp = 2, .pp = 4, .vpp = 2, .micro_batch = 64, .schedule = kInterleaved},
     {.dp = 2, .pp = 4, .vpp = 2, .micro_batch = 32, .schedule = kInterleaved}},
    // ep · etp against tp · cp: 2 and 1; 2 and 2.
    {"Megatron-LM", "expert-order", Mixtral, {.dp = 4, .pp = 2, .ep = 2, .rank_order = kInside},
     {.dp = 2, .tp = 2, .pp = 2, .ep = 2, .sequence_parallel = true, .rank_order = kInside}},
    {"Megatron-LM", "expert-order", Mixtral, {.dp = 4, .pp = 2, .ep = 2, .rank_order = kInside}, {.dp = 4, .pp = 2, .ep = 2}},
    // Of a dense model the second grid is the one without cp: tp against tp · cp.
    {"Megatron-LM", "expert-order", Same, {.dp = 2, .pp = 2, .cp = 2, .rank_order = kInside}, {.dp = 4, .pp = 2, .rank_order = kInside}},
    {"Megatron-LM", "expert-sequence", Mixtral, {.dp = 4, .tp = 2, .ep = 2}, {.dp = 4, .tp = 2, .ep = 2, .sequence_parallel = true}},
    {"Megatron-LM", "expert-bias", Biased, {.dp = 4, .tp = 2, .etp = 2, .sequence_parallel = true},
     {.dp = 4, .tp = 2, .sequence_parallel = true}},
    // 16 replicas of attention in groups of 4: 4 instances; an eighth of them, 2, replicas of the experts.
    {"Megatron-LM", "optimizer-instances", Mixtral, {.dp = 16, .ep = 8, .zero_stage = 1, .shard_group = 4},
     {.dp = 16, .ep = 8, .zero_stage = 1, .shard_group = 8}},
    {"Megatron-LM", "optimizer-instances", Same, {.dp = 16, .shard_group = 8}, {.dp = 16, .zero_stage = 1, .shard_group = 8}},
    // 8188 = 4 · 2047.
    {"Megatron-LM", "context-sequence", Sequence<8188>, {.dp = 2, .cp = 4}, {.dp = 4, .cp = 2}},
    {"Megatron-LM", "context-precision", In<Precision::kFp32>, {.dp = 4, .cp = 2}, {.dp = 8}},
    {"Megatron-LM", "expert-device", Mixtral, {.dp = 8}, {.dp = 8}, Same, "dgx-v100"},
    {"Megatron-LM", "context-window", Windowed, {.dp = 4, .cp = 2}, {.dp = 4, .cp = 2, .context_mode = kGather}},
    {"Megatron-LM", "context-latent", DeepSeek, {.dp = 8, .cp = 2, .context_mode = kGather}, {.dp = 8, .cp = 2}},
    // 8 key/value heads over 16 ranks, and over 8.
    {"Megatron-LM", "context-ulysses", Same, {.tp = 8, .cp = 2, .context_mode = kUlysses}, {.tp = 4, .cp = 2, .context_mode = kUlysses}},
    // 8196 = 4 · 2049.
    {"Megatron-LM", "sequence-tensor", Sequence<8196>, {.tp = 8, .sequence_parallel = true}, {.dp = 2, .tp = 4, .sequence_parallel = true}},
    {"Megatron-LM", "recompute-selective", Same, {.dp = 8, .recompute = kSelective}, {.dp = 8, .recompute = kSelective}, Mixtral},
    {"Megatron-LM", "recompute-selective", Same, {.dp = 8, .recompute = kSelective}, {.dp = 8, .recompute = Recompute::kFull}},
    {"Megatron-LM", "recompute-partly", Mixtral, {.dp = 8, .recompute = kSelective, .recompute_layers = 4}, {.dp = 8, .recompute = kSelective}},
    // Embedding and head are no layers: 32 stages, not 34.
    {"Megatron-LM", "stage-layers", Same, {.pp = 34}, {.pp = 32}},
    {"Megatron-LM", "precision", In<Precision::kTf32>, {.dp = 8}, {.dp = 8}, Same},
    // 8 key/value heads.
    {"Megatron-LM", "query-groups-015", Same, {.tp = 16}, {.dp = 2, .tp = 8}},
    {"Megatron-LM", "shared-gate-015", Gated, {.dp = 8}, {.dp = 8}, Ungated},
    {"Megatron-LM", "fp16-experts-015", MixtralIn<Precision::kFp16>, {.dp = 8}, {.dp = 8}, Mixtral},
    {"Megatron-LM", "yarn-015", Yarn, {.dp = 8}, {.dp = 8}, Same},
};

/// What FSDP2 says.
std::vector<Case> FullyShardCases(std::string_view program) {
  return {
      {program, "tensor-mode", Same, {.dp = 8, .zero_stage = 3, .tensor_mode = TensorMode::k2D}, {.dp = 8, .zero_stage = 3}},
      {program, "zero-stage", Same, {.dp = 8, .zero_stage = 1}, {.dp = 8, .zero_stage = 3}},
      {program, "zero-stage", Same, {.dp = 8, .zero_stage = 2}, {.dp = 8}},
      {program, "gradient-exchange", Same, {.dp = 8, .zero_stage = 3, .data_sync = DataSync::kHierarchical}, {.dp = 8, .zero_stage = 3}},
      {program, "shard-group", Same, {.dp = 6, .zero_stage = 3, .shard_group = 4}, {.dp = 6, .zero_stage = 3, .shard_group = 3}},
      {program, "shard-group", Same, {.dp = 8, .zero_stage = 3, .shard_group = 1}, {.dp = 8, .zero_stage = 3, .shard_group = 2}},
      {program, "operators", Same, {.dp = 8, .zero_stage = 3, .sharding = Sharding::kOperator}, {.dp = 8, .zero_stage = 3}},
  };
}

/// A pipeline of four whose parameters stay.
Strategy Stages(ScheduleKind schedule, int64_t vpp = 1) {
  return {.dp = 2, .pp = 4, .vpp = vpp, .zero_stage = 3, .keep_after_forward = true, .schedule = schedule};
}
Strategy With(Strategy s, void (*edit)(Strategy& s)) {
  edit(s);
  return s;
}

const Case kTorchtitanCases[] = {
    {"torchtitan", "model", Gpt2, {.dp = 8, .zero_stage = 3}, {.dp = 8, .zero_stage = 3}, Same},
    {"torchtitan", "replicas-alone", Same, {.dp = 4, .tp = 2, .sequence_parallel = true}, {.dp = 8}},
    {"torchtitan", "shard-group", Same, {.dp = 6, .cp = 2, .zero_stage = 3, .shard_group = 3, .context_mode = kGather},
     {.dp = 6, .cp = 2, .zero_stage = 3, .shard_group = 4, .context_mode = kGather}},
    {"torchtitan", "shards-for-16-bit", Same, {.tp = 8, .sequence_parallel = true}, {.dp = 2, .tp = 4, .zero_stage = 3, .sequence_parallel = true}},
    {"torchtitan", "schedule", Same, Stages(ScheduleKind::kZbH1), Stages(ScheduleKind::k1F1B)},
    {"torchtitan", "pipeline-model", Qwen3, Stages(ScheduleKind::k1F1B), {.dp = 8, .zero_stage = 3}},
    // 256 / (2 · 64) = 2 micro-batches over 4 stages; of 32 sequences each 4.
    {"torchtitan", "pipeline-batches", Same, With(Stages(ScheduleKind::k1F1B), [](Strategy& s) { s.micro_batch = 64; }),
     With(Stages(ScheduleKind::k1F1B), [](Strategy& s) { s.micro_batch = 32; })},
    {"torchtitan", "pipeline-chunks", Same, Stages(kInterleaved, 4), Stages(kInterleaved, 2)},
    {"torchtitan", "stage-layers", Same, With(Stages(ScheduleKind::k1F1B), [](Strategy& s) { s.pp = 34; }),
     With(Stages(ScheduleKind::k1F1B), [](Strategy& s) { s.pp = 32; })},
    {"torchtitan", "rank-order", Same, With(Stages(ScheduleKind::k1F1B), [](Strategy& s) { s.rank_order = kInside; }),
     Stages(ScheduleKind::k1F1B)},
    // 8 key/value heads.
    {"torchtitan", "tensor-heads", Same, {.dp = 2, .tp = 16, .zero_stage = 3, .sequence_parallel = true},
     {.dp = 2, .tp = 8, .zero_stage = 3, .sequence_parallel = true}},
    // 32 layers in 6 chunks, and in 8.
    {"torchtitan", "v-schedule", Same, With(Stages(ScheduleKind::kZbV, 2), [](Strategy& s) { s.pp = 3; }), Stages(ScheduleKind::kZbV, 2)},
    {"torchtitan", "tensor-sequence", Same, {.dp = 4, .tp = 2, .zero_stage = 3}, {.dp = 4, .tp = 2, .zero_stage = 3, .sequence_parallel = true}},
    // 8190 = 2 · 4095.
    {"torchtitan", "sequence-length", Sequence<8190>, {.dp = 4, .tp = 2, .zero_stage = 3, .sequence_parallel = true}, {.dp = 8, .zero_stage = 3}},
    {"torchtitan", "experts", Ungrouped, {.dp = 8, .tp = 4, .ep = 4, .etp = 2, .zero_stage = 3, .sequence_parallel = true},
     {.dp = 8, .tp = 4, .ep = 4, .zero_stage = 3, .sequence_parallel = true}},
    // 4 shards of a copy, 8 ranks with experts; 8 shards.
    {"torchtitan", "experts", Ungrouped, {.dp = 8, .ep = 8, .zero_stage = 3, .shard_group = 4}, {.dp = 8, .ep = 8, .zero_stage = 3}},
    {"torchtitan", "expert-context", Ungrouped, {.dp = 4, .cp = 2, .zero_stage = 3, .context_mode = kGather}, {.dp = 8, .zero_stage = 3}},
    {"torchtitan", "recompute-partly", Same, {.dp = 8, .zero_stage = 3, .recompute = kSelective, .recompute_layers = 4},
     {.dp = 8, .zero_stage = 3, .recompute = kSelective}},
    {"torchtitan", "precision", In<Precision::kFp16>, {.dp = 8, .zero_stage = 3}, {.dp = 8, .zero_stage = 3}, In<Precision::kFp8>},
    {"torchtitan", "context-mode-022", Same, {.dp = 4, .cp = 2, .zero_stage = 3}, {.dp = 4, .cp = 2, .zero_stage = 3, .context_mode = kGather}},
    {"torchtitan", "expert-shards-022", UngroupedFp32, {.tp = 4, .ep = 4, .sequence_parallel = true},
     {.dp = 2, .tp = 4, .ep = 4, .zero_stage = 3, .sequence_parallel = true}},
    {"torchtitan", "context-mode-020", Same, {.dp = 4, .cp = 2, .zero_stage = 3, .context_mode = kUlysses}, {.dp = 4, .cp = 2, .zero_stage = 3}},
    {"torchtitan", "experts-020", Ungrouped, {.dp = 8, .tp = 4, .ep = 2, .zero_stage = 3, .sequence_parallel = true},
     {.dp = 8, .tp = 4, .ep = 4, .zero_stage = 3, .sequence_parallel = true}},
    {"torchtitan", "router-groups-020", DeepSeek, {.dp = 8, .ep = 8, .zero_stage = 3}, {.dp = 8, .ep = 8, .zero_stage = 3}, Ungrouped},
};

const Case kHuggingFaceCases[] = {
    {"DeepSpeed", "model", Image, {.dp = 8}, {.dp = 8}, Same},
    {"DeepSpeed", "tensor-mode", Same, {.tp = 4, .tensor_mode = TensorMode::k2D}, {.tp = 4}},
    {"DeepSpeed", "pipeline", Same, {.dp = 2, .pp = 4}, {.dp = 8}},
    {"DeepSpeed", "operators", Same, {.dp = 8, .zero_stage = 3, .sharding = Sharding::kOperator}, {.dp = 8, .zero_stage = 3}},
    {"DeepSpeed", "gradient-exchange", Same, {.dp = 8, .data_sync = DataSync::kParameterServer}, {.dp = 8}},
    {"DeepSpeed", "shard-group", Same, {.dp = 8, .zero_stage = 3, .shard_group = 4}, {.dp = 8, .zero_stage = 3, .shard_group = 8}},
    {"DeepSpeed", "kept-parameters", Same, {.dp = 8, .zero_stage = 3, .keep_after_forward = true}, {.dp = 8, .zero_stage = 3}},
    {"DeepSpeed", "tensor-sequence", Same, {.dp = 4, .tp = 2, .sequence_parallel = true}, {.dp = 4, .tp = 2}},
    {"DeepSpeed", "tensor-context", Same, {.dp = 2, .tp = 2, .cp = 2, .context_mode = kUlysses}, {.dp = 4, .cp = 2, .context_mode = kUlysses}},
    {"DeepSpeed", "context-mode", Same, {.dp = 4, .cp = 2}, {.dp = 4, .cp = 2, .context_mode = kUlysses}},
    // 8 key/value heads.
    {"DeepSpeed", "context-heads", Same, {.cp = 3, .context_mode = kUlysses}, {.cp = 16, .context_mode = kUlysses}},
    {"DeepSpeed", "context-attention", Windowed, {.dp = 4, .cp = 2, .context_mode = kUlysses}, {.dp = 8}},
    {"DeepSpeed", "expert-family-019", OtherExperts, {.dp = 8, .ep = 2}, {.dp = 8, .ep = 2}, Mixtral},
    {"DeepSpeed", "experts", Mixtral, {.dp = 4, .tp = 2, .etp = 2}, {.dp = 4, .tp = 2}},
    {"DeepSpeed", "recompute", Same, {.dp = 8, .recompute = kSelective}, {.dp = 8, .recompute = Recompute::kFull}},
    {"DeepSpeed", "recompute", Same, {.dp = 8, .recompute = Recompute::kFull, .recompute_layers = 8}, {.dp = 8}},
    {"DeepSpeed", "precision", In<Precision::kFp8>, {.dp = 8}, {.dp = 8}, In<Precision::kFp16>},
    {"DeepSpeed", "tensor-zero", Same, {.dp = 4, .tp = 2, .zero_stage = 3}, {.dp = 4, .tp = 2, .zero_stage = 2}},
    {"DeepSpeed", "experts-018", Mixtral, {.dp = 8, .ep = 2}, {.dp = 8}},
    {"Accelerate", "pipeline", Same, Stages(ScheduleKind::k1F1B), {.dp = 8, .zero_stage = 3}},
    {"Accelerate", "experts", Mixtral, {.dp = 8, .ep = 2, .zero_stage = 3}, {.dp = 8, .zero_stage = 3}},
    {"Accelerate", "degrees", Same, {.dp = 4, .tp = 2, .etp = 2, .zero_stage = 3}, {.dp = 8, .zero_stage = 3}},
    {"Accelerate", "degrees", Same, {.dp = 4, .cp = 2, .zero_stage = 3}, {.dp = 8, .zero_stage = 3}},
    {"Accelerate", "model", SoftCapped, {.dp = 8, .zero_stage = 3}, {.dp = 8, .zero_stage = 3}, Same},
    {"Accelerate", "recompute", Same, {.dp = 8, .zero_stage = 3, .recompute = kSelective}, {.dp = 8, .zero_stage = 3, .recompute = Recompute::kFull}},
    {"Accelerate", "precision", In<Precision::kFp4>, {.dp = 8, .zero_stage = 3}, {.dp = 8, .zero_stage = 3}, In<Precision::kFp16>},
};

constexpr GradientWire kNarrow = GradientWire::kBf16;
const Case kWeftTrainCases[] = {
    {"weft-train", "model", Edits<Words, SoftCapped>, {.dp = 8}, {.dp = 8}, Words},
    {"weft-train", "precision", Edits<Words, In<Precision::kBf16>>, {.dp = 8}, {.dp = 8}, Words},
    {"weft-train", "words", In<Precision::kFp32>, {.dp = 8}, {.dp = 8}, Words},
    {"weft-train", "sizes", Edits<Words, Wide>, {.dp = 8}, {.dp = 8}, Words},
    {"weft-train", "ranks", Edits<Words, Batch<8192>>, {.dp = 8192}, {.dp = 4096}},
    {"weft-train", "instructions", Edits<Words, Batch<1 << 18>>, {.dp = 8}, {.dp = 8, .micro_batch = 256}},
    {"weft-train", "context", Edits<Words, Sequence<8190>>, {.dp = 2, .cp = 4}, {.dp = 4}},
    {"weft-train", "context-heads", Words, {.cp = 16, .micro_batch = 4, .context_mode = kUlysses}, {.cp = 8, .micro_batch = 4, .context_mode = kUlysses}},
    {"weft-train", "grid-context", Words, {.tp = 4, .cp = 2, .micro_batch = 8, .tensor_mode = TensorMode::k2D},
     {.tp = 4, .micro_batch = 2, .tensor_mode = TensorMode::k2D}},
    {"weft-train", "grid-pieces", Words, {.micro_batch = 2, .tensor_mode = TensorMode::k2D},
     {.tp = 4, .micro_batch = 2, .tensor_mode = TensorMode::k2D}},
    {"weft-train", "grid-sharding", Words,
     {.dp = 2, .tp = 4, .micro_batch = 2, .zero_stage = 3, .tensor_mode = TensorMode::k2D, .sharding = Sharding::kOperator},
     {.dp = 2, .tp = 4, .micro_batch = 2, .zero_stage = 3, .tensor_mode = TensorMode::k2D}},
    {"weft-train", "tensor-heads", Words, {.tp = 16}, {.tp = 8}},
    {"weft-train", "tensor-width", Edits<Words, OddWidth>, {.tp = 8}, {.tp = 4}},
    {"weft-train", "tensor-tokens", Edits<Words, Sequence<8191>>, {.tp = 2}, {.tp = 2, .micro_batch = 2}},
    {"weft-train", "slabs", Volumes, {.tp = 8}, {.tp = 4}},
    {"weft-train", "cnn-stages", Volumes, {.dp = 2, .pp = 2}, {.dp = 4}},
    {"weft-train", "cnn-schedule", Volumes, {.dp = 2, .schedule = ScheduleKind::kZbH1},
     {.dp = 2, .schedule = ScheduleKind::kGpipe}},
    {"weft-train", "cnn-recompute", Volumes, {.dp = 2, .recompute = Recompute::kFull}, {.dp = 2}},
    {"weft-train", "slab-shards", Volumes, {.dp = 2, .tp = 2, .zero_stage = 2}, {.dp = 2, .tp = 2, .zero_stage = 1}},
    {"weft-train", "slab-shards", Volumes, {.dp = 4, .tp = 2, .zero_stage = 1, .shard_group = 2},
     {.dp = 4, .zero_stage = 1, .shard_group = 2}},
    {"weft-train", "expert-tokens", Edits<Experts, Sequence<1022>>, {.dp = 8}, {.dp = 8, .micro_batch = 2}},
    {"weft-train", "order", Words, {.dp = 2, .pp = 4, .vpp = 2, .micro_batch = 64, .schedule = kInterleaved},
     {.dp = 2, .pp = 4, .vpp = 2, .micro_batch = 32, .schedule = kInterleaved}},
    {"weft-train", "switches", Words, {.dp = 8, .data_sync = DataSync::kSwitch}, {.dp = 8, .data_sync = DataSync::kParameterServer}},
    // A node has eight GPUs.
    {"weft-train", "gossip-units", Words, {.dp = 8, .data_sync = DataSync::kGossip}, {.dp = 4, .tp = 8, .data_sync = DataSync::kGossip}},
    {"weft-train", "gossip-steps", Words, {.dp = 4, .tp = 8, .data_sync = DataSync::kGossip, .local_steps = 4},
     {.dp = 4, .tp = 8, .local_steps = 4}},
    {"weft-train", "narrow-gradients", Words, {.dp = 8, .zero_stage = 1, .shard_group = 4, .gradient_wire = kNarrow},
     {.dp = 8, .zero_stage = 1, .gradient_wire = kNarrow}},
    {"weft-train", "narrow-gradients", Words, {.dp = 8, .gradient_wire = kNarrow, .local_steps = 4}, {.dp = 8, .local_steps = 4}},
    {"weft-train", "narrow-levels", Words, {.dp = 8, .data_sync = DataSync::kHierarchical, .gradient_wire = kNarrow},
     {.dp = 8, .data_sync = DataSync::kHierarchical}},
    {"weft-train", "shard-group", Words, {.dp = 8, .zero_stage = 3, .shard_group = 1}, {.dp = 8, .zero_stage = 3, .shard_group = 2}},
    {"weft-train", "expert-sharding", Experts, {.dp = 8, .zero_stage = 3, .sharding = Sharding::kOperator}, {.dp = 8, .zero_stage = 3}},
    {"weft-train", "expert-exchange", Experts, {.dp = 8, .data_sync = DataSync::kHierarchical}, {.dp = 8}},
    {"weft-train", "expert-gradients", Experts, {.dp = 8, .gradient_wire = kNarrow}, {.dp = 8}},
    {"weft-train", "expert-steps", Experts, {.dp = 8, .local_steps = 4}, {.dp = 8}},
    {"weft-train", "expert-shards", Experts, {.dp = 8, .zero_stage = 1, .shard_group = 4}, {.dp = 8, .zero_stage = 1, .shard_group = 8}},
    // tp · dp / (ep · etp) = 8 copies of experts, 4 replicas of the rest.
    {"weft-train", "expert-optimizer", Experts, {.dp = 4, .tp = 2, .zero_stage = 1}, {.dp = 4, .tp = 2, .etp = 2, .zero_stage = 1}},
    {"weft-train without a plan", "data-parallel", Same, {.dp = 4, .tp = 2}, {.dp = 8}},
    {"weft-train without a plan", "data-parallel", Same, {.dp = 8, .recompute = Recompute::kFull}, {.dp = 8}},
    {"weft-train without a plan", "zero-stage", Same, {.dp = 8, .zero_stage = 1}, {.dp = 8}},
    {"weft-train without a plan", "gradient-exchange", Same, {.dp = 8, .data_sync = DataSync::kSwitch},
     {.dp = 8, .data_sync = DataSync::kHierarchical}},
    {"weft-train without a plan", "gradient-exchange", Same, {.dp = 8, .data_sync = DataSync::kParameterServer}, {.dp = 8}},
};

std::vector<Case> AllCases() {
  std::vector<Case> all = FullyShardCases("torchtitan");
  for (const Case& one : FullyShardCases("Accelerate")) all.push_back(one);
  for (const std::span<const Case> cases : {std::span<const Case>(kMegatronCases), std::span<const Case>(kTorchtitanCases),
                                            std::span<const Case>(kHuggingFaceCases), std::span<const Case>(kWeftTrainCases)}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

/// Megatron-Bridge runs Megatron's core.
std::string_view ProgramOf(const FrameworkDescription& d) { return d.program == "Megatron-Bridge" ? "Megatron-LM" : d.program; }

ClusterSpec Cluster(const char* preset = "dgx-h100") { return FindClusterPreset(preset, 32).value(); }

std::vector<std::string_view> Broken(const FrameworkDescription& d, const JobSpec& job, const ClusterSpec& cluster, const Strategy& s) {
  std::vector<std::string_view> names;
  for (const std::span<const FrameworkRule> rules : {d.rules, d.release_rules}) {
    for (const FrameworkRule& rule : rules) {
      if (rule.broken({job, cluster, s})) names.push_back(rule.name);
    }
  }
  return names;
}

TEST(FrameworkRules, EachIsBrokenAloneAndKeptBeside) {
  const std::vector<Case> cases = AllCases();
  for (size_t i = 0; i < AllFrameworks().size(); ++i) {
    const auto framework = static_cast<Framework>(i);
    const FrameworkDescription& d = Describe(framework);
    for (const std::span<const FrameworkRule> rules : {d.rules, d.release_rules}) {
      for (const FrameworkRule& rule : rules) {
        int found = 0;
        for (const Case& one : cases) {
          if (one.program != ProgramOf(d) || one.rule != rule.name) continue;
          ++found;
          const JobSpec job = Job(one.job), other = Job(one.other != nullptr ? one.other : one.job);
          const ClusterSpec cluster = Cluster(one.cluster);
          EXPECT_THAT(Broken(d, job, cluster, one.breaks), ElementsAre(rule.name)) << d.name;
          EXPECT_THAT(Broken(d, other, cluster, one.keeps), ElementsAre()) << d.name << " beside " << rule.name;
          ASSERT_EQ(BrokenRule(framework, {job, cluster, one.breaks}), &rule) << d.name << " " << rule.name;
          EXPECT_FALSE(Runs(framework, {job, cluster, one.breaks}));
          for (const SearchStage stage : {SearchStage::kJob, SearchStage::kDegrees, SearchStage::kSchedule, SearchStage::kRecompute,
                                          SearchStage::kExchange}) {
            EXPECT_EQ(RunsPart(framework, {job, cluster, one.breaks}, stage), stage != rule.decided) << d.name << " " << rule.name;
          }
          EXPECT_EQ(WhyCannotRun(framework, {job, cluster, one.breaks}), rule.words({job, cluster, one.breaks}));
          EXPECT_EQ(WhyCannotRun(framework, {other, cluster, one.keeps}), std::nullopt) << d.name << " " << rule.name;
        }
        EXPECT_GT(found, 0) << d.name << " " << rule.name << " has no case";
      }
    }
  }
}

TEST(FrameworkRules, EveryCaseBelongsToARule) {
  std::set<std::pair<std::string_view, std::string_view>> known;
  for (const FrameworkDescription& d : AllFrameworks()) {
    for (const FrameworkRule& rule : d.rules) known.emplace(ProgramOf(d), rule.name);
    for (const FrameworkRule& rule : d.release_rules) known.emplace(ProgramOf(d), rule.name);
  }
  for (const Case& one : AllCases()) EXPECT_TRUE(known.contains({one.program, one.rule})) << one.program << " " << one.rule;
}

TEST(FrameworkRules, HaveWordsAndSources) {
  for (const FrameworkDescription& d : AllFrameworks()) {
    std::set<std::string_view> names;
    for (const std::span<const FrameworkRule> rules : {d.rules, d.release_rules}) {
      for (const FrameworkRule& rule : rules) {
        EXPECT_FALSE(rule.source.empty()) << d.name << " " << rule.name;
        EXPECT_TRUE(names.insert(rule.name).second) << d.name << " has " << rule.name << " twice";
      }
    }
    for (const EnvironmentSetting& setting : d.environment) {
      EXPECT_FALSE(setting.name.empty() || setting.value.empty() || setting.why.empty() || setting.source.empty()) << d.name;
    }
    EXPECT_EQ(d.runs(), d.rules.size() > 0) << d.name << ": a program has rules, a stack for pricing none";
  }
}

TEST(Frameworks, HaveNames) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < AllFrameworks().size(); ++i) {
    const auto framework = static_cast<Framework>(i);
    EXPECT_TRUE(names.insert(FrameworkName(framework)).second) << FrameworkName(framework);
    EXPECT_EQ(FindFramework(FrameworkName(framework)), framework);
    EXPECT_EQ(ParseFramework(FrameworkName(framework)).has_value(), framework < Framework::kPublished);
    EXPECT_FALSE(StackOf(framework).name.empty());
  }
  const std::pair<Framework, const char*> order[] = {
      {Framework::kAny, "any"}, {Framework::kMegatron, "megatron"}, {Framework::kTorchtitan, "torchtitan"},
      {Framework::kDeepspeed, "deepspeed"}, {Framework::kWeftTrain, "weft-train"}, {Framework::kMegatronBridge, "megatron-bridge"},
      {Framework::kAccelerate, "accelerate"}, {Framework::kMegatron015, "megatron-0.15"},
      {Framework::kTorchtitan020, "torchtitan-0.2.0"}, {Framework::kDeepspeed018, "deepspeed-0.18"},
      {Framework::kMegatronBridge04, "megatron-bridge-0.4"}, {Framework::kAccelerate110, "accelerate-1.10"},
      {Framework::kWeftTrainDdp, "weft-train-ddp"}};
  for (const auto& [framework, name] : order) EXPECT_EQ(FrameworkName(framework), name);
  EXPECT_EQ(std::size(order), static_cast<size_t>(Framework::kPublished));
  EXPECT_TRUE(FindFramework("megatron-2022"));
  EXPECT_FALSE(ParseFramework("megatron-2022")) << "for pricing only";
  EXPECT_FALSE(FindFramework("jax"));
  EXPECT_EQ(FrameworkTitle(Framework::kMegatron), "Megatron-LM core_v0.19.0");
  EXPECT_EQ(FrameworkTitle(Framework::kAccelerate110), "Accelerate v1.10.1");
  EXPECT_EQ(FrameworkTitle(Framework::kAny), "any program");
  EXPECT_EQ(FrameworkTitle(Framework::kWeftTrainDdp), "weft-train without a plan 0.1");
  EXPECT_THAT(FrameworkNames(), testing::StartsWith("any, megatron, torchtitan, deepspeed, weft-train, megatron-bridge, accelerate, "));
  EXPECT_THAT(FrameworkNames(), testing::Not(HasSubstr("megatron-2022")));
  EXPECT_THAT(KnownFrameworks(), ElementsAre(Framework::kMegatron, Framework::kTorchtitan, Framework::kDeepspeed));
}

TEST(Frameworks, AnyProgramAndPublishedStacksRefuseNothing) {
  const JobSpec job = Job(Same);
  const ClusterSpec cluster = Cluster();
  for (const Case& one : AllCases()) {
    EXPECT_TRUE(Runs(Framework::kAny, {job, cluster, one.breaks}));
    EXPECT_TRUE(Runs(FindFramework("megatron-2022").value(), {job, cluster, one.breaks}));
  }
}

// megatron/training/arguments.py, validate_args: for tp > 1 or cp > 1 on devices before Blackwell (capability 10), or it stops.
TEST(Frameworks, EnvironmentFollowsStrategyAndDevice) {
  const JobSpec job = Job(Same);
  const auto names = [&](Framework framework, const char* preset, const Strategy& s) {
    const ClusterSpec cluster = Cluster(preset);
    std::vector<std::string> settings;
    for (const EnvironmentSetting& setting : EnvironmentOf(framework, {job, cluster, s})) {
      settings.push_back(std::string(setting.name) + "=" + std::string(setting.value));
    }
    return settings;
  };
  const Strategy replicas{.dp = 8}, tensor{.dp = 4, .tp = 2}, context{.dp = 4, .cp = 2}, stages{.dp = 2, .pp = 4};
  for (const Framework framework : {Framework::kMegatron, Framework::kMegatron015, Framework::kMegatronBridge}) {
    for (const char* preset : {"dgx-a100", "dgx-h100", "dgx-h200"}) {
      EXPECT_THAT(names(framework, preset, tensor), ElementsAre("CUDA_DEVICE_MAX_CONNECTIONS=1")) << preset;
      EXPECT_THAT(names(framework, preset, context), ElementsAre("CUDA_DEVICE_MAX_CONNECTIONS=1")) << preset;
      EXPECT_THAT(names(framework, preset, replicas), ElementsAre()) << preset;
      EXPECT_THAT(names(framework, preset, stages), ElementsAre()) << preset;
    }
    for (const char* preset : {"dgx-b200", "gb200-nvl72"}) EXPECT_THAT(names(framework, preset, tensor), ElementsAre()) << preset;
  }
  for (const Framework framework : {Framework::kTorchtitan, Framework::kAccelerate}) {
    EXPECT_THAT(names(framework, "dgx-b200", replicas), ElementsAre("PYTORCH_ALLOC_CONF=expandable_segments:True"));
  }
  EXPECT_THAT(names(Framework::kDeepspeed, "dgx-h100", replicas), ElementsAre());
}

// Megatron: so many of each chunk (block). torchtitan: every n-th of the 8 layers of a process (4 stages of 32): 8, 4, 2, 1 of
// them, and 8 / 3 = 2 does not come out as 3. Hugging Face: all or none.
TEST(Frameworks, RecomputeSomeOfTheLayers) {
  const Strategy plain{.pp = 4}, chunks{.pp = 4, .vpp = 2};
  for (const int64_t layers : {1, 2, 3, 4, 5, 6, 7}) {
    EXPECT_TRUE(RecomputesSome(Framework::kAny, 32, chunks, layers));
    EXPECT_TRUE(RecomputesSome(Framework::kMegatron, 32, plain, layers));
    EXPECT_EQ(RecomputesSome(Framework::kMegatron, 32, chunks, layers), layers % 2 == 0) << layers;
    EXPECT_EQ(RecomputesSome(Framework::kTorchtitan, 32, plain, layers), layers == 1 || layers == 2 || layers == 4) << layers;
    EXPECT_FALSE(RecomputesSome(Framework::kTorchtitan, 33, plain, layers)) << "stages of different depth";
    EXPECT_FALSE(RecomputesSome(Framework::kDeepspeed, 32, plain, layers));
    EXPECT_FALSE(RecomputesSome(Framework::kAccelerate, 32, plain, layers));
  }
  Strategy s = chunks;
  s.dp = 2;
  s.recompute = Recompute::kFull;
  s.recompute_layers = 3;
  s.schedule = kInterleaved;
  const JobSpec job = Job(Same);
  const ClusterSpec cluster = Cluster();
  EXPECT_THAT(WhyCannotRun(Framework::kMegatron, {job, cluster, s}).value_or(""), HasSubstr("a multiple of vpp"));
}

// Megatron's arguments: max(40e6, 1e6 · dp · cp) parameters of fp32; torch's FSDP and DDP 25e6, DeepSpeed's file
// gets 5e7 of 16 bits.
TEST(Frameworks, BucketsGrowWithTheReplicasOfMegatron) {
  const auto bucket = [](Framework framework, int64_t dp, int64_t cp, double bytes) {
    return DefaultBucket(framework, {.dp = dp, .cp = cp}, bytes).count();
  };
  EXPECT_EQ(bucket(Framework::kMegatron, 8, 1, 4), 160'000'000);
  EXPECT_EQ(bucket(Framework::kMegatron, 40, 1, 4), 160'000'000);
  EXPECT_EQ(bucket(Framework::kMegatron, 32, 2, 4), 256'000'000);
  EXPECT_EQ(bucket(Framework::kMegatronBridge, 32, 2, 2), 128'000'000);
  EXPECT_EQ(bucket(Framework::kAny, 32, 2, 4), 256'000'000);
  EXPECT_EQ(bucket(Framework::kTorchtitan, 64, 1, 4), 100'000'000);
  EXPECT_EQ(bucket(Framework::kDeepspeed, 64, 1, 2), 100'000'000);
  EXPECT_EQ(bucket(Framework::kWeftTrain, 64, 1, 4), 1 << 20);
  EXPECT_EQ(bucket(Framework::kWeftTrainDdp, 64, 1, 4), 1 << 20) << "--bucket";
}

}  // namespace
}  // namespace weft::planner::parallelism
