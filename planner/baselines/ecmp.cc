#include <fmt/format.h>

#include "planner/baselines/baselines.h"

namespace weft::planner::inline baselines {
Decision DecideEcmp(const Situation& situation, uint64_t seed) {
  Decision decision;
  size_t flows = 0;
  for (size_t j = 0; j < situation.jobs.size(); ++j) {
    decision.paths.emplace_back();
    for (size_t f = 0; f < situation.jobs[j].flows.size(); ++f) {
      decision.paths[j].push_back(HashedPath(seed, situation.keys[j], f, situation.jobs[j].flows[f].WholePaths()));
    }
    flows += situation.jobs[j].flows.size();
  }
  decision.classes.assign(situation.jobs.size(), 0);
  decision.gates.assign(situation.jobs.size(), {});
  decision.why.push_back(fmt::format("{} flows of {} jobs hashed with seed {}", flows,
                                     situation.jobs.size(), seed));
  return decision;
}

}  // namespace weft::planner::baselines
