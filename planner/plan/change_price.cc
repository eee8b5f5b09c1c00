#include "planner/plan/change_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/tasks/program_state.h"
#include "planner/tasks/state_change.h"

namespace weft::planner {
namespace {

constexpr int64_t kStateParts = 3;  // parameters and both moments

/// Bytes that go in one half of a round, by what they load: (tier, unit, out or in); tier -1 is the node.
using Load = std::map<std::tuple<int, int64_t, bool>, double>;

/// A send from node to node, in `load`: of the nodes' own links and of each tier's units that it leaves and enters.
void AddSend(const ClusterSpec& cluster, int64_t from, int64_t to, double bytes, Load* load) {
  (*load)[{-1, from, true}] += bytes;
  (*load)[{-1, to, false}] += bytes;
  for (size_t t = 0; t < cluster.tiers.size(); ++t) {
    const int64_t nodes = std::max<int64_t>(cluster.tiers[t].nodes, 1);
    if (from / nodes == to / nodes) return;
    (*load)[{static_cast<int>(t), from / nodes, true}] += bytes;
    (*load)[{static_cast<int>(t), to / nodes, false}] += bytes;
  }
}

/// How long the busiest of what `load` names takes.
Seconds TimeOf(const ClusterSpec& cluster, const Load& load) {
  double longest = 0;
  for (const auto& [key, bytes] : load) {
    const int tier = std::get<0>(key);
    double rate = cluster.nic_rate.value();
    if (tier >= 0) {
      const FabricTier& unit = cluster.tiers[static_cast<size_t>(tier)];
      if (!(unit.out.value() > 0)) continue;  // nothing is outside
      rate = unit.out.value() * static_cast<double>(unit.nodes);
    }
    rate *= cluster.network_efficiency;
    if (rate > 0) longest = std::max(longest, bytes * 8 / rate);
  }
  return Seconds(longest);
}

}  // namespace

Result<ChangePrice> PriceChange(const ModelSpec& model, const ClusterSpec& cluster, const StepProgram& from, const StepProgram& to) {
  const auto ranks = static_cast<int64_t>(from.ranks.size());
  if (static_cast<int64_t>(to.ranks.size()) != ranks || ranks > kMostPricedRanks || ranks > cluster.TotalGpus()) {
    return Fail(Code::kInvalidArgument, fmt::format("programs of {} and {} ranks on {} GPUs, expected the same number, at most {}", ranks,
                                                    to.ranks.size(), cluster.TotalGpus(), kMostPricedRanks));
  }
  WEFT_ASSIGN_OR_RETURN(const ProgramState before, StateOf(from, model));
  WEFT_ASSIGN_OR_RETURN(const ProgramState after, StateOf(to, model));
  Places places(from.ranks.size());
  std::iota(places.begin(), places.end(), 0);
  WEFT_ASSIGN_OR_RETURN(const StateChange change, PlanStateChange(before, places, after, PlaceChoice::kOwnNumber));
  std::map<std::pair<int32_t, int32_t>, int64_t> elements;
  for (const StateMove& move : change.moves) {
    if (move.sender != move.receiver) elements[{move.sender, move.receiver}] += move.from.box.elements();
  }
  const int64_t bytes_each = kStateParts * BytesOf(to.type);
  const int64_t per_node = std::max<int64_t>(cluster.gpus_per_node, 1);
  std::map<std::pair<int32_t, bool>, Load> halves;  // of rounds: the first's to the second, then back
  const auto add = [&](int32_t round, bool back, int32_t sender, int32_t receiver) {
    const auto sent = elements.find({sender, receiver});
    const int64_t source = sender / per_node, target = receiver / per_node;
    if (sent == elements.end() || source == target) return;
    AddSend(cluster, source, target, static_cast<double>(sent->second * bytes_each), &halves[{round, back}]);
  };
  for (const StateRound& pair : change.pairs) {
    add(pair.round, false, pair.first, pair.second);
    add(pair.round, true, pair.second, pair.first);
  }
  ChangePrice price{.moved = Bytes(change.sent * bytes_each), .moving = Seconds(0)};
  for (const auto& [half, load] : halves) price.moving += TimeOf(cluster, load) + cluster.nic_latency;
  return price;
}

}  // namespace weft::planner
