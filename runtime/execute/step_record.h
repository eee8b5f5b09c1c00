// What a step's execution took, instruction by instruction, as planner::TimelineOf() has what it should take. No torch here.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/planner.h"
#include "planner/tasks/program_timeline.h"

namespace weft::runtime {

/// Threads: a span is written by the one thread that runs its instruction; read once the step is over.
struct StepRecord {
  static StepRecord Of(size_t instructions, Seconds begin) {
    return {.begin = begin,
            .instructions = std::vector<planner::InstructionSpan>(instructions),
            .processor = std::vector<Seconds>(instructions),
            .parts = {}};
  }

  Seconds begin{0};                                   ///< by SystemClock
  std::vector<planner::InstructionSpan> instructions;  ///< since `begin`; of a receipt, since it was asked for
  std::vector<Seconds> processor;                      ///< by instruction: of a computation, what of a core it took; else 0
  planner::StepParts parts;
  int64_t stretched = 0;  ///< computations that were to take at least so long …
  int64_t overruns = 0;   ///< … and by themselves took longer
};

}  // namespace weft::runtime
