// The bound that the demo holds its measurements against: the best that any controller could reach on this fabric.
//
//   bound = iteration of the timeline (planner/tasks/timeline.h) with
//     compute   measured with communication off, on the same core
//     rate      goodput of one uncontended flow, measured, divided by the least link utilisation that any split of the
//               flows over the paths can reach (fractional multi-commodity optimum of planner/flows/path_choice.h)
//
// Nothing in it is fitted to the runs that it judges.
#pragma once

#include <string>
#include <vector>

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
struct ForeignFlow {
  std::string from, to;  ///< host names
  int spine = 1;         ///< that its packets take
  BitsPerSecond rate;    ///< goodput it asks for
};

/// A job's ring: rank r on `hosts[r]` sends to the next.
struct BoundJob {
  std::string name;
  std::vector<std::string> hosts;
  planner::DataParallelIteration iteration;
};

struct Bound {
  double utilisation = 0;   ///< least possible maximum over links when every flow asks for `goodput`
  BitsPerSecond rate;       ///< that the worst flow then gets
  std::vector<Seconds> iterations;  ///< per job
};

/// Solves the flow problem of all `jobs` at once. Requires: hosts exist in `fabric`.
Bound ComputeBound(const BoundFabric& fabric, const std::vector<BoundJob>& jobs,
                   const std::vector<CableFactor>& cables, const std::vector<ForeignFlow>& foreign);

/// The formula with the numbers of one job put in, for people.
std::string ExplainBound(const BoundJob& job, const Bound& bound);

}  // namespace weft::cli
