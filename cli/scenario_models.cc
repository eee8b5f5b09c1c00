#include "cli/scenario_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/plan/model_ways.h"

namespace weft::cli {
namespace {

/// Leaves out sizes in which no strategy fits. False, with the reason on stderr, where a job has no other.
bool DropUnplanned(planner::Scenario* scenario) {
  for (planner::ScenarioJob& job : scenario->jobs) {
    if (job.sizes.empty()) continue;
    std::erase_if(job.sizes, [](const planner::ScenarioSize& size) { return size.ways.empty(); });
    if (!job.sizes.empty()) continue;
    fmt::print(stderr, "weft simulate: job \"{}\": no feasible plan in any of its sizes\n", job.name);
    return false;
  }
  return true;
}

}  // namespace

Result<bool> PlanModels(formats::ScenarioFile* file, planner::Scenario* truth, std::vector<ModelPlan>* plans) {
  planner::Scenario& scenario = file->scenario;
  for (const formats::ScenarioModel& model : file->models) {
    planner::WayPlanner planner(model.spec, model.cluster, model.options);
    for (size_t i = 0; i < model.jobs.size(); ++i) {
      const std::string& name = scenario.jobs[model.jobs[i]].name;
      if (i == 0 || !model.size) fmt::print(stderr, "weft simulate: planning {}{}\n", name,
                 model.size ? fmt::format(" on {} hosts", scenario.jobs[model.jobs[i]].sizes[*model.size].hosts) : "");
      const bool joined = !planner::FindUnjoinedNode(scenario.topology, model.ends[i]);
      auto answer = joined ? planner.On(planner::FindNodeTiers(scenario.topology, model.ends[i])) : planner.Blind();
      if (!answer) return Fail(answer.error().WithContext(model.place));
      if (answer->ways.empty() && model.size) continue;
      if (answer->ways.empty()) {
        for (const std::string& reason : answer->infeasible) {
          fmt::print(stderr, "weft simulate: {}: no feasible plan: {}\n", model.place, reason);
        }
        return false;
      }
      WEFT_RETURN_IF_ERROR(formats::ApplyWays(model, i, answer->ways, false, &scenario));
      if (truth != nullptr) {
        WEFT_RETURN_IF_ERROR(formats::ApplyWays(model, i, answer->ways, true, truth));
      }
      ModelPlan plan{.job = model.size ? fmt::format("{} on {} hosts", name, scenario.jobs[model.jobs[i]].sizes[*model.size].hosts) : name, .ways = {}};
      for (const planner::ModelWay& way : answer->ways) {
        plan.ways.push_back({planner::DescribeStrategy(way.profile.plan.strategy), way.profile.plan.predicted.iteration});
      }
      plans->push_back(std::move(plan));
    }
  }
  return DropUnplanned(&scenario) && (truth == nullptr || DropUnplanned(truth));
}

}  // namespace weft::cli
