// One scenario under one policy, from its first arrival to its end.
// Internal to planner/jobs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/jobs/decide/situation.h"
#include "planner/jobs/simulate/open_jobs.h"
#include "planner/jobs/simulate/prepare.h"
#include "planner/jobs/simulate/scenario.h"
#include "planner/network/fluid.h"

namespace weft::planner::inline jobs {

/// A time in which the same jobs run on the same links.
struct Epoch {
  Seconds length{0};
  std::vector<BitsPerSecond> capacity;
  std::vector<size_t> present;          ///< jobs of the scenario, ascending
};

/// What a job did in a way that it no longer runs in.
struct EarlierRun {
  size_t job = 0, way = 0;
  FluidProgress progress;
};

/// What a run leaves behind.
struct RunRecord {
  std::vector<FluidProgress> jobs;      ///< per job of the scenario
  std::vector<size_t> ways;             ///< likewise, that it ran
  std::vector<EarlierRun> earlier;      ///< of jobs that began anew; ascending in time
  // Likewise, as decided last:
  std::vector<int32_t> classes;
  std::vector<Seconds> gate_periods;    ///< 0: no gate
  std::vector<std::vector<size_t>> paths;
  std::vector<double> carried;          ///< bits per link
  std::vector<double> possible;         ///< bits per link that its capacity allowed
  std::vector<Epoch> epochs;
  std::vector<std::string> decisions;
  std::vector<RestartAdvice> advice;
  int64_t events = 0;
  int64_t evaluations = 0;
  bool complete = true;
  std::vector<std::vector<std::string>> hosts;  ///< per job: those that the policy gave it
  std::shared_ptr<const OpenedScenario> opened; ///< nothing where all jobs had hosts
  FluidTrace trace;                     ///< jobs numbered as in the scenario
};

/// What happens is `truth`; the policy is asked with `prepared`, the scenario as it is known: two engines run beside each other, and
/// of what happens in the first the policy sees who arrives and leaves, and links. The same object twice: it sees all.
/// `seed` replaces the scenario's. Jobs that never began have no progress. Errors: those of the policy. Requires: the same jobs, ways and
/// flows' paths in both; `options.truth` is what `truth` was prepared of, where that is something else.
[[nodiscard]] Result<RunRecord> RunScenario(const Scenario& scenario, const PreparedScenario& prepared, const PreparedScenario& truth,
                                            SimulationPolicy policy, const SimulationOptions& options, uint64_t seed);

}  // namespace weft::planner::jobs
