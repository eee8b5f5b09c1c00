// What the training program does that neither model nor strategy says: what it overlaps, how it keeps its state, which
// kernels it fuses. Only facts that its documentation or source states; what had to be measured is in calibration.h under
// "stack.NAME".
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "planner/tasks/schedule_kind.h"
#include "planner/workload/model_spec.h"

namespace weft::planner {

/// Bytes per parameter of the training state. Source: parallelism references in memory_model.h.
enum class StateScheme {
  kMegatron,       ///< 16-bit parameters, fp32 gradients, fp32 master and moments: 2 + 4 + 12 (fp16: gradients 2 + 4)
  kZeroPaper,      ///< 16-bit parameters and gradients, fp32 master and moments: 2 + 2 + 12
  kFp32Master,     ///< FSDP mixed precision: the fp32 shards are the parameters, 16-bit copies are gathered: 4 + 4 + 8
  kDeepSpeed,      ///< fp16: 2 + 2 + 16 with an fp32 gradient shard; bf16: 2 + 6 + 12 with an fp32 sum, and a flat copy
  kInternEvo,      ///< as kZeroPaper with fp32 copies of the gradient shard: 2 + 2 + 16
  kPure16,         ///< FSDP "pure": 16-bit gathered, reduced and kept gradients, fp32 master: as kFp32Master with 16-bit comm
};

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
  double parameter_bucket = 160e6;    ///< bytes of one parameter gather after the step
};

/// Whether the sender of a pipeline message waits for it. Schedules that split the backward pass come with sends of their
/// own that do not block.
constexpr bool BlockingSends(const SoftwareStack& stack, ScheduleKind schedule) {
  return stack.blocking_sends && !SplitsBackward(schedule);
}

/// Whether a run of the model keeps attention's scores: unfused kernels.
bool KeepsScores(const ModelSpec& model, const SoftwareStack& stack);

/// The stack of that name, nullopt if unknown.
std::optional<SoftwareStack> FindSoftwareStack(std::string_view name);
std::span<const SoftwareStack> AllSoftwareStacks();
/// The stack whose costs `weft plan` predicts when nothing else is said.
inline constexpr std::string_view kDefaultStack = "megatron-core";

}  // namespace weft::planner
