// What the simulations of pipeline.h share: the problem in ticks and their working memory. For files of this folder only.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/tasks/pipeline.h"

namespace weft::planner::inline tasks {

/// A picosecond. Sums of 5 · 10⁶ s stay below 2⁶³.
using Tick = int64_t;
inline constexpr double kTicksPerSecond = 1e12;

/// One chunk of one stage.
struct ChunkCost {
  Tick forward = 0;
  Tick backward = 0;       ///< data gradient; with weight gradient where the schedule does not split
  Tick weight = 0;         ///< 0 where the schedule does not split
  Tick send_forward = 0;   ///< until the next virtual stage has the output; 0 for the last
  Tick send_backward = 0;  ///< until the one before has the gradient; 0 for the first
};

/// A stage in the middle of a simulation.
struct Lane {
  Tick free = 0;           ///< end of the pass before
  Tick forward_mail = 0;   ///< when the last output sent arrives, and the link is free; ZB-V: what was sent to the next stage
  Tick backward_mail = 0;  ///< when the last gradient sent arrives; ZB-V: what was sent to the stage before
  int64_t weights_waiting = 0;  ///< how many weight gradients may wait before one must run
  int64_t forward_chunk = 0, forward_place = 0, backward_chunk = 0, backward_place = 0;
};

struct ChunkTicks {
  Tick first_forward = 0, first_backward_end = 0, last_backward = 0, gradients_ready = 0;
};

/// One pass of a fixed order, as indices: starts at max(free[stage], ready[needs]), and writes ready[gives] and over[gives].
struct Pass {
  uint32_t needs, gives;
  uint16_t stage, cost;
};

struct PipelineScratch::Tables {
  int64_t p = 0, v = 1, m = 1;
  Tick blocking = 0;               ///< all bits where sends block, as a mask of send times
  std::vector<ChunkCost> costs;    ///< [p × v]
  std::vector<Lane> lanes;         ///< [p]
  std::vector<Lane> checkpoint;    ///< [p]
  std::vector<ChunkTicks> chunks;  ///< [p × v]
  int64_t simulated = 0;

  // ZB-V: an order that every stage and every dependency agrees with, kept for the next problem of the same shape.
  int64_t order_p = 0, order_m = 0;
  std::vector<Pass> order;
  std::vector<Tick> ready, over;           ///< by slot: when the receiver has it, and when its pass is over
  std::vector<Tick> pass_cost, pass_send;  ///< [p × 6]
  std::vector<char> pass_down;             ///< [p × 6] whether it is sent to the next stage, not to the one before

  std::vector<StageUse> stage_use;
  std::vector<ChunkUse> chunk_use;
};

/// What SimulatePipeline refuses, refused.
[[nodiscard]] Status CheckPipeline(const PipelineProblem& problem);

/// Runs every schedule but ZB-V: lanes and chunks of `tables` are the answer. Requires: costs are filled.
void RunWave(ScheduleKind schedule, PipelineScratch::Tables& tables);

/// The same for ZB-V. Requires: v = 2.
void RunZbV(PipelineScratch::Tables& tables);

}  // namespace weft::planner::tasks
