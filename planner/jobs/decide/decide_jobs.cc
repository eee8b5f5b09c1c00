// Weft's policy: every job's way first (way_choice.h), then for the best few choices of ways all that the network decides
// (network_plan.h), and of those the one that is best where profiles are off.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/network_plan.h"
#include "planner/jobs/decide/search.h"
#include "planner/jobs/decide/situation.h"
#include "planner/jobs/decide/way_choice.h"

namespace weft::planner::inline jobs {

Decision DecideJobs(const Situation& situation, const DecideBudget& budget) {
  const WayChoice choice = ChooseWays(situation, budget);
  const auto count = static_cast<int64_t>(choice.ways.size());
  // Quick plans say which ways may be good, full ones which are. The last of them is what there is now: others have to beat it.
  std::vector<NetworkPlan> plans;
  int64_t evaluations = choice.evaluations;
  bool complete = choice.complete;
  for (const std::vector<size_t>& ways : choice.ways) {
    const Situation chosen = WithWays(situation, ways);
    const DecideBudget part{std::max<int64_t>(1, (budget.evaluations - choice.evaluations) / count),
                            std::max<int64_t>(1, (budget.work - choice.work) / count), budget.stop};
    plans.push_back(PlanNetwork(chosen, part));
    Decision& decision = plans.back().decision;
    decision.ways = ways;
    evaluations += decision.evaluations;
    complete &= decision.complete;
  }
  const Outcome& kept = plans.back().robust;
  size_t best = plans.size() - 1;
  double most = 0;
  for (size_t p = 0; p + 1 < plans.size(); ++p) {
    const double score = ScoreOf(WeightsFor(situation.objective), plans[p].robust, kept);
    if (score > most) best = p, most = score;
  }
  Decision decision = std::move(plans[best].decision);
  decision.evaluations = evaluations;
  decision.complete = complete;
  if (best + 1 != plans.size()) {
    decision.why.push_back(fmt::format("every job in the way that is best alone: GPU use {:.4f}, mean slow-down {:.4f} with profiles off, in "
                                       "place of {:.4f}, {:.4f}", kept.gpu_use, kept.mean_slowdown, plans[best].robust.gpu_use,
                                       plans[best].robust.mean_slowdown));
  }
  const std::vector<std::string> ways = ExplainWays(situation, decision.ways);
  decision.why.insert(decision.why.end(), ways.begin(), ways.end());
  return decision;
}

}  // namespace weft::planner::jobs
