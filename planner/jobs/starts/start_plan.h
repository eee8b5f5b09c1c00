// Which of the jobs that wait begin now, and on how many hosts each: a search over orders and sizes, each pair judged by the
// schedule that it makes until the last of the jobs has left.
//
//   const StartPlan plan = PlanStarts({.hosts = 8, .free = 4, .freed = {{Seconds(60), 4}}, .waiting = {...}});
//   for (const PlannedStart& start : plan.starts) if (start.begin == Seconds(0)) ...
//
// A schedule takes jobs in order and gives each its hosts at the earliest time from which they stay free until it leaves, so that
// small ones slip in before large ones without delaying them. For known run times some order and sizes make the best schedule there
// is, for any measure that rises with the ends (Kolisch 1996: serial schedule generation makes all active schedules).
// Few jobs are enumerated, more are searched from orders by deadline, run time, arrival and size.
//
// Leaves out: which hosts (placements.h), jobs that nobody knows of yet, and that run times depend on who else runs: callers give
// them as they expect them, and a plan that keeps deadlines also where all take a tenth longer is preferred.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/units.h"

namespace weft::planner::inline jobs {

/// A number of hosts that a job can run on, and for how long it then runs.
struct StartSize {
  int32_t hosts = 1;
  Seconds runtime{0};
};

struct WaitingJob {
  Seconds waited{0};                  ///< since it arrived
  std::optional<Seconds> deadline;    ///< from now; may have passed
  double weight = 1;                  ///< what its wait counts, beside what every job's counts: its work
  std::vector<StartSize> sizes;       ///< at least one, each of at most `StartState::hosts`
};

/// Hosts that a job which runs gives back.
struct FreedHosts {
  Seconds after{0};
  int32_t hosts = 0;
};

struct StartState {
  int32_t hosts = 0;                  ///< in all
  int32_t free = 0;                   ///< now; those in neither `free` nor `freed` never become free
  std::vector<FreedHosts> freed;
  std::vector<WaitingJob> waiting;    ///< in order of arrival
  /// How much hosts are asked for by jobs that will still arrive, 0 … 1: what a size costs that uses hosts longer than another one.
  double load = 0;
};

struct PlannedStart {
  size_t job = 0, size = 0;           ///< places in `waiting` and its `sizes`
  Seconds begin{0}, end{0};           ///< from now; infinite: its hosts never become free
};

struct StartPlan {
  std::vector<PlannedStart> starts;   ///< one per waiting job, in order of `begin`
  int32_t late = 0;                   ///< jobs that end past their deadlines
  bool enumerated = false;            ///< nothing is better under these run times
};

/// Orders of jobs that a schedule is made of, at most.
inline constexpr int64_t kMostSchedules = 20'000;
/// Jobs that are searched over, the first to arrive and those with the nearest deadlines; the others follow in order of arrival.
inline constexpr size_t kMostSearched = 24;

/// Fewest late jobs first, then fewest where all run times are a tenth longer, then the least wait and run time in the mean, by job
/// and by weight. A function: same input, same answer. Complexity: O(schedules · jobs · (jobs + freed)).
StartPlan PlanStarts(const StartState& state, int64_t schedules = kMostSchedules);

/// A job as the bound sees it. Times from when the first of them arrives.
struct BoundedJob {
  Seconds arrival{0};
  std::optional<Seconds> deadline;
  Seconds fastest{0};                 ///< no size and no network make it faster
  double least = 0;                   ///< host seconds that it needs in any size
};

/// No schedule makes fewer of them late: those that cannot be on time by themselves, and those for which `hosts` hosts give too few
/// host seconds. Source: Moore 1968, for the relaxation to one machine on which all arrive at once.
int64_t BoundLate(const std::vector<BoundedJob>& jobs, int32_t hosts);

}  // namespace weft::planner::jobs
