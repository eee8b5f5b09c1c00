#include "planner/jobs/decide/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "planner/flows/priority.h"
#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/parts.h"
#include "planner/jobs/decide/search.h"
#include "planner/jobs/decide/settle.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kGain = 0.9;   // of what contention costs: less is not worth other classes
constexpr double kMostWeight = 1e12;
constexpr size_t kMostOrdered = 4096;   // jobs, whose pairs are looked at

/// Contention inside one class, or won by the wrong job, costs the intensity of the job that should have gone first.
double Loss(const std::vector<Contention>& pairs, const std::vector<size_t>& order, const std::vector<double>& intensity,
            const std::vector<int32_t>& classes) {
  double loss = 0;
  for (const Contention& pair : pairs) {
    const size_t first = order[pair.first], second = order[pair.second];
    if (classes[first] >= classes[second]) loss += std::min(intensity[first], kMostWeight);
  }
  return loss;
}

}  // namespace

bool CanSimulate(const Situation& situation, const std::vector<PeriodicJob>& jobs, const DecideBudget& budget) {
  return kFewPlans * CostOfEvaluating(situation, jobs, kShortestHorizon * kPlanHorizon) <= static_cast<double>(budget.work);
}

Decision DecideByRules(const Situation& situation, const std::string& name, const JobPaths& paths) {
  const std::vector<PeriodicJob> jobs = OnPaths(situation, paths);
  const std::vector<double> intensity = CorrectedIntensity(situation.capacity, jobs);
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return intensity[a] > intensity[b]; });
  const std::vector<int32_t> present = InForce(situation, paths).classes;
  Decision decision{.paths = paths, .classes = ClassesByValue(jobs, intensity, situation.classes), .gates = std::vector<Gate>(jobs.size()),
                    .why = {}, .complete = false, .simulated = false};
  bool kept = jobs.size() > kMostOrdered;
  if (!kept) {
    const std::vector<Contention> pairs = Contentions(jobs, order);
    kept = Loss(pairs, order, intensity, decision.classes) >= kGain * Loss(pairs, order, intensity, present);
  }
  if (kept) decision.classes = present;
  decision.classes = LowestClasses(situation, jobs, std::move(decision.classes));
  decision.why.push_back(fmt::format("{} jobs, too many to simulate {:.0f} plans of them: {} paths, {}", jobs.size(), kFewPlans, name,
                                     kept ? "classes as they are" : "classes by corrected GPU intensity"));
  if (situation.measured) decision.default_use = EstimateEcmp(situation);
  return decision;
}

}  // namespace weft::planner::jobs
