// The least time of a pipeline without simulating it: up to rounding never above SimulatePipeline(), and equal to it in the textbook
// cases. Made for searches, which ask a million times.
//
//   PipelineBound bound({.schedule = ScheduleKind::k1F1B, .stages = 8, .micro_batches = 64, .hop = 1ms});
//   for (const auto& stage : stages) bound.Add(stage.forward, stage.backward, stage.weight);
//   const Seconds least = bound.Makespan();
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/units.h"
#include "planner/tasks/schedule_kind.h"

namespace weft::planner::inline tasks {

/// Stages are added first to last. With F and B of a stage (all its chunks, one micro-batch; B with the weight gradients W),
/// D = B - W, m micro-batches, p stages, v chunks, τ a hop, the bounds are
///   every schedule   m(F+B) of any stage: all that there is of those without a barrier
///   no split         Σ_{j<i}(F+B)/v + m(F+B) of stage i + 2iτ: the way down to it, its work, the way up
///   a link           ΣF + ΣB + (mv + p-2 + pv-1)τ, F of one chunk, split: D in place of B; zb-v: mvτ
///   gpipe            ΣF + (m-1) max(F, τ) + ΣB + (m-1) max(B, τ) + 2(p-1)τ; exact
///   1f1b, eager      w passes of stage i are in flight before its first backward one: Σ_{j<i}(F+B) + (m-w+1)(F+B) of stage i
///                    + 2Σ_{j>i}(F+B) + hops; w = p-i, eager 2(p-1-i)+1, less than m
///   1f1b             pass k+p of stage 0 follows gradient k: (⌈m/p⌉-1)(Σ(F+B) + 2(p-1)τ), then the last round
///   interleaved      before the last chunk's first pass the last stage runs (v-1)p passes of the others, and as many after its
///                    last: Σ(F+B) - (F+B)/v + (m - (v-1)p/v)(F+B) + 2(pv-1)τ, F and B of the last stage
///   zb-h1            stage i holds back i weight gradients: Σ_{j<i}(F+D) + m(F+B) - (i+1)W + W of stage 0 + 2iτ
/// Blocking sends take their stage's time; the last stage sends no activations and the first no gradients.
/// Exact for equal stages: gpipe, 1f1b and zb-h1 without hops (zb-h1: m ≥ p, W ≤ F, W ≤ D), eager-1f1b and interleaved also with
/// hops shorter than a chunk's forward pass. Requires of interleaved: p | m. Complexity: O(1) per stage, no allocation.
/// Source: the orders at ScheduleKind; the chains of passes are derived here, and a test holds them against the simulation.
class PipelineBound {
 public:
  struct Shape {
    ScheduleKind schedule = ScheduleKind::k1F1B;
    int64_t stages = 1, chunks = 1, micro_batches = 1;
    Seconds hop{0};
    bool blocking_sends = false;
  };

  explicit PipelineBound(const Shape& shape) : shape_(shape) {}

  const Shape& shape() const { return shape_; }
  /// The next stage. `weight` is a part of `backward`.
  void Add(Seconds forward, Seconds backward, Seconds weight);

  /// Of the stage added last: its last pass ends no earlier after the iteration's start; without a barrier, after its own.
  Seconds StageEnd() const { return stage_end_; }
  /// Of all stages. Requires: as many were added as the shape says.
  Seconds Makespan() const;
  /// Of stage 0, with a barrier: its last pass ends no earlier. Requires: as Makespan().
  Seconds FirstStageEnd() const { return SplitsBackward(shape_.schedule) ? most_first_ : Makespan(); }

  /// Interleaved with several chunks: the gradients of the chunk that the stage added last completes first are final no earlier. Behind
  /// that pass lie p backward passes of each other chunk, and no forward pass.
  Seconds FirstChunkFinal() const { return first_chunk_; }
  /// The same of stage 0, by the way up from any stage added so far.
  Seconds FirstChunkFinalOfStage0() const { return most_first_chunk_; }

 private:
  Seconds OfLink() const;

  Shape shape_;
  int64_t added_ = 0;
  Seconds forward_sum_{0}, backward_sum_{0};      // of the stages before, per chunk, hops of the way not counted
  Seconds data_sum_{0};                           // the same without weight gradients
  Seconds all_forward_{0}, all_backward_{0};      // of all stages, sends that block included
  Seconds most_forward_{0}, most_backward_{0};    // the same
  Seconds first_weight_{0};
  Seconds last_{0}, last_busy_{0};                // F+B of the last stage; with sends that block
  Seconds stage_end_{0}, most_{0};
  Seconds most_first_{0};                         // zb-h1: of the ways that end with stage 0's last weight gradient
  Seconds first_chunk_{0}, most_first_chunk_{0};
  Seconds most_turn_{-std::numeric_limits<double>::infinity()};  // without 2Σ(F+B) of all stages
};

}  // namespace weft::planner::tasks
