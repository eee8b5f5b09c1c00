#include "planner/parallelism/software_stack.h"

#include <array>

namespace weft::planner::inline parallelism {
namespace {

// Sources: megatron-2021, arXiv 2104.04473 section 5 and Megatron-LM at its date (no gradient overlap, scatter-gather sends,
// fused softmax); megatron-2022, arXiv 2205.05198 (adds sequence parallelism); megatron-deepspeed, the BLOOM chronicle (ZeRO-1,
// fp16); zero-bubble, arXiv 2401.10241's Megatron fork; megascale, arXiv 2402.15627 (tp overlapped); the others their
// documentation (overlap_grad_reduce, overlap_param_gather, FSDP prefetch); NeMo's recipes keep and send 16-bit gradients and
// overlap tp (tp_comm_overlap); those of Megatron-Bridge dispatch by DeepEP or HybridEP, from 26.06 on behind other layers
// (overlap_moe_expert_parallel_comm) and in CUDA graphs. MLPerf's submissions read no input while they are timed. deepspeed
// v0.19.5: runtime/zero/stage_1_and_2.py (16-bit gradients; use_multi_rank_bucket_allreduce), runtime/engine.py
// (buffered_allreduce_fallback at stage 0). accelerate v1.14.0: utils/fsdp_utils.py (fp32 shards, 16-bit gathers and sums, no
// sums while gradients accumulate; checkpoints wrap a layer's four parts). torchtitan v0.2.2: components/loss.py (the loss in
// fp32: logits, their fp32 copy, log-softmax and gradients); its models and Hugging Face's are eager unless compiled. llm-
// foundry: llmfoundry/models (Triton attention, layer norms). internevo: its norms and rotation operator by operator. nanotron:
// optim/gradient_accumulator.py (fp32 sums), parallel/tensor_parallel/functional.py (logits, in fp32, less their maximum),
// nn/layer_norm.py (Triton), nn/activations.py (gate apart), FlashAttention 2. jax-toolbox: XLA fuses what is element-wise, cuDNN's
// attention. torchtune: README (all states in bf16, chunked loss where it says so). weft-train: runtime/README.md (buckets
// behind the backward pass), runtime/gpt.cc (scores are kept; the loss is not fused), runtime/bucket_exchange.h (gradients are
// added in one fp32 memory).
struct Bridge {
  bool fused_dispatch = true, overlaps_experts = false, graphs = false;
};
constexpr SoftwareStack Nemo(std::string_view name, const Bridge& bridge) {
  return {.name = name, .state = StateScheme::kZeroPaper, .overlaps_gradients = true, .overlaps_parameters = true,
          .gradients_16bit = true, .fused_loss = true, .selective = {.cheap_modules = true}, .overlaps_tensor = true,
          .fused_dispatch = bridge.fused_dispatch, .overlaps_experts = bridge.overlaps_experts, .graphs = bridge.graphs};
}
constexpr SoftwareStack Submitted(std::string_view name, bool graphs) {
  SoftwareStack stack = Nemo(name, {.graphs = graphs});
  stack.input_in_memory = true;
  return stack;
}

struct Core {
  bool overlaps_tensor = false, fused_dispatch = false, overlaps_experts = false, moe_block = false;
};
constexpr SoftwareStack Megatron(std::string_view name, const Core& core) {
  return {.name = name, .overlaps_gradients = true, .overlaps_parameters = true, .fused_loss = true,
          .selective = {.cheap_modules = true, .moe_block = core.moe_block}, .overlaps_tensor = core.overlaps_tensor,
          .fused_dispatch = core.fused_dispatch, .overlaps_experts = core.overlaps_experts};
}

constexpr SoftwareStack Torchtitan(std::string_view name, const ElementwiseKernels& kernels) {
  return {.name = name, .state = StateScheme::kFp32Master, .overlaps_gradients = true,
          .selective = {.scores = false, .every_second_product = true}, .fsdp_units = true, .loss_bytes = 12, .kernels = kernels,
          .attention = AttentionKernel::kFlash2};
}

constexpr SoftwareStack Foundry(std::string_view name, StateScheme state) {
  return {.name = name, .state = state, .overlaps_gradients = true, .gradients_16bit = state == StateScheme::kPure16,
          .fused_loss = true, .attention = AttentionKernel::kTriton};
}

constexpr SoftwareStack Torchtune(std::string_view name, const ElementwiseKernels& kernels, bool fused_loss) {
  return {.name = name, .state = StateScheme::kAll16, .gradients_16bit = true, .fused_loss = fused_loss,
          .loss_bytes = fused_loss ? 0.0 : 12.0, .kernels = kernels, .attention = AttentionKernel::kFlash2};
}

constexpr ElementwiseKernels kNanotronKernels{.gate = 5, .per_layer = 24};

constexpr std::array kStacks = {
    SoftwareStack{.name = "megatron-2021", .blocking_sends = true, .flash_attention = false, .sequence_parallel = false,
                  .adds_gradients = true},
    SoftwareStack{.name = "megatron-2022", .blocking_sends = true, .flash_attention = false},
    SoftwareStack{.name = "megatron-deepspeed", .state = StateScheme::kDeepSpeed, .blocking_sends = true,
                  .flash_attention = false, .sequence_parallel = false, .gradients_16bit = true, .adds_gradients = true},
    SoftwareStack{.name = "megatron-2023", .blocking_sends = true, .flash_attention = false},
    SoftwareStack{.name = "zero-bubble", .blocking_sends = true, .flash_attention = false},
    SoftwareStack{.name = "megascale", .overlaps_gradients = true, .overlaps_parameters = true,
                  .selective = {.cheap_modules = true}, .overlaps_tensor = true},
    SoftwareStack{.name = "nemo-2022", .flash_attention = false, .selective = {.cheap_modules = true}},
    Megatron("megatron-core", {}),
    Megatron("megatron-h100", {.overlaps_tensor = true}),
    Megatron("megatron-moe", {}),
    Megatron("megatron-moe-deepep", {.fused_dispatch = true}),
    Megatron("megatron-moe-block", {.fused_dispatch = true, .moe_block = true}),
    Megatron("megatron-moe-overlap", {.fused_dispatch = true, .overlaps_experts = true}),
    Nemo("nemo-2024", {.fused_dispatch = false}),
    Nemo("nemo-2025", {.fused_dispatch = false}),
    Nemo("nemo-2025-09", {}),
    Nemo("nemo-2026", {}),
    Nemo("nemo-2026-06", {.overlaps_experts = true, .graphs = true}),
    Nemo("nemo-graphs", {.graphs = true}),
    Submitted("mlperf", false),
    Submitted("mlperf-graphs", true),
    SoftwareStack{.name = "internevo", .state = StateScheme::kInternEvo, .overlaps_gradients = true,
                  .gradients_16bit = true,
                  .adds_gradients = true, .parameter_bucket = 32e6, .kernels = kOperatorByOperator,
                  .attention = AttentionKernel::kFlash2},
    Foundry("llm-foundry", StateScheme::kFp32Master),
    Foundry("llm-foundry-pure", StateScheme::kPure16),
    Torchtitan("torchtitan", {}),
    Torchtitan("torchtitan-eager", kOperatorByOperator),
    SoftwareStack{.name = "fms-fsdp", .state = StateScheme::kFp32Master, .overlaps_gradients = true,
                  .gradients_16bit = true, .fused_loss = true, .attention = AttentionKernel::kFlash2},
    SoftwareStack{.name = "nanotron", .state = StateScheme::kNanotron, .overlaps_gradients = true, .blocking_sends = true,
                  .loss_bytes = 10, .kernels = kNanotronKernels, .attention = AttentionKernel::kFlash2},
    SoftwareStack{.name = "jax-toolbox", .state = StateScheme::kFp32Master, .overlaps_gradients = true, .flash_attention = false,
                  .gradients_16bit = true},
    Torchtune("torchtune", kOperatorByOperator, false),
    Torchtune("torchtune-compiled", {}, false),
    Torchtune("torchtune-chunked", {}, true),
    SoftwareStack{.name = "deepspeed", .state = StateScheme::kZeroPaper, .overlaps_gradients = true,
                  .gradients_16bit = true,
                  .parameter_bucket = 100e6, .selective = {}, .replicas_wait = true, .sums_shards = true,
                  .kernels = kOperatorByOperator, .attention = AttentionKernel::kFlash2},
    SoftwareStack{.name = "accelerate", .state = StateScheme::kFp32Master, .overlaps_gradients = true,
                  .gradients_16bit = true,
                  .selective = {}, .fsdp_units = true, .accumulates_whole = true, .checkpoint_inputs = 4,
                  .loss_bytes = 12, .kernels = kOperatorByOperator, .attention = AttentionKernel::kFlash2},
    SoftwareStack{.name = "weft-train", .overlaps_gradients = true, .flash_attention = false, .sequence_parallel = false,
                  .adds_gradients = true, .selective = {}, .kernels = kOperatorByOperator, .input_in_memory = true, .unit_gradients = 2, .zero2_units = true},
    SoftwareStack{.name = "torchgpipe", .state = StateScheme::kFp32Master, .blocking_sends = true},
};

}  // namespace

bool KeepsScores(const ModelSpec& model, const SoftwareStack& stack) {
  return !stack.flash_attention && !model.flash_attention && model.architecture == Architecture::kGpt2;
}

std::optional<SoftwareStack> FindSoftwareStack(std::string_view name) {
  for (const SoftwareStack& stack : kStacks) {
    if (stack.name == name) return stack;
  }
  return std::nullopt;
}

std::span<const SoftwareStack> AllSoftwareStacks() { return kStacks; }

}  // namespace weft::planner::parallelism
