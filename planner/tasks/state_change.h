// From one step program to another between two steps: which rank takes which place of the new one, and who sends what of the
// state to whom. Every element that a rank needs and does not have is sent to it once; ranks take the places for which that is
// least.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/tasks/program_state.h"

namespace weft::planner::inline tasks {

/// Places of a program, by rank of the run: a rank may have none (-1) and stand by.
using Places = std::vector<int32_t>;

/// A box that goes from a rank to one, which may be itself: `from` in the memory that it has, `to` in the one that it fills.
struct StateMove {
  int32_t sender = 0, receiver = 0;
  HeldBox from, to;
  friend bool operator==(const StateMove&, const StateMove&) = default;
};

/// The two ranks that exchange in a round, first ≤ second; in this order all of first's to second, then all of second's to first.
struct StateRound {
  int32_t round = 0;
  int32_t first = 0, second = 0;
  friend bool operator==(const StateRound&, const StateRound&) = default;
};

struct StateChange {
  Places places;                  ///< of the new program
  std::vector<StateMove> moves;   ///< by receiver and place in its memory; copies on a rank among them
  std::vector<StateRound> pairs;  ///< of ranks that send something, by round: no rank is in two pairs of one
  int64_t sent = 0;               ///< elements of all moves from one rank to another, in each part of the state
};

/// Who chooses the places of the new program.
enum class PlaceChoice {
  kLeastSent,   ///< those for which least is sent; of more than kMostAssignedRanks ranks as kOwnNumber
  kOwnNumber,   ///< each rank that of its own number: the new program was priced so, on the fabric between the ranks
};

/// Requires: places of `from` that are all taken once, states of the same model, at least as many ranks as `to` has. What several
/// ranks have is sent by the one that has to send least so far.
/// Errors: kInvalidArgument for too few ranks, or an element that no rank has.
/// Complexity: O(ranks³ + ranks² · boxes).
[[nodiscard]] Result<StateChange> PlanStateChange(const ProgramState& from, const Places& places, const ProgramState& to,
                                                  PlaceChoice choice = PlaceChoice::kLeastSent);

inline constexpr int64_t kMostAssignedRanks = 512;

/// What of a program's training is in no state, so that no change moves it and no checkpoint has it; empty: nothing.
std::string LeftBehind(const StepProgram& program);

}  // namespace weft::planner::tasks
