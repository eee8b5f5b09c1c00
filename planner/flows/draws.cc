#include "planner/flows/draws.h"

#include <algorithm>

#include "common/check.h"
#include "planner/flows/instance.h"
#include "planner/flows/local_search.h"

namespace weft::planner {

DrawPlan ChooseDraws(const FlowProblem& problem, const std::vector<std::vector<size_t>>& draws) {
  WEFT_CHECK(draws.size() == problem.flows.size(), "not one list of draws per flow");
  // The same problem with only those paths that some draw reaches.
  FlowProblem reached{.topology = problem.topology, .node_budget = problem.node_budget};
  std::vector<std::vector<size_t>> paths_of;  // of the reached problem: path -> path of `problem`
  std::vector<std::vector<int32_t>> first;
  for (size_t f = 0; f < draws.size(); ++f) {
    WEFT_CHECK(!draws[f].empty(), "a flow without a draw");
    FlowDemand flow = problem.flows[f];
    flow.paths.clear();
    flow.present_shares.clear();
    std::vector<size_t> paths;
    for (const size_t path : draws[f]) {
      WEFT_CHECK(path < problem.flows[f].paths.size(), "a draw of a path that its flow does not have");
      if (std::find(paths.begin(), paths.end(), path) != paths.end()) continue;
      paths.push_back(path);
      flow.paths.push_back(problem.flows[f].paths[path]);
    }
    first.emplace_back(paths.size(), 0);
    first.back()[0] = 1;
    paths_of.push_back(std::move(paths));
    reached.flows.push_back(std::move(flow));
  }
  const Instance instance = MakeInstance(reached);
  Budget budget{problem.node_budget};
  LocalSearch search(instance, 1, 1, std::move(first));
  DrawPlan plan;
  plan.bottleneck_first = Bottleneck(instance, search.AsShares());
  search.Descend(std::vector<bool>(draws.size(), true), &budget);
  const Shares shares = search.AsShares();
  plan.bottleneck = Bottleneck(instance, shares);
  plan.complete = !budget.exhausted();
  for (size_t f = 0; f < draws.size(); ++f) {
    const size_t path = static_cast<size_t>(std::max_element(shares[f].begin(), shares[f].end()) - shares[f].begin());
    const auto draw = std::find(draws[f].begin(), draws[f].end(), paths_of[f][path]);
    plan.draw.push_back(static_cast<size_t>(draw - draws[f].begin()));
  }
  return plan;
}

}  // namespace weft::planner
