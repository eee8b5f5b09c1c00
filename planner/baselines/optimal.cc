#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "planner/baselines/baselines.h"
#include "planner/flows/priority.h"

namespace weft::planner::inline baselines {
namespace {

constexpr double kCasesPerEvaluation = 10;

/// The next combination of paths in lexical order; false after the last.
bool NextPaths(const Situation& situation, JobPaths* paths) {
  for (size_t j = 0; j < paths->size(); ++j) {
    for (size_t f = 0; f < (*paths)[j].size(); ++f) {
      if (++(*paths)[j][f] < situation.jobs[j].flows[f].paths.size()) return true;
      (*paths)[j][f] = 0;
    }
  }
  return false;
}

}  // namespace

Result<Decision> DecideOptimal(const Situation& situation, int64_t evaluations) {
  double cases = 1;
  Decision decision;
  for (const RoutableJob& job : situation.jobs) {
    for (const RoutableFlow& flow : job.flows) cases *= static_cast<double>(flow.paths.size());
    cases *= situation.classes;
    decision.paths.emplace_back(job.flows.size(), 0);
  }
  const double limit = kCasesPerEvaluation * static_cast<double>(evaluations);
  if (cases > limit) {
    return Fail(Code::kResourceExhausted,
                fmt::format("policy optimal: {:.4g} cases of paths and classes for {} jobs at {:.6g} s, must be at "
                            "most {:.6g}", cases, situation.jobs.size(), situation.state->now().count(), limit));
  }
  JobPaths paths = decision.paths;
  double best = -1;
  do {
    const std::vector<PeriodicJob> jobs = OnPaths(situation, paths);
    EnumeratedClasses plan = EnumerateClasses(PeriodicSimulator(situation.capacity, jobs), situation.classes);
    if (plan.gpu_use <= best + 1e-9) continue;
    best = plan.gpu_use;
    decision.paths = paths;
    decision.classes = std::move(plan.classes);
  } while (NextPaths(situation, &paths));
  decision.gates.assign(situation.jobs.size(), {});
  decision.evaluations = static_cast<int64_t>(cases);
  decision.why.push_back(fmt::format("best of {:.0f} cases: GPU use {:.4f}", cases, best));
  for (size_t j = 0; j < situation.jobs.size(); ++j) {
    decision.why.push_back(fmt::format("{}: class {}, paths {}", situation.names[j], decision.classes[j],
                                       fmt::join(decision.paths[j], " ")));
  }
  return decision;
}

}  // namespace weft::planner::baselines
