// Bytes that one GPU holds: training state by scheme and ZeRO stage, activations by layer, what is in flight by pipeline
// schedule, and what exists only for a while (units in use, logits, the layer that is being recomputed).
//
// Activations follow arXiv 2205.05198 section 4 for GPT with dropout and unfused attention, and the same items one by one
// for other families: norm inputs and outputs 2h each, Q, K, V and attention's output, the MLP's inner values, scores
// where attention is not fused, one byte per dropped element.
#pragma once

#include <cstdint>
#include <vector>

#include "common/fractional_bytes.h"
#include "common/units.h"
#include "planner/parallelism/layer_time.h"
#include "planner/parallelism/software_stack.h"
#include "planner/parallelism/strategy.h"
#include "planner/tasks/operations.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// Per parameter, by what ZeRO divides. Source: arXiv 1910.02054 (16), 2205.05198
/// figure 1 (18), Megatron-LM's distributed optimizer (fp16: 20).
struct StateBytes {
  FractionalBytes parameter{2}, gradient{4}, optimizer{12};
  FractionalBytes gathered{2};       ///< of a ZeRO-3 unit while it is in use
  FractionalBytes gradient_sent{4};  ///< of a gradient on the wire
  FractionalBytes exchange_copy;     ///< of gradients flattened for the exchange, where there are replicas
};
StateBytes StateBytesOf(StateScheme scheme, Precision precision, bool gradients_16bit);

/// Activations of one layer and micro-batch on one rank.
struct LayerBytes {
  FractionalBytes none;       ///< nothing recomputed
  FractionalBytes selective;  ///< without what SoftwareStack::selective drops
  FractionalBytes full;       ///< the layer's input only

  FractionalBytes At(Recompute recompute) const {
    return recompute == Recompute::kFull ? full : recompute == Recompute::kSelective ? selective : none;
  }
  /// A layer's input, which is all that full recomputation keeps, is what it is.
  LayerBytes Times(double factor) const { return {factor * none, factor * selective, full}; }
};
LayerBytes ComputeLayerBytes(const JobSpec& job, const SoftwareStack& stack, const LayerKey& key, bool moe);

/// Chunks of micro-batches whose activations stage `stage` (from 0) of `pp` holds at once.
int64_t ChunksHeld(ScheduleKind schedule, int64_t stage, int64_t pp, int64_t vpp, int64_t micro_batches);

/// Whether sharded gradients are scattered once per round of pp micro-batches of a chunk, not for each: interleaving runs
/// these one after another. Source: arXiv 2407.21783, section 3.3 (contiguous micro-batches), ZeRO-2 with pipelines.
constexpr bool ReducesByRound(const SoftwareStack& stack, const Strategy& s) {
  return !stack.fsdp_units && s.zero_stage >= 2 && s.schedule == ScheduleKind::kInterleaved && s.sharding == Sharding::kUniform && s.dp * s.cp > 1;
}

/// Per parameter: what fp8 on the wire left out, kept for the next time in bf16.
inline constexpr FractionalBytes kRemainderBytes{2};

/// What a stage is made of, on one rank.
struct StageShape {
  double dense_parameters = 0;      ///< of the layers, after tp
  double expert_parameters = 0;     ///< after ep and etp
  double edge_parameters = 0;       ///< embedding, head
  double edge_slices = 0;           ///< of them, what is gathered slice by slice: a head that was decided so
  double dense_layers = 0, moe_layers = 0;
  double unit_parameters = 0;       ///< of the largest ZeRO-3 unit
  bool first = false, last = false;
};

/// What HoldingPart names.
inline Bytes& PartOf(MemoryUse& memory, HoldingPart part) {
  switch (part) {
    case HoldingPart::kParameters: return memory.parameters;
    case HoldingPart::kGradients: return memory.gradients;
    case HoldingPart::kOptimizer: return memory.optimizer;
    case HoldingPart::kActivations: return memory.activations;
    case HoldingPart::kContext: return memory.context;
    case HoldingPart::kTransient:
    case HoldingPart::kBuffers: break;
  }
  return memory.transient;
}

/// Adds a piece to `pieces`, unless it is empty.
void WritePiece(const Holding& piece, std::vector<Holding>& pieces);

/// Adds `copies` of a piece to what a stage holds at its peak, and the piece itself to `pieces`, if not null. Asked millions of times:
/// where the part is a constant, an addition.
inline void Hold(const Holding& piece, int64_t copies, MemoryUse& memory, std::vector<Holding>* pieces) {
  PartOf(memory, piece.part) += copies * piece.bytes;
  if (pieces != nullptr) [[unlikely]] WritePiece(piece, *pieces);
}

/// What sharded units take while they are in use: two gathered copies, of the unit that computes and of the one prefetched, and the whole
/// gradients that are not scattered yet. `gathered`, `scattered`: parameters of the largest unit that is gathered for each pass, and of
/// the largest whose gradients are scattered.
inline FractionalBytes UnitPeak(const SoftwareStack& stack, const StateBytes& state, double gathered, double scattered) {
  return gathered * (2 * state.gathered) + scattered * (stack.unit_gradients * state.gradient_sent);
}

/// Whole bytes, to the nearest. Requires: 0 ≤ bytes < 2⁵².
inline Bytes Whole(FractionalBytes bytes) { return Bytes(static_cast<int64_t>(bytes.count() + 0.5)); }  // std::llround is a call

/// All that the allocator is asked for on one stage; fragmentation and context are the cost model's to add. `pieces`: where what is
/// added up is written, if not null. Requires: a legal strategy.
MemoryUse StageMemory(const JobSpec& job, const SoftwareStack& stack, const Strategy& strategy, const StateBytes& state,
                      const LayerBytes& dense, const LayerBytes& moe, const StageShape& shape, int64_t stage,
                      int64_t micro_batches, std::vector<Holding>* pieces = nullptr);

}  // namespace weft::planner::parallelism
