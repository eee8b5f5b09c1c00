// Layer 2 for pipelines: how long one iteration takes under a schedule, simulated operation by operation for stages that
// differ and links that delay. Time is counted in whole picoseconds inside, so that sums are exact, a steady state is
// recognised without a tolerance, and the answer does not depend on the order of additions.
//
// Leaves out: jitter. What overlaps inside one pass is in the times given here (planner/parallelism/layer_time.h).
//
//   PipelineScratch scratch;
//   const std::vector<StageTime> stages(8, {.forward = 10ms, .data_gradient = 10ms, .weight_gradient = 10ms});
//   Result<PipelineTime> time = SimulatePipeline({.stages = stages, .micro_batches = 64}, scratch);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/tasks/schedule_kind.h"

namespace weft::planner::inline tasks {

/// One micro-batch through one chunk of layers on its stage. Recomputation counts as data gradient. Schedules that do not
/// split the backward pass run data and weight gradient as one task.
struct StageTime {
  Seconds forward{0};
  Seconds data_gradient{0};
  Seconds weight_gradient{0};
};

/// p stages of v chunks each. Chunk c of stage i is virtual stage c·p + i; in ZB-V chunk 1 is virtual stage 2p-1-i.
struct PipelineProblem {
  ScheduleKind schedule = ScheduleKind::k1F1B;
  std::span<const StageTime> stages;  ///< [p × v], stage i's chunk c at i·v + c
  int64_t micro_batches = 1;
  int64_t chunks = 1;                 ///< v: 1 or more for kInterleaved, 2 for kZbV, else 1
  /// What a message takes to the neighbour, the same both ways: empty (none), one for all boundaries, or [p], of which the last is
  /// the way from the last stage to the first and back (kInterleaved). It sets out when its pass ends, behind all that the stage has
  /// sent to that neighbour before: a link carries one message at a time.
  std::span<const Seconds> hops;
  bool blocking_sends = false;        ///< the sender computes nothing during the hop
};

/// What one stage does in an iteration that starts at 0.
struct StageUse {
  Seconds start{0};       ///< of its first pass
  Seconds end{0};         ///< of its last pass
  Seconds busy{0};        ///< passes, and sends where they block
  Seconds idle{0};        ///< makespan - busy: the stage's bubble
  int64_t in_flight = 0;  ///< most chunk activations held at once, from forward until weight gradient
};

/// When one chunk of a stage may exchange parameters and gradients.
struct ChunkUse {
  Seconds first_forward{0};       ///< starts: its parameters must be there
  Seconds first_backward_end{0};  ///< the first micro-batch's gradients exist
  Seconds last_backward{0};       ///< the last micro-batch's backward pass starts
  Seconds gradients_from{0};      ///< the pass starts that makes its gradients final, one layer after another
  Seconds gradients_ready{0};     ///< that pass ends
};

/// The spans lie in the scratch and last until its next use.
struct PipelineTime {
  Seconds makespan{0};   ///< from the first forward to the end of the last backward, optimizer excluded
  /// Distance of two iterations in a train of them: makespan, but for kZbH2 and kZbV, whose stages step without a barrier
  /// (the optimizer is checked afterwards), the longest time from a stage's first pass to its last.
  Seconds iteration{0};
  std::span<const StageUse> stages;  ///< [p]
  std::span<const ChunkUse> chunks;  ///< [p × v] as PipelineProblem::stages
  int64_t operations = 0;            ///< passes of the schedule
  int64_t simulated = 0;             ///< of these, passes that were simulated; the rest repeats the steady state
};

/// Memory that simulations reuse: after the first call of a size nothing is allocated. Threads: one at a time.
class PipelineScratch {
 public:
  PipelineScratch();
  ~PipelineScratch();
  PipelineScratch(PipelineScratch&&) noexcept;
  PipelineScratch& operator=(PipelineScratch&&) noexcept;

  struct Tables;
  Tables& tables() { return *tables_; }

 private:
  std::unique_ptr<Tables> tables_;
};

/// Simulates one iteration exactly. Every stage runs its passes in the order of the schedule, each as soon as its input
/// is there; the order never depends on times.
/// Errors: kInvalidArgument where sizes do not fit each other, a time is negative, not finite or above 5 · 10⁶ s in sum, or
/// the schedule does not allow the shape (kInterleaved with v > 1 wants p | m).
/// Complexity: O(p·m·v) at most; O(p²) for kinds but kZbV where the steady state sets in at once, as with equal stages.
/// Source: orders as named at ScheduleKind; warm-up of the interleaved schedule as in Megatron-LM.
[[nodiscard]] Result<PipelineTime> SimulatePipeline(const PipelineProblem& problem, PipelineScratch& scratch);

/// Most chunk activations that stage `stage` of p holds at once (micro-batches × chunks; divide by v for micro-batches of
/// the whole stage), weight gradients that wait included. Equals StageUse::in_flight without simulating.
/// Requires: 0 ≤ stage < p, m ≥ 1, v as in PipelineProblem. Complexity: O(1).
int64_t InFlight(ScheduleKind schedule, int64_t stage, int64_t p, int64_t m, int64_t v);

/// Most micro-batches that chunk 0 of stage 0 holds at once: they follow each other there, and chunks do not share evenly.
/// Requires: as InFlight(). Complexity: O(1).
int64_t FirstChunkInFlight(ScheduleKind schedule, int64_t p, int64_t m, int64_t v);

}  // namespace weft::planner::tasks
