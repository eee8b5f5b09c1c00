#include <fmt/format.h>

#include "planner/baselines/baselines.h"
#include "planner/jobs/decide/parts.h"

namespace weft::planner::inline baselines {

Decision DecideVertical(const Situation& situation) {
  const JobPaths hashed = DecideEcmp(situation, situation.seed).paths;
  Decision decision;
  for (size_t j = 0; j < situation.jobs.size(); ++j) {
    Situation own{.topology = situation.topology, .capacity = situation.capacity, .jobs = {situation.jobs[j]},
                  .names = {situation.names[j]}, .keys = {situation.keys[j]}, .alone = {situation.alone[j]}, .slots = {0}, .present = {{}}};
    decision.paths.push_back(SelfAwarePaths(own, {hashed[j]}).front());
  }
  decision.classes.assign(situation.jobs.size(), 0);
  decision.gates.assign(situation.jobs.size(), {});
  decision.why.push_back(fmt::format("{} jobs, each on paths of its own as if it were alone", situation.jobs.size()));
  return decision;
}

}  // namespace weft::planner::baselines
