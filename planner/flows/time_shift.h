// When each job should start its iterations, so that bursts of jobs that share links interleave.
//
// Jobs and the links on which they can collide form the affinity graph. Where it has no loop, the best rotations of every
// link's circle can be had together: passing a job from one link to the next only turns the next circle as a whole. Where
// it has loops, links are tied in by falling traffic that collides, those that would close a loop are left to what the
// others decide, and then one job at a time is moved to where all of its links together collide least. Groups of up to
// four jobs are solved exactly over all their links at once.
//
// Source: affinity graph and traversal are CASSINI (NSDI'24), section 4.2, which drops placements with loops; the rest is
// derived here: circle.h's argument holds for a sum over links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/flows/circle.h"
#include "planner/flows/periodic.h"

namespace weft::planner::inline flows {

/// A job's pattern on one link.
struct LinkUse {
  LinkId link;
  std::vector<Burst> bursts;
};

struct ShiftJob {
  Seconds period{0};
  std::vector<LinkUse> uses;            ///< links distinct
};

struct ShiftedLink {
  LinkId link;
  double score_before = 1;              ///< all shifts 0
  double score = 1;                     ///< with the shifts; 1: no collision
  double best_score = 1;                ///< of this link's circle alone; a bound where `exact`
  double stretch = 0;                   ///< of periods, that the link's circle needs
  bool exact = true;                    ///< best_score is the optimum
};

struct ShiftPlan {
  std::vector<Seconds> shift;           ///< per job, in [0, period)
  std::vector<ShiftedLink> links;       ///< where jobs can collide, ascending
  double excess_before = 0;             ///< bits per second above capacity, mean over time, all links
  double excess = 0;
  double excess_bound = 0;              ///< sum of the links' own optima
  bool loops = false;                   ///< the affinity graph has one
  size_t links_left_out = 0;            ///< where jobs can collide, past CircleOptions or kMostPeriodRatio
  bool complete = true;                 ///< no search was cut short
};

/// Requires: every period > 0, bursts within it; capacities > 0 where used.
ShiftPlan PlanTimeShifts(std::span<const BitsPerSecond> capacity, std::span<const ShiftJob> jobs,
                         const CircleOptions& options = {});

/// The pattern of a periodic job alone: on each link, its bursts as they come one after another.
ShiftJob PatternOf(std::span<const BitsPerSecond> capacity, const PeriodicJob& job);

}  // namespace weft::planner::flows
