// CASSINI's circle: the jobs of one link rolled onto a circle whose perimeter is a common multiple of their periods, each
// as a pattern of demand that may be rotated. The less demand lies above the link's capacity, the better the jobs fit.
//
//   LinkCircle circle = MakeCircle(capacity, jobs);
//   const CircleFit fit = FitCircle(circle);      // rotations, score 1: they never collide
//
// Demand is piecewise constant, so the excess is piecewise linear in the rotations, with kinks where an edge of one job's
// pattern meets an edge of another's. Its least value therefore lies where n - 1 such meetings tie all jobs together, and
// trying these is exact on the continuous circle, without an angle step.
//
// Source: circle, score and shift are CASSINI (NSDI'24), sections 3 and 4; the exact search is derived above.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/units.h"

namespace weft::planner::inline flows {

/// A time in [0, period) during which a job sends at `rate`; may not wrap around.
struct Burst {
  Seconds begin{0}, end{0};
  BitsPerSecond rate;
};

/// What one job sends over one link in one iteration. Requires: 0 ≤ begin < end ≤ period, bursts ascending and disjoint.
struct CommunicationPattern {
  Seconds period{0};
  std::vector<Burst> bursts;
};

/// A job on a circle: `repeats` copies of its pattern, stretched so that they fill the perimeter.
struct CircleJob {
  int32_t repeats = 1;
  Seconds period{0};                  ///< perimeter / repeats
  std::vector<Burst> bursts;          ///< of one copy, within [0, period)
};

struct LinkCircle {
  BitsPerSecond capacity;
  Seconds perimeter{0};
  double stretch = 0;                 ///< largest relative change of a period that the common perimeter needs; ≥ 0
  std::vector<CircleJob> jobs;
};

struct CircleOptions {
  int32_t most_repeats = 12;          ///< of the job with the longest period
  double tolerance = 0.005;           ///< a perimeter that stretches no period by more is taken at once
  size_t exact_up_to = 4;             ///< jobs; above, insertion and moves of one job at a time
  /// So many times the collisions of a link are summed before a search ends where it is. 0: no limit. PlanTimeShifts
  /// (time_shift.h) spends it twice at most: on the circles of all links, then on all links together.
  int64_t evaluations = 0;
  /// Of time_shift.h: of each job so many links are looked at, those on which most can collide. 0: no limit.
  /// Links whose circle has more edges than `edges` are left out as well: many bursts of many periods average out.
  size_t links_per_job = 0;
  size_t edges = 0;
};

/// Jobs whose periods are further apart have no circle worth its edges: to the slower one the faster one is a constant load.
inline constexpr double kMostPeriodRatio = 1e4;

/// The shortest perimeter within the tolerance, or the one that stretches least; periods only grow, since a host can delay a
/// burst but not hurry it. Bursts keep their lengths. No job gets more repeats than `most_repeats` of one that is
/// kMostPeriodRatio times slower: beyond that ratio `stretch` is large. Requires: periods > 0, capacity > 0.
LinkCircle MakeCircle(BitsPerSecond capacity, std::span<const CommunicationPattern> jobs, const CircleOptions& options = {});

/// ∫ max(0, demand - capacity) over the circle, in bits, with job j late by rotation[j] seconds.
/// Complexity: O(edges log edges).
double CircleExcess(const LinkCircle& circle, std::span<const double> rotation);

/// 1 - excess / (perimeter · capacity): 1 where nothing collides, and less, also below 0, where much does.
double CircleScore(const LinkCircle& circle, double excess);

struct CircleFit {
  std::vector<double> rotation;       ///< seconds, in [0, period) of each job; job 0 stays
  double excess = 0;                  ///< bits per perimeter
  double score = 1;
  bool exact = true;
  bool complete = true;               ///< the search was not cut short by `evaluations`
};

/// Rotations of least excess: exactly for up to `exact_up_to` jobs, if that takes no more than `evaluations`. Ties go to the
/// first found in a fixed order.
CircleFit FitCircle(const LinkCircle& circle, const CircleOptions& options = {});

/// Rotations of job j, in [0, its period), at which one of its edges meets one of job k's, which is late by `rotation`.
/// Ascending, each once.
std::vector<double> Meetings(const LinkCircle& circle, size_t j, size_t k, double rotation);

}  // namespace weft::planner::flows
