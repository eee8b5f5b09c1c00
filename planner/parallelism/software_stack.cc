#include "planner/parallelism/software_stack.h"

#include <array>

namespace weft::planner::inline parallelism {
namespace {

// Sources: megatron-2021, arXiv 2104.04473 section 5 and Megatron-LM at its date (no gradient overlap, scatter-gather
// sends, fused softmax); megatron-2022, arXiv 2205.05198 (adds sequence parallelism); megatron-deepspeed, the BLOOM
// chronicle (ZeRO-1, fp16); zero-bubble, arXiv 2401.10241's Megatron fork; megascale, arXiv 2402.15627; the others their
// documentation (overlap_grad_reduce, overlap_param_gather, FSDP prefetch); NeMo's recipes keep and send 16-bit gradients.
// deepspeed v0.19.5: runtime/zero/stage_1_and_2.py (16-bit gradients; use_multi_rank_bucket_allreduce), runtime/engine.py
// (buffered_allreduce_fallback at stage 0). accelerate v1.14.0: utils/fsdp_utils.py (fp32 shards, 16-bit gathers and sums, no
// sums while gradients accumulate; checkpoints wrap a layer's four parts). torchtitan v0.2.2: components/loss.py (the loss in
// fp32: logits, their fp32 copy, log-softmax and gradients). weft-train: runtime/README.md (buckets behind the backward pass),
// runtime/gpt.cc (scores are kept; the loss is not fused), runtime/bucket_exchange.h (gradients are added in one fp32 memory).
constexpr std::array kStacks = {
    SoftwareStack{.name = "megatron-2021", .blocking_sends = true, .flash_attention = false, .sequence_parallel = false,
                  .adds_gradients = true},
    SoftwareStack{.name = "megatron-2022", .blocking_sends = true, .flash_attention = false},
    SoftwareStack{.name = "megatron-deepspeed", .state = StateScheme::kDeepSpeed, .blocking_sends = true,
                  .flash_attention = false, .sequence_parallel = false, .gradients_16bit = true, .adds_gradients = true},
    SoftwareStack{.name = "megatron-2023", .blocking_sends = true, .flash_attention = false},
    SoftwareStack{.name = "zero-bubble", .blocking_sends = true, .flash_attention = false},
    SoftwareStack{.name = "megascale", .overlaps_gradients = true, .overlaps_parameters = true,
                  .selective = {.cheap_modules = true}},
    SoftwareStack{.name = "nemo-2022", .flash_attention = false, .selective = {.cheap_modules = true}},
    SoftwareStack{.name = "megatron-core", .overlaps_gradients = true, .overlaps_parameters = true,
                  .fused_loss = true, .selective = {.cheap_modules = true}},
    SoftwareStack{.name = "nemo-2024", .state = StateScheme::kZeroPaper, .overlaps_gradients = true,
                  .overlaps_parameters = true, .gradients_16bit = true, .fused_loss = true,
                  .selective = {.cheap_modules = true}},
    SoftwareStack{.name = "nemo-2025", .state = StateScheme::kZeroPaper, .overlaps_gradients = true,
                  .overlaps_parameters = true, .gradients_16bit = true, .fused_loss = true,
                  .selective = {.cheap_modules = true}},
    SoftwareStack{.name = "nemo-2025-09", .state = StateScheme::kZeroPaper, .overlaps_gradients = true,
                  .overlaps_parameters = true, .gradients_16bit = true, .fused_loss = true,
                  .selective = {.cheap_modules = true}},
    SoftwareStack{.name = "nemo-2026", .state = StateScheme::kZeroPaper, .overlaps_gradients = true,
                  .overlaps_parameters = true, .gradients_16bit = true, .fused_loss = true,
                  .selective = {.cheap_modules = true}},
    SoftwareStack{.name = "nemo-2026-06", .state = StateScheme::kZeroPaper, .overlaps_gradients = true,
                  .overlaps_parameters = true, .gradients_16bit = true, .fused_loss = true,
                  .selective = {.cheap_modules = true}},
    SoftwareStack{.name = "internevo", .state = StateScheme::kInternEvo, .overlaps_gradients = true,
                  .gradients_16bit = true,
                  .adds_gradients = true, .parameter_bucket = 32e6},
    SoftwareStack{.name = "llm-foundry", .state = StateScheme::kFp32Master, .overlaps_gradients = true,
                  .fused_loss = true},
    SoftwareStack{.name = "llm-foundry-pure", .state = StateScheme::kPure16, .overlaps_gradients = true,
                  .gradients_16bit = true, .fused_loss = true},
    SoftwareStack{.name = "torchtitan", .state = StateScheme::kFp32Master, .overlaps_gradients = true,
                  .selective = {.scores = false, .every_second_product = true}, .fsdp_units = true, .loss_bytes = 12},
    SoftwareStack{.name = "torchtitan-eager", .state = StateScheme::kFp32Master, .overlaps_gradients = true,
                  .selective = {.scores = false, .every_second_product = true}, .fsdp_units = true, .loss_bytes = 12},
    SoftwareStack{.name = "fms-fsdp", .state = StateScheme::kFp32Master, .overlaps_gradients = true,
                  .gradients_16bit = true, .fused_loss = true},
    SoftwareStack{.name = "deepspeed", .state = StateScheme::kZeroPaper, .overlaps_gradients = true,
                  .gradients_16bit = true,
                  .parameter_bucket = 100e6, .selective = {}, .replicas_wait = true, .sums_shards = true},
    SoftwareStack{.name = "accelerate", .state = StateScheme::kFp32Master, .overlaps_gradients = true,
                  .gradients_16bit = true,
                  .selective = {}, .fsdp_units = true, .accumulates_whole = true, .checkpoint_inputs = 4,
                  .loss_bytes = 12},
    SoftwareStack{.name = "weft-train", .overlaps_gradients = true, .flash_attention = false, .sequence_parallel = false,
                  .adds_gradients = true, .selective = {}},
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
