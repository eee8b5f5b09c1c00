#include "planner/parallelism/software_stack.h"

#include <array>

namespace weft::planner {
namespace {

// Sources: megatron-2021, arXiv 2104.04473 section 5 and Megatron-LM at its date (no gradient overlap, scatter-gather
// sends, fused softmax); megatron-2022, arXiv 2205.05198 (adds sequence parallelism); megatron-deepspeed, the BLOOM
// chronicle (ZeRO-1, fp16); zero-bubble, arXiv 2401.10241's Megatron fork; megascale, arXiv 2402.15627; the others their
// documentation (overlap_grad_reduce, overlap_param_gather, FSDP prefetch).
constexpr std::array kStacks = {
    SoftwareStack{.name = "megatron-2021", .blocking_sends = true, .flash_attention = false, .sequence_parallel = false},
    SoftwareStack{.name = "megatron-2022", .blocking_sends = true, .flash_attention = false},
    SoftwareStack{.name = "megatron-deepspeed", .blocking_sends = true, .flash_attention = false,
                  .sequence_parallel = false, .gradients_16bit = true},
    SoftwareStack{.name = "megatron-2023", .blocking_sends = true, .flash_attention = true},
    SoftwareStack{.name = "zero-bubble", .blocking_sends = false, .flash_attention = true},
    SoftwareStack{.name = "megascale", .overlaps_gradients = true, .overlaps_parameters = true},
    SoftwareStack{.name = "nemo-2022", .flash_attention = false},
    SoftwareStack{.name = "megatron-core", .overlaps_gradients = true, .overlaps_parameters = true, .fused_loss = true},
    SoftwareStack{.name = "nemo-2024", .overlaps_gradients = true, .overlaps_parameters = true, .fused_loss = true},
    SoftwareStack{.name = "nemo-2025", .overlaps_gradients = true, .overlaps_parameters = true, .fused_loss = true},
    SoftwareStack{.name = "nemo-2026", .overlaps_gradients = true, .overlaps_parameters = true, .fused_loss = true},
    SoftwareStack{.name = "nemo-2026-06", .overlaps_gradients = true, .overlaps_parameters = true, .fused_loss = true},
    SoftwareStack{.name = "internevo", .state = StateScheme::kZeroPaper, .overlaps_gradients = true,
                  .overlaps_parameters = true, .gradients_16bit = true},
    SoftwareStack{.name = "llm-foundry", .state = StateScheme::kFp32Master, .overlaps_gradients = true},
    SoftwareStack{.name = "llm-foundry-pure", .state = StateScheme::kPure16, .overlaps_gradients = true,
                  .gradients_16bit = true},
    SoftwareStack{.name = "torchtitan", .state = StateScheme::kFp32Master, .overlaps_gradients = true},
    SoftwareStack{.name = "torchtitan-eager", .state = StateScheme::kFp32Master, .overlaps_gradients = true},
    SoftwareStack{.name = "fms-fsdp", .state = StateScheme::kFp32Master, .overlaps_gradients = true,
                  .gradients_16bit = true},
    SoftwareStack{.name = "torchgpipe", .state = StateScheme::kFp32Master, .blocking_sends = true},
};

}  // namespace

std::optional<SoftwareStack> FindSoftwareStack(std::string_view name) {
  for (const SoftwareStack& stack : kStacks) {
    if (stack.name == name) return stack;
  }
  return std::nullopt;
}

std::span<const SoftwareStack> AllSoftwareStacks() { return kStacks; }

}  // namespace weft::planner
