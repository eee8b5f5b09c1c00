// Paths where nobody can choose them: a hash decides, and all that a host can do is to draw other ports. Given what a few
// draws of each flow would lead to (as probes found), picks one draw per flow.
//
// Leaves out: splitting a flow, and learning the hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/flows/path_choice.h"

namespace weft::planner {

struct DrawPlan {
  std::vector<size_t> draw;        ///< per flow: index into its draws
  double bottleneck_first = 0;     ///< max load / capacity when every flow keeps its first draw
  double bottleneck = 0;
  bool complete = true;
};

/// `draws[flow]`: the candidate path (index into its paths) that each draw leads to, the present one first; drawing again
/// costs nothing but happens only where a loaded link gets less. Requires: what ChoosePaths requires, and one valid draw
/// per flow at least.
DrawPlan ChooseDraws(const FlowProblem& problem, const std::vector<std::vector<size_t>>& draws);

}  // namespace weft::planner
