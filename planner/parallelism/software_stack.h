// What the training program does that neither model nor strategy says: what it overlaps, how it keeps its state, which
// kernels it fuses. Only facts that its documentation or source states: nothing here was fitted, and no fitted constant belongs to
// a program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "planner/parallelism/strategy.h"
#include "planner/tasks/schedule_kind.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline parallelism {

/// Bytes per parameter of the training state. Source: parallelism references in memory_model.h.
enum class StateScheme {
  kMegatron,       ///< 16-bit parameters, fp32 gradients, fp32 master and moments: 2 + 4 + 12 (fp16: gradients 2 + 4)
  kZeroPaper,      ///< 16-bit parameters and gradients, fp32 master and moments: 2 + 2 + 12
  kFp32Master,     ///< FSDP mixed precision: the fp32 shards are the parameters, 16-bit copies are gathered: 4 + 4 + 8
  kDeepSpeed,      ///< fp16: 2 + 2 + 16 with an fp32 gradient shard; bf16: 2 + 6 + 12 with an fp32 sum, and a flat copy
  kInternEvo,      ///< as kZeroPaper with fp32 copies of the gradient shard: 2 + 2 + 16
  kPure16,         ///< FSDP "pure": 16-bit gathered, reduced and kept gradients, fp32 master: as kFp32Master with 16-bit comm
  kAll16,          ///< all in 16 bits, moments too: 2 + 2 + 4
  kNanotron,       ///< 16-bit parameters and gradients, an fp32 sum of them on every rank; fp32 master and moments: 2 + 6 + 12
};

/// What recompute=selective drops after the forward pass and computes again in the backward pass. Sources: the programs'
/// files in frameworks/.
struct SelectiveRecompute {
  bool scores = true;               ///< attention's core, where its scores are kept: fused attention keeps none
  bool cheap_modules = false;       ///< what Megatron-LM can drop of experts and latents: see MegatronModules()
  bool moe_block = false;           ///< all of an MoE layer behind attention, dispatch and combine too
  bool every_second_product = false;  ///< all but every second matrix product and attention: see SavedByOperator()
};

/// What element-wise kernels move in a forward pass, in values read and written for each value, and how many kernels a layer is.
struct ElementwiseKernels {
  double rms_norm = 2;    ///< one kernel: read, write
  double rotation = 2;    ///< of queries and keys
  double gate = 3;        ///< of a gated activation: two inputs, their product
  double per_layer = 14;  ///< kernels of a dense layer's forward pass, attention fused
};
/// Operator by operator in eager mode. The norm: to fp32, square, mean, scale, back, weight: 40 bytes a value of two; the rotation: two
/// products and the swapped halves, or complex numbers in fp32; the activation and the product apart. Layer norms and GELU are one
/// kernel in eager mode as well. Source: torchtitan v0.2.2 and Hugging Face transformers 4.46, models/llama: RMSNorm,
/// apply_rotary_emb, FeedForward.
inline constexpr ElementwiseKernels kOperatorByOperator{20, 10, 5, 42};

/// Which fused attention a program calls: what its libraries have for the GPU (cuDNN, FlashAttention 3), FlashAttention 2, which was
/// made for Ampere, or the kernel of the first FlashAttention in Triton.
enum class AttentionKernel : uint8_t { kDevice, kFlash2, kTriton };

struct SoftwareStack {
  std::string_view name;
  StateScheme state = StateScheme::kMegatron;
  bool overlaps_gradients = false;    ///< gradient exchange behind the last backward
  bool overlaps_parameters = false;   ///< ZeRO-1 parameter gather behind the next forward
  bool blocking_sends = false;        ///< pipeline messages on the critical path of every pass; split schedules never do
  bool flash_attention = true;        ///< where the model does not say
  bool sequence_parallel = true;      ///< with tensor parallelism, where a row does not say
  bool gradients_16bit = false;       ///< exchanged in 16 bits
  bool fused_loss = false;            ///< no fp32 copy of the logits
  bool adds_gradients = false;        ///< a kernel of its own adds each weight gradient to the fp32 (fp16) buffer
  double parameter_bucket = 0;        ///< bytes of one parameter gather after the step; 0: as many parameters as a bucket of gradients has
  SelectiveRecompute selective = {};
  bool fsdp_units = false;            ///< ZeRO-3 as FSDP2 does it: see GathersEachPass() and GradientsStayWhole()
  bool accumulates_whole = false;     ///< FSDP2 units whose gradients are whole, in 16 bits, until the last micro-batch
  double checkpoint_inputs = 1;       ///< tensors of hidden width that a fully recomputed layer keeps
  double loss_bytes = 0;              ///< per logit at the loss's peak; 0: of a loss over tp ranks, see memory_model.cc
  bool replicas_wait = false;         ///< ZeRO-0 exchanges its gradients after the backward pass, whatever else overlaps
  bool sums_shards = false;           ///< ZeRO-1 and 2 sum gradients on every rank and keep a share, in place of a scatter
  ElementwiseKernels kernels = {};
  AttentionKernel attention = AttentionKernel::kDevice;
  bool overlaps_tensor = false;       ///< tp's collectives are cut up and run behind the product beside them
  bool fused_dispatch = false;        ///< experts are reached by kernels of their own (DeepEP, HybridEP), not by a send to each rank
  bool overlaps_experts = false;      ///< dispatch and combine of one micro-batch run behind another's layers
  bool input_in_memory = false;       ///< a step neither loads nor logs anything that takes time
  double unit_gradients = 1;          ///< of units whose gradients are scattered, how many have whole ones at once
  bool zero2_units = false;           ///< ZeRO-2 scatters gradients unit by unit, as ZeRO-3 does
  bool graphs = false;                ///< layers are replayed as CUDA graphs: the host starts no kernels
};

/// Whether the sender of a pipeline message waits for it. Schedules that split the backward pass come with sends of their
/// own that do not block.
constexpr bool BlockingSends(const SoftwareStack& stack, ScheduleKind schedule) {
  return stack.blocking_sends && !SplitsBackward(schedule);
}

/// Whether parameters that are kept after the forward pass are gathered again for every micro-batch. FSDP2 shards a unit
/// again after its backward pass, unless a pipeline tells it that more micro-batches follow.
constexpr bool GathersEachPass(const SoftwareStack& stack, const Strategy& s) {
  return stack.fsdp_units && s.zero_stage == 3 && s.keep_after_forward && s.pp == 1;
}

/// Whether sharded gradients are whole until the last micro-batch. PyTorch's pipelines let FSDP2 reduce only then.
/// Source: torch.distributed.pipelining, stage.py, backward_maybe_with_nosync.
constexpr bool GradientsStayWhole(const SoftwareStack& stack, const Strategy& s) {
  return stack.fsdp_units && s.zero_stage >= 2 && (s.pp > 1 || stack.accumulates_whole) && s.dp * s.cp > 1 &&
         s.sharding == Sharding::kUniform;
}

/// Whether what ZeRO-1 or 2 shards is summed on every rank all the same.
constexpr bool SumsShards(const SoftwareStack& stack, const Strategy& s) {
  return stack.sums_shards && (s.zero_stage == 1 || s.zero_stage == 2);
}

/// Whether a run of the model keeps attention's scores: unfused kernels.
bool KeepsScores(const ModelSpec& model, const SoftwareStack& stack);

/// The stack of that name, nullopt if unknown.
std::optional<SoftwareStack> FindSoftwareStack(std::string_view name);
std::span<const SoftwareStack> AllSoftwareStacks();
}  // namespace weft::planner::parallelism
