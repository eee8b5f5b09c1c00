#include "controller/bad_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace weft::controller {
namespace {

constexpr int kMaxBackoff = 16;
constexpr double kForgotten = 3600;      // seconds after which what was earlier counts no more
constexpr int64_t kLately = 5;           // slots in which a lane that is answered has carried something
constexpr int64_t kLossSlots = 10;       // that loss is counted over
// A connection that begins loses segments anywhere: between so many slots before these and so many a lane has sent already.
constexpr int64_t kSettledFrom = 18, kSettledTo = 8;
constexpr double kSegmentBytes = 1500;   // with headers
constexpr double kLeastSegments = 100;   // of a lane in these slots, that say something
constexpr double kLeastAgain = 5;
constexpr double kLossy = 0.01;          // of a lane's segments that are sent again,
constexpr double kClean = 0.002;
constexpr double kNotFull = 0.7;         // of what a link is believed to give

std::string InWords(const SendFlow& flow) {
  return fmt::format("flow {:x} of job {} ({} to {})", flow.id, flow.identity.job_id(), flow.identity.local_address(),
                     flow.identity.peer_address());
}

/// Of the links between switches on these paths, those that speak for themselves are taken out at the end.
void Accuse(const std::vector<LinkId>& path, const FabricView& fabric, const SendFlow& flow, std::map<LinkWitness, LinkEvidence>& suspects) {
  for (const LinkId link : path) {
    if (!fabric.IsBetweenSwitches(link)) continue;
    LinkEvidence& evidence = suspects[{link, flow.owner}];
    if (evidence.lanes++ == 0) evidence.text = InWords(flow);
  }
}

/// What of a host's lanes is silent. Where nothing to or from it is answered, and its silent ways have no switch in common but its own,
/// its own port is dead, and not all of those.
struct HostSilence {
  std::set<NodeId> common;   // switches on all silent ways
  int ways = 0;
  bool answered = false;

  void Add(const std::vector<LinkId>& way, const FabricView& fabric, const std::string& host) {
    std::set<NodeId> on_way;
    for (const LinkId link : way) {
      for (const NodeId node : {fabric.topology().link(link).from, fabric.topology().link(link).to}) {
        const planner::Node& named = fabric.topology().node(node);
        if (named.kind == planner::NodeKind::kSwitch && named.name != fabric.LeafOf(host)) on_way.insert(node);
      }
    }
    if (++ways == 1) common = std::move(on_way);
    else std::erase_if(common, [&](NodeId node) { return !on_way.contains(node); });
  }
  bool IsItself() const { return !answered && ways > 1 && common.empty(); }
};

}  // namespace

std::map<LinkWitness, LinkEvidence> SilentEvidence(const FlowTable& table, const FabricView& fabric, const std::set<std::string>& lives,
                                              int64_t slot) {
  std::map<LinkWitness, LinkEvidence> suspects;
  if (table.silent_flows().empty()) return suspects;
  std::set<LinkId> answered;
  std::map<std::string, HostSilence> hosts;
  std::vector<std::pair<const SendFlow*, const std::vector<LinkId>*>> silent;
  for (const auto& [id, flow] : table.flows()) {
    if (flow.stale()) continue;
    const std::string* to = fabric.HostOf(flow.identity.peer_address());
    for (const auto& [port, lane] : flow.lanes) {
      const std::vector<LinkId>* links = flow.PathOf(port);
      if (links == nullptr || to == nullptr) continue;
      // One that has just begun to send again and again is neither.
      const bool answers = lane.active && lane.silent_s <= 0 && lane.carried.Sum(slot - kLately, slot) > 0;
      const bool arrives = lane.arrives();
      if (answers) answered.insert(links->begin(), links->end());
      const bool is_silent = !arrives && lane.silent_s >= kSilentAfter && lives.contains(*to);
      if (is_silent) silent.emplace_back(&flow, links);
      for (const std::string& host : {flow.host, *to}) {
        hosts[host].answered |= answers || arrives;
        if (is_silent) hosts[host].Add(*links, fabric, host);
      }
    }
  }
  for (const auto& [flow, links] : silent) {
    if (hosts.at(flow->host).IsItself() || hosts.at(*fabric.HostOf(flow->identity.peer_address())).IsItself()) continue;
    Accuse(*links, fabric, *flow, suspects);
  }
  std::erase_if(suspects, [&](const auto& entry) { return answered.contains(entry.first.first); });
  return suspects;
}

std::map<LinkWitness, LinkEvidence> LossEvidence(const FlowTable& table, const FabricView& fabric, const LinkMonitor& monitor, int64_t slot) {
  std::map<LinkWitness, LinkEvidence> suspects;
  std::set<LinkId> clean;
  const int64_t first = slot - kLossSlots + 1;
  const double seconds = static_cast<double>(kLossSlots) * table.slot_s();
  // In the slot in which it carried most: bursts fill a link for less than what loss is counted over.
  const auto full = [&](LinkId link) {
    const SlotRing& carried = table.links()[link.index()].carried;
    double most = 0;
    for (int64_t i = first; i <= slot; ++i) most = std::max(most, carried.At(i) * static_cast<double>(kLossSlots));
    return most * 8 / seconds > kNotFull * monitor.Available(link).value();
  };
  for (const auto& [id, flow] : table.flows()) {
    if (flow.stale()) continue;
    for (const auto& [port, lane] : flow.lanes) {
      const double segments = lane.carried.Sum(first, slot) / kSegmentBytes;
      const std::vector<LinkId>* links = segments >= kLeastSegments ? flow.PathOf(port) : nullptr;
      if (links == nullptr || lane.silent) continue;
      const double again = lane.again.Sum(first, slot);
      if (again < kClean * segments) clean.insert(links->begin(), links->end());
      else if (again < std::max(kLeastAgain, kLossy * segments)) continue;
      // A full link anywhere on the way explains the loss, and so does a connection that finds its rate.
      else if (lane.carried.Sum(first - kSettledFrom, first - kSettledTo) > 0 && std::ranges::none_of(*links, full)) {
        Accuse(*links, fabric, flow, suspects);
      }
    }
  }
  std::erase_if(suspects, [&](const auto& entry) { return clean.contains(entry.first.first); });
  return suspects;
}

bool BadLinks::MakeRoom(LinkId link) {
  size_t count = 0;
  auto oldest = links_.end();
  for (auto at = links_.lower_bound({link, std::numeric_limits<Owner>::min()}); at != links_.end() && at->first.first == link; ++at) {
    ++count;
    const bool older = oldest == links_.end() || at->second.seen_s < oldest->second.seen_s;
    if (!at->second.bad && older) oldest = at;
  }
  if (count < kMostOwners) return true;
  if (oldest == links_.end()) return false;
  links_.erase(oldest);
  return true;
}

std::vector<BadLinks::Verdict> BadLinks::Take(const std::map<LinkWitness, LinkEvidence>& evidence, Seconds now) {
  std::vector<Verdict> verdicts;
  for (const auto& [witness, of] : evidence) {
    if (!links_.contains(witness) && !MakeRoom(witness.first)) continue;
    State& state = links_[witness];
    if (!state.bad) {
      if (now.count() - state.seen_s > kForgotten) state.times = 0;
      ++state.times;
      state.bad = true;
      verdicts.push_back({witness.first, witness.second, true, of});
    }
    state.seen_s = now.count();
  }
  for (auto& [witness, state] : links_) {
    if (!state.bad) continue;
    const double wait_s = again_after_.count() * std::min<double>(std::exp2(std::min(state.times - 1, 20)), kMaxBackoff);
    if (now.count() - state.seen_s < wait_s) continue;
    state.bad = false;
    verdicts.push_back({witness.first, witness.second, false, {}});
  }
  std::erase_if(links_, [&](const auto& entry) { return !entry.second.bad && now.count() - entry.second.seen_s > kForgotten; });
  return verdicts;
}

}  // namespace weft::controller
