// Published policies, plain ECMP, every job for itself and enumeration, each a function from what a policy knows to what it answers: to compare with. Internal to
// planner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/result.h"
#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline baselines {

/// Every flow on the path that a hash of (seed, job, flow) picks, one class, open gates.
Decision DecideEcmp(const Situation& situation, uint64_t seed);

/// Source: Crux (SIGCOMM'24), sections 4.1 to 4.3: jobs by falling intensity, each flow on the least congested path;
/// priority k · intensity; K classes by the best cut of 10 sampled topological orders of the contention graph.
Decision DecideCrux(const Situation& situation);
/// The parts of the above: paths, and classes for jobs on given paths.
JobPaths CruxPaths(const Situation& situation);
std::vector<int32_t> CruxClasses(const Situation& situation, const std::vector<PeriodicJob>& jobs);

/// Source: CASSINI (NSDI'24), sections 3 and 4: ten candidates (here: hash draws, since placements are given), every
/// shared link's circle in steps of 5 degrees, candidates whose affinity graph has a loop dropped, the best mean
/// score wins, shifts by traversal. Where all have loops the paper places elsewhere; here the links that close loops
/// are left out.
Decision DecideCassini(const Situation& situation);
/// Gates for jobs on given paths, and the mean score of the shared links; `loops` says whether any link was left out.
struct CassiniShifts {
  std::vector<Gate> gates;
  double score = 1;
  bool loops = false;
};
CassiniShifts PlanCassiniShifts(const Situation& situation, const std::vector<PeriodicJob>& jobs);

/// Source: Sincronia (SIGCOMM'18), section 4: BSSI order of the jobs' coflows over all links, unit weights; the first
/// K - 1 jobs get a class of their own, all others the last.
Decision DecideSincronia(const Situation& situation);
std::vector<int32_t> SincroniaClasses(const Situation& situation, const std::vector<PeriodicJob>& jobs);

/// Every job as if there were no other: its own flows kept apart from each other, starting where a hash puts them; one class, open
/// gates.
Decision DecideVertical(const Situation& situation);

/// The best GPU use over all paths × classes. Errors: kResourceExhausted with the number of cases beyond 10 ·
/// evaluations.
[[nodiscard]] Result<Decision> DecideOptimal(const Situation& situation, int64_t evaluations);

}  // namespace weft::planner::baselines
