// The bound that the demo holds its measurements against: the simulated optimum on this fabric.
//
//   compute    of each job, timed without exchange in the phase that the bound judges (estimate.h)
//   timeline   of bucket_timeline.h: buckets go one after another, each once it was ready in that measurement
//   rate       of the jobs that communicate at a moment: the measured goodput of one uncontended flow, divided by the least
//              link utilisation that any split of their flows over the paths reaches (the fractional multi-commodity
//              optimum of planner/flows/path_choice.h), solved anew for every set of jobs
//
// The jobs' iterations run against each other in the engine of all simulations (planner/network/fluid.h); the best is taken of all
// phases between the jobs, be it that each begins an iteration as soon as it can or that both wait for a common pace. Nothing in it is fitted to the runs that it judges.
#pragma once

#include <string>
#include <vector>

#include "cli/demo/bucket_timeline.h"
#include "common/units.h"
#include "planner/planner.h"

namespace weft::cli {

/// The demo's fabric as the bound sees it: rates are goodput. Cables are named leaf and spine, 1-based.
struct BoundFabric {
  int leaves = 2;
  int spines = 2;
  int hosts_per_leaf = 4;
  BitsPerSecond goodput;  ///< of one uncontended flow
};

/// What the demo did to the fabric.
struct CableFactor {
  int leaf = 1;
  int spine = 1;
  double factor = 1;  ///< of the rate that is left, both directions
};
struct BackgroundFlow {
  std::string from, to;  ///< host names
  int spine = 1;         ///< that its packets take
  BitsPerSecond rate;    ///< goodput it asks for
};

/// A job's ring: rank r on `hosts[r]` sends to the next.
struct BoundJob {
  std::string name;
  std::vector<std::string> hosts;
  DataParallelIteration iteration;
};

struct Bound {
  double utilisation = 0;           ///< least possible maximum over links when every flow of all jobs asks for `goodput`
  BitsPerSecond shared_rate;        ///< that the worst flow gets while all jobs communicate
  std::vector<BitsPerSecond> alone_rates;  ///< per job, while no other communicates
  std::vector<Seconds> iterations;  ///< per job, mean in the steady state
};

/// Requires: hosts exist in `fabric`; one or two jobs, with buckets. Complexity: 2^jobs flow problems, then about a million events.
Bound ComputeBound(const BoundFabric& fabric, const std::vector<BoundJob>& jobs,
                   const std::vector<CableFactor>& cables, const std::vector<BackgroundFlow>& background);

/// The formula with the numbers of one job put in, for people.
std::string ExplainBound(const BoundJob& job, const Bound& bound);

}  // namespace weft::cli
