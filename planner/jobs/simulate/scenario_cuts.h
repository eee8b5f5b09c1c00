// The cuts of a scenario (fabric/fabric_cuts.h, and single links that all paths of a flow cross), and what its jobs send over them,
// for cut_bound.h. Internal to planner/jobs.
#pragma once

#include <span>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/fabric/fabric_cuts.h"
#include "planner/jobs/cut_bound.h"
#include "planner/jobs/simulate/prepare.h"
#include "planner/jobs/simulate/scenario.h"

namespace weft::planner::inline jobs {

class ScenarioCuts {
 public:
  ScenarioCuts(const Scenario& scenario, const PreparedScenario& prepared);

  /// [jobs of the scenario]; one that waits for hosts has no ways.
  const std::vector<BoundJob>& jobs() const { return jobs_; }
  /// Of each cut while links give this. Requires: [links].
  std::vector<BitsPerSecond> Capacities(std::span<const BitsPerSecond> links) const;

 private:
  void AddForcedLinks(const PreparedScenario& prepared);

  FabricCuts cuts_;
  std::vector<LinkId> forced_;                 // after those of `cuts_`
  std::vector<BoundJob> jobs_;
};

}  // namespace weft::planner::jobs
