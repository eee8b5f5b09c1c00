// What becomes of a plan for jobs that really run: it replaces what is in force where it gains enough, and stands only if plain ECMP
// would not do better where profiles are wrong.
// Internal to planner/jobs.
#pragma once

#include <optional>

#include "planner/jobs/decide/search.h"
#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

/// Plans to choose from; all judged over the same horizon.
struct SettleChoices {
  JudgedTrial present;                 ///< what is in force
  std::optional<JudgedTrial> open;     ///< the best that holds nobody back
  std::optional<JudgedTrial> gated;    ///< the best with time windows
};

/// The plan in force, or one whose gain is worth the change; `decision` gets why, and what was rejected. Requires:
/// situation.measured.
JudgedTrial Settle(const Situation& situation, SettleChoices choices, Decision* decision);

/// Takes back classes if plain ECMP might do better in some world in which profiles are off; `iterations` as Evaluate(). Windows are
/// left out: whoever measures a job sets it free where they slow it down. Fills the decision's default_use, margin and rejected. Requires: situation.measured.
void KeepSafe(const Situation& situation, double iterations, TrialPlan* plan, Decision* decision);

/// GPU use of plain ECMP as Estimate() has it, mean over a few hash seeds.
double EstimateEcmp(const Situation& situation);

}  // namespace weft::planner::jobs
