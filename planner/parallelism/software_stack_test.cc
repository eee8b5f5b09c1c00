// What a program's words mean in bytes: recomputation, whole gradients, the loss. Each number from the sources, by hand.
#include "planner/parallelism/software_stack.h"

#include <gtest/gtest.h>

#include "planner/parallelism/framework.h"
#include "planner/parallelism/memory_model.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr int64_t kTokens = 2048;

JobSpec Job(const char* preset) {
  return {.name = "j", .model = FindModelPreset(preset).value(), .global_batch = 64, .sequence = kTokens,
          .precision = Precision::kBf16, .gpus = 64};
}

/// Bytes per token of one layer.
LayerBytes Layer(Framework framework, const char* preset, const LayerKey& key = {}, bool moe = false) {
  const LayerBytes bytes = ComputeLayerBytes(Job(preset), StackOf(framework), key, moe);
  const auto tokens = static_cast<double>(kTokens);
  return {.none = bytes.none / tokens, .selective = bytes.selective / tokens, .full = bytes.full / tokens};
}

// Mixtral: h = 4096, 1024 wide keys and values, two copies of 14336. All, per token: inputs and outputs of both norms 4 · 2h,
// queries and output 2 · 2h, keys and values 2 · 2 · 1024, log-sums 4 · 32, router 4 · 8, and of each copy 2h and 3 · 2 · 14336:
// 32768 + 16384 + 4096 + 128 + 32 + 2 · (8192 + 86016) = 241824.
// layernorm frees the output of the norm before the experts, 2h = 8192 (the one before attention is part of the product behind
// it); moe_act the product of the activation, 2 · 2 · 14336 = 57344 (transformer_layer.py, gpt_layer_specs.py).
TEST(SelectiveRecompute, OfMegatronOnAMixture) {
  const LayerBytes layer = Layer(Framework::kMegatron, "mixtral-8x7b", {}, true);
  EXPECT_DOUBLE_EQ(layer.none.count(), 241'824);
  EXPECT_DOUBLE_EQ(layer.selective.count(), 241'824 - 8'192 - 57'344);
  EXPECT_DOUBLE_EQ(layer.full.count(), 8'192);
  // Over two ranks with sequence parallelism half of each.
  const LayerBytes split = Layer(Framework::kMegatron, "mixtral-8x7b", {.tp = 2, .etp = 2, .sequence_parallel = true}, true);
  EXPECT_DOUBLE_EQ((split.none - split.selective).count(), 4'096 + 28'672);
  const LayerBytes whole = Layer(Framework::kMegatron, "mixtral-8x7b", {.tp = 2, .sequence_parallel = true}, true);
  EXPECT_DOUBLE_EQ((whole.none - whole.selective).count(), 4'096 + 28'672) << "one of two copies, whole inside an expert";
}

// DeepSeek-V3: h = 7168, 128 heads of queries 192 and values 128 wide: 24576 and 16384; latents 1536 + 512 + 64. A dense layer
// has 8h = 57344, latents 4224, queries, keys, values and output 2 · (2 · 24576 + 2 · 16384) = 163840, log-sums 512, and 3 · 2 ·
// 18432 = 110592: 336512. layernorm frees the norm before the latents, 2h = 14336; mla_up_proj queries, keys and values,
// 2 · (2 · 24576 + 16384) = 131072.
TEST(SelectiveRecompute, OfMegatronOnLatents) {
  const LayerBytes dense = Layer(Framework::kMegatron, "deepseek-v3");
  EXPECT_DOUBLE_EQ(dense.none.count(), 336'512);
  EXPECT_DOUBLE_EQ(dense.selective.count(), 336'512 - 14'336 - 131'072);
  // With experts: both norms, and the products of 8 copies, 2 · 8 · 2048.
  const LayerBytes moe = Layer(Framework::kMegatron, "deepseek-v3", {}, true);
  EXPECT_DOUBLE_EQ((moe.none - moe.selective).count(), 2 * 14'336 + 131'072 + 32'768);
}

// No module of a dense layer frees anything under fused attention: nothing is saved, and the program's rule refuses to try.
TEST(SelectiveRecompute, OfMegatronOnADenseLayerIsNothing) {
  const LayerBytes dense = Layer(Framework::kMegatron, "llama3-8b");
  EXPECT_EQ(dense.none, dense.selective);
  const JobSpec job = Job("llama3-8b");
  const ClusterSpec cluster = FindClusterPreset("dgx-h100", 8).value();
  const Strategy s{.dp = 64, .recompute = Recompute::kSelective};
  ASSERT_NE(BrokenRule(Framework::kMegatron, {job, cluster, s}), nullptr);
  EXPECT_EQ(BrokenRule(Framework::kMegatron, {job, cluster, s})->name, "recompute-selective");
}

// Mixtral, all behind attention dropped: router 4 · 8 and two copies of 2h + 3 · 2 · 14336 of the 241824 above.
TEST(SelectiveRecompute, OfAWholeMoeBlock) {
  const LayerBytes layer = Layer(FindFramework("megatron-moe-block").value(), "mixtral-8x7b", {}, true);
  EXPECT_DOUBLE_EQ(layer.none.count(), 241'824);
  EXPECT_DOUBLE_EQ(layer.selective.count(), 241'824 - (32 + 2 * (8'192 + 86'016)));
}

// transformers' LlamaRMSNorm makes an fp32 copy of its input, 4h twice a layer; LlamaMLP's activation is kept beside its product, 2f.
TEST(LayerBytes, OperatorByOperatorKeepMore) {
  const FractionalBytes more = Layer(Framework::kDeepspeed, "llama3-8b").none - Layer(Framework::kMegatron, "llama3-8b").none;
  EXPECT_DOUBLE_EQ(more.count(), 2 * 4 * 4'096 + 2 * 14'336);
}

// activation_checkpoint.py of v0.2.2 keeps of the products q, k, v, o, w1, w3, w2 every second from the first, attention's output
// and log-sums, and the block's input: 2 · (4096 input + 4096 q + 1024 v + 4096 core + 14336 w1 + 4096 w2) + 4 · 32 = 63616.
// Over 8 ranks an eighth, but w2's, kept before it is summed, 8192; and two scattered sums, 2 · 8192 / 8:
// (63616 - 8192) / 8 + 8192 + 2048 = 17168.
TEST(SelectiveRecompute, OfTorchtitanPerOperator) {
  EXPECT_DOUBLE_EQ(Layer(Framework::kTorchtitan, "llama3-8b").selective.count(), 63'616);
  const LayerKey eight{.tp = 8, .sequence_parallel = true};
  EXPECT_DOUBLE_EQ(Layer(Framework::kTorchtitan, "llama3-8b", eight).selective.count(), 17'168);
  EXPECT_DOUBLE_EQ(Layer(Framework::kTorchtitan, "llama3-70b").selective.count(), 125'184);
  EXPECT_DOUBLE_EQ(Layer(Framework::kTorchtitan, "llama3-405b").selective.count(), 240'128);
  EXPECT_DOUBLE_EQ(Layer(Framework::kTorchtitan, "llama3-8b").full.count(), 8'192);
  EXPECT_DOUBLE_EQ(Layer(Framework::kTorchtitan, "llama3-8b", eight).full.count(), 1'024);
}

// fsdp_utils.py of Accelerate wraps what is inside a decoder layer: norm, attention, norm, MLP, each with its input of 2h.
TEST(FullRecompute, OfAccelerateKeepsFourInputs) {
  EXPECT_DOUBLE_EQ(Layer(Framework::kAccelerate, "llama3-8b").full.count(), 4 * 8'192);
  EXPECT_DOUBLE_EQ(Layer(Framework::kAccelerate, "llama3-8b", {.tp = 2}).full.count(), 4 * 8'192) << "norms stay whole on every rank";
  EXPECT_DOUBLE_EQ(Layer(Framework::kDeepspeed, "llama3-8b").full.count(), 8'192) << "gradient_checkpointing wraps the layer";
}

/// One stage of 10^9 parameters that keeps no activations to speak of.
MemoryUse State(Framework framework, const Strategy& s) {
  const SoftwareStack stack = StackOf(framework);
  const StageShape shape{.dense_parameters = 1e9, .dense_layers = 4, .unit_parameters = 25e7};
  return StageMemory(Job("llama3-8b"), stack, s, StateBytesOf(stack.state, Precision::kBf16, stack.gradients_16bit), {}, {}, shape,
                     0, 8);
}

// FSDP2: fp32 shards 4 + 4 + 8 over 8 ranks. torch's pipelines let it reduce after the last micro-batch only: gradients of 4
// bytes are whole till then, and so are kept parameters of 2.
TEST(GradientsStayWhole, UnderATorchPipeline) {
  const Strategy flat{.dp = 8, .zero_stage = 3, .keep_after_forward = true};
  Strategy stages = flat;
  stages.pp = 2;
  const MemoryUse one = State(Framework::kTorchtitan, flat), two = State(Framework::kTorchtitan, stages);
  EXPECT_EQ(one.gradients, Bytes(500'000'000));
  EXPECT_EQ(two.gradients, Bytes(4'000'000'000));
  EXPECT_EQ(one.parameters, Bytes(2'500'000'000));
  EXPECT_EQ(two.parameters, one.parameters);
  EXPECT_EQ(two.optimizer, Bytes(1'000'000'000));
}

// Accelerate's accumulate() turns synchronisation off: whole gradients of 2 bytes beside the fp32 shards.
TEST(GradientsStayWhole, WhileAccelerateAccumulates) {
  EXPECT_EQ(State(Framework::kAccelerate, {.dp = 8, .zero_stage = 3}).gradients, Bytes(2'500'000'000));
  EXPECT_EQ(State(Framework::kTorchtitan, {.dp = 8, .zero_stage = 3}).gradients, Bytes(500'000'000));
}

// DeepSpeed, 16-bit gradients: ZeRO-1 keeps all of them, ZeRO-2 and 3 a share; fp32 master and moments are 12.
TEST(StageMemory, OfDeepspeedsStages) {
  for (int64_t stage = 0; stage <= 3; ++stage) {
    const MemoryUse memory = State(Framework::kDeepspeed, {.dp = 8, .zero_stage = stage});
    EXPECT_EQ(memory.parameters, Bytes(stage >= 3 ? 250'000'000 : 2'000'000'000));
    EXPECT_EQ(memory.gradients, Bytes(stage >= 2 ? 250'000'000 : 2'000'000'000));
    EXPECT_EQ(memory.optimizer, Bytes(stage >= 1 ? 1'500'000'000 : 12'000'000'000));
  }
  // Megatron's: fp32 gradients, whole under --use-distributed-optimizer.
  const MemoryUse megatron = State(Framework::kMegatron, {.dp = 8, .zero_stage = 1});
  EXPECT_EQ(megatron.parameters, Bytes(2'000'000'000));
  EXPECT_EQ(megatron.gradients, Bytes(4'000'000'000));
  EXPECT_EQ(megatron.optimizer, Bytes(1'500'000'000));
}

// torchtitan's loss: logits, their fp32 copy, log-softmax and gradients, 12 bytes at the peak for each of 128256 / tp; beside
// the final norm's input and output, 2 · 2h. Megatron's fused loss: the 2 bytes of the logits alone.
TEST(StageMemory, OfTheLoss) {
  const auto transient = [](Framework framework, int64_t tp) {
    const SoftwareStack stack = StackOf(framework);
    const StageShape shape{.last = true};
    const Strategy s{.tp = tp};
    return StageMemory(Job("llama3-8b"), stack, s, {}, {}, {}, shape, 0, 8).transient.count();
  };
  EXPECT_EQ(transient(Framework::kTorchtitan, 1), kTokens * (128256 * 12 + 4 * 4096));
  EXPECT_EQ(transient(Framework::kTorchtitan, 8), kTokens * (128256 / 8 * 12 + 4 * 4096));
  EXPECT_EQ(transient(Framework::kMegatron, 1), kTokens * (128256 * 2 + 4 * 4096));
}

// runtime/gpt.cc: a score of 2 bytes, with dropout its mask and what follows, 1 + 2, where fused attention keeps log-sums of 4 bytes
// per head. In fp32 logits, log-softmax and gradient are 4 bytes each, and the final norm's input and output 2 · 4h.
TEST(WeftTrain, KeepsScoresAndWholeLogits) {
  const FractionalBytes scores = Layer(Framework::kWeftTrain, "gpt2").none - Layer(Framework::kMegatron, "gpt2").none;
  EXPECT_DOUBLE_EQ(scores.count(), 12 * (5.0 * kTokens - 4));
  JobSpec job = Job("gpt2");
  job.precision = Precision::kFp32;
  const StageShape shape{.last = true};
  EXPECT_EQ(StageMemory(job, StackOf(Framework::kWeftTrain), {}, {}, {}, {}, shape, 0, 8).transient.count(),
            kTokens * (50257 * 12 + 8 * 768));
}

// FSDP2 shards a unit again after its backward pass, unless a pipeline tells it that more micro-batches follow.
TEST(GathersEachPass, WithoutAPipeline) {
  const SoftwareStack torch = StackOf(Framework::kTorchtitan), megatron = StackOf(Framework::kMegatron);
  EXPECT_TRUE(GathersEachPass(torch, {.dp = 8, .zero_stage = 3, .keep_after_forward = true}));
  EXPECT_FALSE(GathersEachPass(torch, {.dp = 8, .pp = 2, .zero_stage = 3, .keep_after_forward = true}));
  EXPECT_FALSE(GathersEachPass(torch, {.dp = 8, .zero_stage = 3})) << "not kept: gathered twice a pass, elsewhere";
  EXPECT_FALSE(GathersEachPass(megatron, {.dp = 8, .zero_stage = 3, .keep_after_forward = true}));
}

}  // namespace
}  // namespace weft::planner::parallelism
