#include "planner/flows/repair.h"

#include <algorithm>

namespace weft::planner::inline flows {
namespace {

constexpr int32_t kFine = 192;          // units of a flow: all of kSplitUnits divide it
constexpr double kAlmostFullest = 0.95;

/// Flows some of whose bytes cross a link that `marked` names.
std::vector<bool> FlowsOver(const Instance& instance, const Shares& shares, const std::vector<bool>& marked) {
  std::vector<bool> over(instance.flows.size());
  for (size_t f = 0; f < over.size(); ++f) {
    const InstanceFlow& flow = instance.flows[f];
    for (size_t p = 0; p < flow.paths.size() && !over[f]; ++p) {
      over[f] = shares[f][p] > 0 && std::ranges::any_of(flow.paths[p], [&](int32_t link) { return marked[static_cast<size_t>(link)]; });
    }
  }
  return over;
}

}  // namespace

Shares Repaired(const Instance& instance, const Shares& placed, Budget* budget) {
  std::vector<bool> dead(instance.capacity.size());
  for (size_t l = 0; l < dead.size(); ++l) dead[l] = !(instance.capacity[l] > 0);
  LocalSearch leaving(instance, kFine, kFine / kSplitUnits[0], RoundShares(placed, kFine));
  leaving.Descend(FlowsOver(instance, placed, dead), budget);
  const Shares alive = leaving.AsShares();

  const std::vector<double> load = Loads(instance, alive);
  std::vector<double> use(load.size(), 0);
  for (size_t l = 0; l < use.size(); ++l) use[l] = instance.capacity[l] > 0 ? load[l] / instance.capacity[l] : 0;
  const double crowded = std::min(1.0, kAlmostFullest * *std::ranges::max_element(use));
  std::vector<bool> full(use.size());
  for (size_t l = 0; l < full.size(); ++l) full[l] = use[l] >= crowded;
  LocalSearch search(instance, kFine, kFine, RoundShares(alive, kFine));
  search.Descend(FlowsOver(instance, alive, full), budget);
  return search.AsShares();
}

}  // namespace weft::planner::flows
