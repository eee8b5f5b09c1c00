// Whether a job that runs would do better with another strategy, now that the fabric, other jobs or what is known of them are not
// what they were when it was submitted: it is planned anew, as if it were submitted now, and both strategies are priced on what is
// left of links. Pure. Nobody restarts a job here.
//
// Ranks that take another strategy while they run (weft-train) need no restart: then the pause is that of the state that moves over
// the fabric between them, and the answer has the plan that they are to run.
//
// Leaves out: jobs whose user gave the strategy, jobs without a model, and how others' paths would move once it sends otherwise.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "common/result.h"
#include "controller/events.h"
#include "controller/job_planner.h"

namespace weft::controller {

struct AdviceOptions {
  Seconds restart{300};             ///< what a restart costs: launch, checkpoint, lost iterations
  double gain = 0.05;               ///< of an iteration: less is within what predictions err by
  Seconds change{5};                ///< what a change in memory costs besides what moves: new connections and memory, first steps
  double change_gain = 0.05;        ///< of an iteration
};

/// A change in memory has to have paid for its pause after so long, where it is not known when the job ends.
inline constexpr Seconds kChangePaysWithin{600};

struct Advised {
  /// What the fabric gives the job; advice is the same while this is. Empty: not known.
  std::string fabric;
  std::optional<v1::RestartAdvice> advice;
  std::optional<v1::StrategyChange> change;  ///< with its plan; of a job that listens
};

/// Searched, or asked for while the job ran, and not its user's own: the plan's origin, with a strategy, a model and several hosts.
bool CanBeAdvised(const v1::JobSpec& spec, const v1::JobPlan& plan);

/// Nothing in `advice`: the strategy is still the best, another one gains too little, the job ends before a restart has paid for
/// itself, or, where `fabric` is `question.looked_at`, nothing is known to have changed and the last answer stands. Errors: those
/// of PlanJob(). Threads: any.
[[nodiscard]] Result<Advised> AdviseJob(const AdviseRestart& question, const JobPlannerOptions& planner,
                                        const AdviceOptions& options, const std::stop_token& stop = {});

}  // namespace weft::controller
