#include "planner/plan/change_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/parallelism/group_network.h"
#include "planner/tasks/program_state.h"
#include "planner/tasks/state_change.h"

namespace weft::planner {
namespace {

constexpr int64_t kStateParts = 3;  // parameters and both moments

/// One of a pair's two sends.
struct Send {
  int32_t round, sender, receiver;
  bool back;
  double bytes;
};

/// How many of a half of a round leave or enter a unit: (round, half, ranks in a unit, unit, leaves).
using Crossing = std::tuple<int32_t, bool, int64_t, int64_t, bool>;

/// The ways between ranks at the rates of the one account of links (GroupNetwork), shared by those who take them in the same half of
/// a round.
class Ways {
 public:
  Ways(const GroupNetwork& network, const std::vector<Send>& sends) : network_(network) {
    units_.emplace_back(network.gpus_per_node, network.nic_rate);
    for (size_t t = 0; t < network.tiers; ++t) units_.emplace_back(network.above[t].gpus, network.above[t].rate);
    for (const Send& send : sends) {
      for (const auto& [ranks, rate] : units_) {
        if (send.sender / ranks == send.receiver / ranks) break;
        ++crossings_[{send.round, send.back, ranks, send.sender / ranks, true}];
        ++crossings_[{send.round, send.back, ranks, send.receiver / ranks, false}];
      }
    }
  }

  Seconds TimeOf(const Send& send) const {
    if (send.sender / network_.gpus_per_node == send.receiver / network_.gpus_per_node) {
      const double rate = network_.direct_intra_rate;
      return Seconds(network_.intra_latency + (rate > 0 ? send.bytes / rate : 0));
    }
    double slowest = 0;  // seconds per byte
    for (const auto& [ranks, rate] : units_) {
      if (send.sender / ranks == send.receiver / ranks || !(rate > 0)) break;
      const int64_t beside = std::max(crossings_.at({send.round, send.back, ranks, send.sender / ranks, true}),
                                      crossings_.at({send.round, send.back, ranks, send.receiver / ranks, false}));
      slowest = std::max(slowest, static_cast<double>(beside) / (rate * static_cast<double>(ranks)));
    }
    return Seconds(network_.nic_latency + send.bytes * slowest);
  }

 private:
  const GroupNetwork& network_;
  std::vector<std::pair<int64_t, double>> units_;  // ranks in one, byte/s out of it for each
  std::map<Crossing, int64_t> crossings_;
};

}  // namespace

Result<ChangePrice> PriceChange(const ModelSpec& model, const ClusterSpec& cluster, const StepProgram& from, const StepProgram& to) {
  const auto ranks = static_cast<int64_t>(from.ranks.size());
  if (static_cast<int64_t>(to.ranks.size()) != ranks || ranks > kMostPricedRanks || ranks > cluster.TotalGpus()) {
    return Fail(Code::kInvalidArgument, fmt::format("programs of {} and {} ranks on {} GPUs, expected the same number, at most {}", ranks,
                                                    to.ranks.size(), cluster.TotalGpus(), kMostPricedRanks));
  }
  for (const StepProgram* program : {&from, &to}) {
    if (const std::string left = LeftBehind(*program); !left.empty())
      return Fail(Code::kInvalidArgument, fmt::format("{}: {} would be lost", program->strategy, left));
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
  std::vector<Send> sends;
  for (const StateRound& pair : change.pairs) {
    for (const bool back : {false, true}) {
      const auto [sender, receiver] = back ? std::pair(pair.second, pair.first) : std::pair(pair.first, pair.second);
      const auto sent = elements.find({sender, receiver});
      if (sent == elements.end()) continue;
      sends.push_back({pair.round, sender, receiver, back, static_cast<double>(sent->second * bytes_each)});
    }
  }
  const GroupNetwork network = MakeGroupNetwork(cluster, CollectiveLibrary::kWeft, Calibration());
  const Ways ways(network, sends);
  std::vector<Seconds> free(from.ranks.size(), Seconds(0));  // a rank exchanges with one other at a time
  for (const Send& send : sends) {
    Seconds &one = free[static_cast<size_t>(send.sender)], &other = free[static_cast<size_t>(send.receiver)];
    one = other = std::max(one, other) + ways.TimeOf(send);
  }
  return ChangePrice{.moved = Bytes(change.sent * bytes_each), .moving = *std::ranges::max_element(free)};
}

}  // namespace weft::planner
