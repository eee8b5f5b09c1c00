// What an instruction of a step program waits for: the rule that executor, timeline and memory account share.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/tasks/step_program.h"

namespace weft::planner::inline tasks {

/// Which units a part's computation reads or adds to. Requires: a checked program's class.
class PartUnits {
 public:
  explicit PartUnits(const RankClass& list);
  /// None for a part without parameters; of a tied head the embedding's, of the embedding also the positions'.
  std::vector<int32_t> Of(ModelPart part, int32_t layer, int32_t slice) const;

 private:
  struct Place {
    ModelPart part;
    int32_t layer, slice, unit;
  };
  std::vector<Place> places_;
};

/// A rank's way through its list, as its executor goes: what its own thread waits for, and what communications have to follow.
class ListWaits {
 public:
  /// Requires: a checked program's class, which outlives it.
  explicit ListWaits(const RankClass& list);

  void BeginStep();
  /// Communications that the rank's own thread waits for before the instruction at `k`, the next one; of a communication, before it is
  /// begun.
  std::vector<int32_t> Own(int32_t k) const;
  /// Instructions that have to be over before the communication at `k`, the next one, runs.
  std::vector<int32_t> Before(int32_t k) const;
  /// The instruction at `k` was begun.
  void Pass(int32_t k);

 private:
  const Instruction& At(int32_t k) const { return list_->instructions[static_cast<size_t>(k)]; }

  const RankClass* list_;
  PartUnits units_;
  std::vector<int32_t> writer_;                              // by value
  std::vector<int32_t> last_on_unit_, last_gather_, last_mix_;  // by unit
};

}  // namespace weft::planner::tasks
