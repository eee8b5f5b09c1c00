// The experiment as the planner sees it: which job puts how much on which link, what the planner decides, and what its
// periodic simulator says will come of it. Rates are goodput: what one flow alone on the fabric was measured to move.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/fabric/topology.h"
#include "planner/flows/job_paths.h"
#include "planner/flows/periodic.h"
#include "tests/real/job.h"

namespace weft::real {

struct Model {
  planner::Topology topology;
  std::vector<BitsPerSecond> capacity;        ///< by link
  std::vector<planner::RoutableJob> jobs;     ///< with the flows of FlowsOf()
};

/// `divided`: flows may be divided between paths. `goodput`: of a host's link; the others in proportion.
Model MakeModel(const testbed::FabricOptions& fabric, const std::vector<JobSpec>& jobs, BitsPerSecond goodput, bool divided = false);

/// Windows of one period for jobs that meet: job j's bursts begin `shift[j]` after its computation would let them.
struct Shifts {
  Seconds period{0};
  std::vector<bool> gated;           ///< jobs that meet another one
  std::vector<Seconds> shift;
  Seconds tight{0}, wide{0};         ///< lengths of the windows while jobs move into place, and then
  double score = 0;                  ///< least over the links where jobs meet; 1: nothing collides
};

/// All that is decided for the jobs together. Classes: 0 is served first, 1 is the default.
struct Decision {
  planner::JobPaths paths;
  std::vector<int32_t> classes;
  std::optional<Shifts> shifts;
};

/// Every flow over the spine of that number (1-based): a draw of the hash.
planner::JobPaths AllOver(const Model& model, int spine);
/// The spine that `path` of a flow crosses.
std::string SpineOf(const Model& model, size_t job, size_t flow, size_t path);

std::vector<planner::PeriodicJob> OnPaths(const Model& model, const planner::JobPaths& paths);

/// The planner's classes for the jobs on these paths.
std::vector<int32_t> PlanClasses(const Model& model, const planner::JobPaths& paths);
/// The planner's shifts: bursts are padded, so that what is left of the period is shared out between them.
Shifts PlanShifts(const Model& model, const planner::JobPaths& paths);

/// When in a cycle of `period` a gated job sends its first burst.
Seconds FirstBurst(const Model& model, const planner::PeriodicJob& job, Seconds period);

/// Windows of one period that put every job into a phase of its own choice of `seed`, whether it meets another or not.
Shifts DrawPhases(const Model& model, const planner::JobPaths& paths, uint32_t seed);

/// Mean iteration of each job when job j begins an iteration `starts[j]` from now, over the whole iterations that end
/// within `horizon`, the first not counted.
std::vector<Seconds> Predict(const Model& model, const Decision& decision, const std::vector<Seconds>& starts,
                             Seconds horizon);

}  // namespace weft::real
