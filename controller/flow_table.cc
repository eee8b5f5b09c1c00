#include "controller/flow_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::controller {
namespace {

constexpr size_t kMaxFlows = 500'000;
constexpr size_t kMaxEarlyReports = 4096;
constexpr int kMaxLanes = 64;    // a flow has at most 8 at a time; ports that it had before stay listed by the agent
constexpr int kMaxPorts = 256;   // probed, per flow
constexpr int kMaxHops = 16;
constexpr size_t kMaxText = 256;
constexpr int64_t kMeteredIterations = 8;  // that a flow's average is taken over, at least
constexpr double kMeteredSeconds = 2;
constexpr double kMaxBytesPerSecond = 1e13;  // no host sends 80 Tbit/s: a counter that jumps so far is not one
constexpr double kLongestWait = 3600;        // seconds that one chunk may have waited
constexpr double kMostOwed = 2;              // seconds of backlog that a sender was told of late
constexpr double kMaxAgainPerSecond = 1e9;   // segments: a counter that jumps so far is not one

bool ValidPort(int32_t port) { return port > 0 && port <= 65535; }

bool ValidHops(const v1::Path& path) {
  if (path.hops_size() > kMaxHops) return false;
  std::set<std::string> seen;
  for (const std::string& hop : path.hops()) {
    // A path that comes back to a switch is a loop or a route that changed between probes.
    if (hop.empty() || hop.size() > kMaxText || !seen.insert(hop).second) return false;
  }
  return true;
}

bool ValidIdentity(const v1::FlowIdentity& identity) {
  return identity.flow() != 0 && identity.job_id().size() <= kMaxText && !identity.local_address().empty() &&
         identity.local_address().size() <= kMaxText && !identity.peer_address().empty() &&
         identity.peer_address().size() <= kMaxText;
}

}  // namespace

const std::vector<LinkId>* SendFlow::PathOf(int32_t port) const {
  const auto found = probed.find(port);
  return found == probed.end() || found->second.links.empty() ? nullptr : &found->second.links;
}

Change FlowTable::Ignore() {
  ++ignored_;
  return Change::kNone;
}

SendFlow* FlowTable::Find(uint64_t flow) {
  const auto found = flows_.find(flow);
  return found == flows_.end() ? nullptr : &found->second;
}

const std::set<uint64_t>& FlowTable::FlowsOf(const std::string& host) const {
  static const std::set<uint64_t> kNone;
  const auto found = by_host_.find(host);
  return found == by_host_.end() ? kNone : found->second;
}

void FlowTable::Erase(uint64_t id) {
  const auto found = flows_.find(id);
  by_host_[found->second.host].erase(id);
  fresh_.erase(id);
  silent_flows_.erase(id);
  for (const auto& [port, path] : found->second.probed) Release(path.links, /*left=*/false);
  flows_.erase(found);
}

Change FlowTable::Open(const std::string& host, const v1::FlowIdentity& identity, bool fresh, double now_s) {
  if (!ValidIdentity(identity)) return Ignore();
  if (!identity.send()) return Change::kNone;  // the sender decides the path; its end is the one that is kept
  if (SendFlow* known = Find(identity.flow())) {
    // No host, and no user of it, speaks for another one's flow.
    if (known->host != host || !MaySpeakFor(*known, identity)) return Ignore();
    const bool was_stale = known->stale();
    known->stale_since_s = -1;
    return was_stale ? Change::kFlows : Change::kNone;
  }
  if (flows_.size() >= kMaxFlows) return Ignore();
  SendFlow& flow = flows_[identity.flow()];
  flow.id = identity.flow();
  flow.identity = identity;
  flow.host = host;
  if (identity.has_user_id()) flow.owner = identity.user_id();
  by_host_[host].insert(flow.id);
  flow.opened_s = flow.active_s = now_s;
  flow.resumed = !fresh;
  if (fresh) fresh_.insert(flow.id);
  if (const auto early = early_.find(flow.id); early != early_.end()) {
    const EarlyReport report = std::move(early->second);
    early_.erase(early);
    AddPaths(report.host, report.report, now_s);
  }
  return Change::kFlows;
}

Change FlowTable::Close(const std::string& host, uint64_t id) {
  const SendFlow* flow = Find(id);
  if (flow == nullptr || flow->host != host) return Change::kNone;  // a receive flow, or closed before
  Erase(id);
  return Change::kFlows;
}

void FlowTable::EnsureLinks() {
  if (links_.size() < fabric_->topology().links().size()) links_.resize(fabric_->topology().links().size());
}

/// `left`: for another way, which tells more of a link than a flow that has ended.
void FlowTable::Release(const std::vector<LinkId>& links, bool left) {
  for (const LinkId link : links) {
    LinkUse& use = links_[link.index()];
    use.paths = std::max<int64_t>(0, use.paths - 1);
    if (!left) continue;
    if (use.paths == 0) fabric_->SetGone(link);
    if (fabric_->IsBetweenSwitches(link)) left_.insert(link);
  }
}

std::map<std::string, std::vector<uint64_t>> FlowTable::CrossedBy(const std::set<LinkId>& links) const {
  std::map<std::string, std::vector<uint64_t>> flows;
  for (const auto& [id, flow] : flows_) {
    const bool crosses = std::ranges::any_of(flow.probed, [&](const auto& probed) {
      return std::ranges::any_of(probed.second.links, [&](LinkId link) { return links.contains(link); });
    });
    if (crosses && !flow.stale()) flows[flow.host].push_back(id);
  }
  return flows;
}

void FlowTable::Attribute(SendFlow& flow, int32_t port, double bytes, double from_s, double to_s) {
  const std::vector<LinkId>* path = flow.PathOf(port);
  if (path == nullptr) {
    if (const std::string* to = fabric_->HostOf(flow.identity.peer_address()); to != nullptr && *to == flow.host) return;  // no link's
    flow.lanes[port].unattributed += bytes;
    unattributed_bytes_ += bytes;
    return;
  }
  EnsureLinks();
  for (const LinkId link : *path) {
    links_[link.index()].carried_bytes += bytes;
    links_[link.index()].carried.Add(from_s / slot_s_, to_s / slot_s_, bytes);
  }
}

void FlowTable::CountBacklog(Lane& lane, const v1::LaneCounters& counters, bool sender, double from_s, double to_s) {
  if (!sender && lane.sender_meters) return;
  if (sender && !std::exchange(lane.sender_meters, true)) lane.metered = false;
  const double total_s = counters.backlog_s();
  const int64_t total_bytes = counters.backlog_bytes();
  if (!std::isfinite(total_s) || total_s < 0 || total_bytes < 0) return static_cast<void>(Ignore());
  const double whole_s = total_s - lane.backlog_s;
  const int64_t whole_bytes = total_bytes - lane.backlog_bytes;
  // The two were not read at one moment: they go together with the next.
  if (lane.metered && whole_s == 0 && whole_bytes > 0) return;
  const double most_bytes = kMaxBytesPerSecond * std::max({to_s - from_s, whole_s, 1.0});
  const bool sensible = whole_s <= kLongestWait && static_cast<double>(whole_bytes) <= most_bytes;
  lane.backlog_s = total_s;
  lane.backlog_bytes = total_bytes;
  if (!std::exchange(lane.metered, true) || whole_s < 0 || whole_bytes < 0) return;
  if (!sensible) return static_cast<void>(Ignore());
  // A long chunk's wait may have begun before the sample. What a sender says it has been told late, all at once: the rest counts later.
  const double all_s = whole_s + (sender ? lane.owed_s : 0), all_bytes = static_cast<double>(whole_bytes) + (sender ? lane.owed_bytes : 0);
  const double seconds = std::min(all_s, to_s - from_s);
  if (seconds <= 0) return;
  const double bytes = all_bytes * seconds / all_s;
  if (sender) {
    lane.owed_s = std::min(kMostOwed, all_s - seconds);
    lane.owed_bytes = bytes / seconds * lane.owed_s;
  }
  lane.backlog.Add(from_s / slot_s_, to_s / slot_s_, seconds);
  lane.delivered.Add(from_s / slot_s_, to_s / slot_s_, bytes);
}

void FlowTable::CountLane(SendFlow& flow, const v1::LaneCounters& counters, double from_s, double to_s) {
  const int32_t port = counters.source_port();
  if (!ValidPort(port) || counters.wire_bytes() < 0) return static_cast<void>(Ignore());
  const auto known = flow.lanes.find(port);
  if (known == flow.lanes.end() && flow.lanes.size() >= kMaxLanes) return static_cast<void>(Ignore());
  const bool first_sight = known == flow.lanes.end();
  Lane& lane = flow.lanes[port];
  // A lane that appears later than its flow was opened since, so it counts from 0; so does all of a fresh flow.
  const bool from_zero = first_sight && (flow.lanes.size() > 1 || fresh_.contains(flow.id));
  const int64_t before = first_sight && !from_zero ? counters.wire_bytes() : lane.wire_bytes;
  const int64_t delta = counters.wire_bytes() - before;
  lane.weight = std::clamp(counters.weight(), 0, 1 << 20);
  lane.active = counters.state() == "active";
  lane.failed = counters.state() == "failed";
  if (lane.failed) flow.settled = false;
  Hear(flow, port, lane.active || lane.failed ? counters.silent_s() : 0, to_s);
  const int64_t sent_again = std::max<int64_t>(0, counters.retransmits());
  const int64_t again = sent_again - std::exchange(lane.retransmits, sent_again);
  if (!first_sight && again > 0 && static_cast<double>(again) <= kMaxAgainPerSecond) {
    lane.again.Add(from_s / slot_s_, to_s / slot_s_, static_cast<double>(again));
  }
  lane.rtt_s = std::isfinite(counters.rtt_s()) ? std::max(0.0, counters.rtt_s()) : 0;
  lane.wire_bytes = counters.wire_bytes();
  if (counters.backlog_s() > 0) CountBacklog(lane, counters, /*sender=*/true, from_s, to_s);
  if (delta <= 0) return;  // idle, or a new connection from the same port began again at 0
  if (static_cast<double>(delta) > kMaxBytesPerSecond * std::max(to_s - from_s, 1.0)) {
    return static_cast<void>(Ignore());
  }
  const auto bytes = static_cast<double>(delta);
  if (flow.wire_bytes <= 0) flow.first_s = to_s;
  flow.wire_bytes += bytes;
  flow.active_s = std::max(flow.active_s, to_s);
  flow.lately.shortly.Add(bytes, to_s);
  flow.lately.long_since.Add(bytes, to_s);
  lane.carried.Add(from_s / slot_s_, to_s / slot_s_, bytes);
  Attribute(flow, port, bytes, from_s, to_s);
}

void FlowTable::CountIterations(SendFlow& flow, const v1::FlowCounters& counters, double to_s) {
  const double start = counters.iteration_start_s();
  flow.iteration_start_s = std::isfinite(start) && start > 0 ? start : 0;
  if (std::isfinite(counters.period_s()) && counters.period_s() >= 0) flow.period_s = counters.period_s();
  FlowMeter& meter = flow.meter;
  const double passed_s = std::max(0.0, to_s - std::exchange(meter.seen_s, to_s));
  const double busy_s = counters.burst_busy_s(), wire_s = counters.wait_wire_s(), held_s = counters.gate_held_s();
  const auto time = [](double value_s) { return std::isfinite(value_s) && value_s >= 0; };
  const bool sensible = flow.period_s > 0 && flow.iteration_start_s > 0 && time(busy_s) && time(wire_s) && time(held_s);
  if (!sensible) {
    meter = {.seen_s = to_s};
    return;
  }
  const double since_s = flow.iteration_start_s - meter.newest_s;
  if (meter.begin_s > 0 && since_s == 0) return;  // the iteration is not over
  const bool follows = meter.begin_s > 0 && since_s > 0 && busy_s >= meter.busy_s && wire_s >= meter.wire_s &&
                       held_s >= meter.held_s;
  if (follows) {
    meter.newest_s = flow.iteration_start_s;
    // Samples that did not come hide iterations. A turn that the job lost looks the same by its length, and is one iteration.
    const int64_t most = 1 + static_cast<int64_t>(std::min(1e6, passed_s / flow.period_s));
    meter.iterations += std::clamp<int64_t>(std::llround(since_s / flow.period_s), 1, most);
    const double length_s = meter.newest_s - meter.begin_s;
    if (meter.iterations < kMeteredIterations || length_s < kMeteredSeconds) return;
    const auto iterations = static_cast<double>(meter.iterations);
    meter.known = true;
    meter.since_s = meter.begin_s;
    meter.period_s = length_s / iterations;
    meter.bytes_each = (flow.wire_bytes - meter.bytes) / iterations;
    meter.busy_each_s = std::min(meter.period_s, (busy_s - meter.busy_s) / iterations);
    meter.wire_each_s = std::min(meter.period_s, (wire_s - meter.wire_s) / iterations);
    meter.held_each_s = std::min(meter.period_s - meter.busy_each_s, (held_s - meter.held_s) / iterations);
  }
  meter.begin_s = meter.newest_s = flow.iteration_start_s;
  meter.iterations = 0;
  meter.bytes = flow.wire_bytes;
  meter.busy_s = busy_s;
  meter.wire_s = wire_s;
  meter.held_s = held_s;
}

Change FlowTable::Count(const std::string& host, const v1::FlowCounters& counters, double from_s, double to_s) {
  if (!counters.send()) return CountArrivals(host, counters, from_s, to_s);
  SendFlow* flow = Find(counters.flow());
  if (flow == nullptr || flow->host != host || !MaySpeakFor(*flow, counters)) return Ignore();
  const bool was_stale = flow->stale();
  flow->stale_since_s = -1;
  const auto lost = [&] {  // lanes that carried bytes and can't any more
    return std::ranges::count_if(flow->lanes, [&](const auto& lane) {
      return (lane.second.failed && flow->decided.contains(lane.first)) || lane.second.silent;
    });
  };
  const auto lost_before = lost();
  const bool first_counters = flow->lanes.empty();
  // Listing a flow's lanes for the first time must not make its second lane look newer than the flow.
  if (first_counters && !fresh_.contains(flow->id)) {
    for (const v1::LaneCounters& lane : counters.lanes()) {
      if (ValidPort(lane.source_port()) && flow->lanes.size() < kMaxLanes) {
        flow->lanes[lane.source_port()].wire_bytes = std::max<int64_t>(0, lane.wire_bytes());
        flow->lanes[lane.source_port()].retransmits = std::max<int64_t>(0, lane.retransmits());
      }
    }
  }
  for (auto& [port, lane] : flow->lanes) lane.silent_s = 0;  // those that are gone say nothing
  for (const v1::LaneCounters& lane : counters.lanes()) CountLane(*flow, lane, from_s, to_s);
  if (!flow->lanes.empty()) fresh_.erase(flow->id);
  CountIterations(*flow, counters, to_s);
  flow->waits.wire_s = counters.wait_wire_s();
  return was_stale || lost() > lost_before || first_counters ? Change::kFlows : Change::kNone;
}

bool FlowTable::Resolve(SendFlow& flow, int32_t port) {
  ProbedPath& path = flow.probed[port];
  const std::string* to = fabric_->HostOf(flow.identity.peer_address());
  if (to == nullptr || *to == flow.host) return false;
  path.links = fabric_->AddPath(flow.host, path.hops, *to);
  EnsureLinks();
  for (const LinkId link : path.links) ++links_[link.index()].paths;
  if (const auto lane = flow.lanes.find(port); lane != flow.lanes.end() && lane->second.unattributed > 0) {
    for (const LinkId link : path.links) links_[link.index()].carried_bytes += lane->second.unattributed;
    unattributed_bytes_ -= std::exchange(lane->second.unattributed, 0);
  }
  return true;
}

Change FlowTable::AddPaths(const std::string& host, const v1::PathReport& report, double now_s) {
  SendFlow* flow = Find(report.flow());
  if (flow == nullptr) {
    if (report.flow() == 0 || early_.size() >= kMaxEarlyReports || report.ByteSizeLong() > 65536) return Ignore();
    early_[report.flow()] = {host, now_s, report};
    return Change::kNone;
  }
  if (flow->host != host || report.local_address() != flow->identity.local_address() ||
      report.peer_address() != flow->identity.peer_address()) {
    return Ignore();
  }
  bool changed = false;
  for (const v1::Path& path : report.paths()) {
    if (!path.complete()) continue;  // a hop that stays silent may be rate-limited: what was known stands
    if (!ValidPort(path.source_port()) || !ValidHops(path) ||
        (report.hop_count() > 0 && path.hops_size() != report.hop_count())) {
      Ignore();
      continue;
    }
    const auto known = flow->probed.find(path.source_port());
    if (known == flow->probed.end() && flow->probed.size() >= kMaxPorts) {
      Ignore();
      continue;
    }
    const std::vector<std::string> hops(path.hops().begin(), path.hops().end());
    if (known != flow->probed.end() && known->second.hops == hops) continue;
    if (known != flow->probed.end()) flow->settled = false;
    const std::vector<LinkId> before = known != flow->probed.end() ? std::move(known->second.links) : std::vector<LinkId>();
    flow->probed[path.source_port()] = {hops, {}};
    Resolve(*flow, path.source_port());
    Release(before, /*left=*/true);
    changed = true;
  }
  return changed ? Change::kPaths : Change::kNone;
}

void FlowTable::Unsettle(const std::set<LinkId>& links, std::optional<Owner> owner) {
  for (auto& [id, flow] : flows_) {
    if (owner && flow.owner != *owner) continue;
    const auto touched = [&](const auto& probed) {
      return std::ranges::any_of(probed.second.links, [&](LinkId link) { return links.contains(link); });
    };
    if (flow.settled && std::ranges::any_of(flow.probed, touched)) flow.settled = false;
  }
}

void FlowTable::Doubt(const std::string& host, Owner owner, bool doubted) {
  for (const uint64_t id : FlowsOf(host)) {
    if (SendFlow& flow = flows_.at(id); flow.owner == owner) flow.doubted = doubted;
  }
}

bool FlowTable::UnsettleJob(const std::string& job_id) {
  bool any = false;
  for (auto& [id, flow] : flows_) {
    if (!flow.settled || flow.identity.job_id() != job_id) continue;
    flow.settled = false;
    any = true;
  }
  return any;
}

bool FlowTable::ResolvePaths() {
  bool any = false;
  for (auto& [id, flow] : flows_) {
    for (auto& [port, path] : flow.probed) {
      if (path.links.empty()) any |= Resolve(flow, port);
    }
  }
  return any;
}

void FlowTable::HostGone(const std::string& host, double now_s) {
  for (const uint64_t id : FlowsOf(host)) {
    SendFlow& flow = flows_.at(id);
    if (!flow.stale()) flow.stale_since_s = now_s;
  }
}

int FlowTable::Expire(double before_s) {
  std::erase_if(early_, [&](const auto& entry) { return entry.second.received_s < before_s; });
  std::vector<uint64_t> expired;
  for (const auto& [id, flow] : flows_) {
    if (flow.stale() && flow.stale_since_s < before_s) expired.push_back(id);
  }
  for (const uint64_t id : expired) Erase(id);
  return static_cast<int>(expired.size());
}

}  // namespace weft::controller
