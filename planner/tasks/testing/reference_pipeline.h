// For tests: a slow, obvious simulator of pipeline schedules. Every stage has a written-out list of passes; a pass runs when
// its input is there.
#pragma once

#include <vector>

#include "planner/tasks/pipeline.h"

namespace weft::planner::testing {

struct Step {
  char kind;  ///< 'F', 'D' (data gradient, or all of backward) or 'W'
  int64_t chunk, micro_batch;
};

/// The passes of stage `i` of `p`, in order, with `m` micro-batches and `v` chunks per stage.
std::vector<Step> Order(ScheduleKind kind, int64_t i, int64_t p, int64_t m, int64_t v);

struct Reference {
  double makespan = 0, iteration = 0;  ///< seconds, as in PipelineTime
  std::vector<StageUse> stages;
  std::vector<ChunkUse> chunks;
};

/// A stage that gets stuck is a failure of the test. Complexity: O(passes log passes).
Reference ReferencePipeline(const PipelineProblem& problem);

}  // namespace weft::planner::testing
