// Where what is decided does not reach the flows: more flows than a policy or a process's telemetry has room for, entries that plugins
// refuse, policies that nobody takes up. None of it is silent: it is counted, told, and planned with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "controller/core.h"

namespace weft::controller {
namespace {

constexpr size_t kMaxFlowsOfOld = 256;    // entries that a plugin of a segment version before 3 is given; its agent says how many that leaves out
constexpr double kLateAfter = 5;          // seconds from a policy to the word that all processes have it
constexpr size_t kMostShortages = 100'000;
constexpr int64_t kMostCounted = int64_t{1} << 40;   // of a process's counter

/// Shares that differ by noise are one, so that who is in does not change from plan to plan.
int RankOf(double share) { return share > 0 ? static_cast<int>(std::lround(std::log2(share))) : -1'000; }

}  // namespace

/// Flows that a policy of the host may have.
size_t Core::RoomFor(const std::string& host) const {
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? kMaxFlowsOfOld : static_cast<size_t>(found->second.policy_flows);
}

/// Those that the host's policy of the job has room for: the ones that were in before those that were not, then by what they carry. In
/// that order where it matters who comes first, else by number.
/// Complexity: n log n in the host's flows.
std::vector<uint64_t> Core::PolicyFlows(const std::string& job_id, const std::string& host) const {
  const bool leased = DscpOf(job_id) > 0;
  std::vector<uint64_t> flows;
  for (const uint64_t id : table_.FlowsOf(host)) {
    const SendFlow& flow = table_.flows().at(id);
    if (flow.identity.job_id() == job_id && (!flow.decided.empty() || leased || flow.window.period_s > 0)) flows.push_back(id);
  }
  if (flows.size() <= kMaxFlowsOfOld) return flows;
  const auto rank = [&](uint64_t id) {
    const auto share = planned_shares_.find(id);
    return std::tuple(table_.flows().at(id).decided.empty(), share == planned_shares_.end() ? 1'000 : -RankOf(share->second), id);
  };
  std::ranges::sort(flows, {}, rank);
  flows.resize(std::min(flows.size(), RoomFor(host)));
  return flows;
}

/// Of flows that have no decision yet, those for which their hosts' policies have no room: they keep the ways that they have, and do
/// not count as moved.
std::set<uint64_t> Core::LeaveOut(const FlowDecision& decision) {
  std::map<std::pair<std::string, std::string>, std::vector<uint64_t>> wanted;
  for (const FlowMove& move : decision.moves) {
    const SendFlow* flow = table_.Find(move.flow);
    if (flow->decided.empty()) wanted[{flow->identity.job_id(), flow->host}].push_back(move.flow);
  }
  std::set<uint64_t> left_out;
  for (auto& [key, flows] : wanted) {
    const auto& [job_id, host] = key;
    size_t held = 0;
    for (const uint64_t id : table_.FlowsOf(host)) {
      const SendFlow& flow = table_.flows().at(id);
      held += flow.identity.job_id() == job_id && !flow.decided.empty();
    }
    const size_t room = RoomFor(host) - std::min(held, RoomFor(host));
    if (flows.size() <= room) continue;
    const auto carried = [&](uint64_t id) {
      const auto share = planned_shares_.find(id);
      return std::pair(share == planned_shares_.end() ? 1'000 : -RankOf(share->second), id);
    };
    std::ranges::sort(flows, {}, carried);
    left_out.insert(flows.begin() + static_cast<std::ptrdiff_t>(room), flows.end());
    counters_.flows_left_out += static_cast<int64_t>(flows.size() - room);
    DecideTrouble("limit", job_id,
                  fmt::format("{} flows on {} find no room in its policy, which holds {}: those that carry least keep the paths that they have",
                              flows.size() - room, host, RoomFor(host)));
  }
  return left_out;
}

void Core::TakeApplied(const std::string& host, const v1::HostSample& sample) {
  for (const v1::PolicyApplied& applied : sample.applied()) {
    const auto awaited = awaited_.find({applied.job_id(), host});
    if (awaited == awaited_.end() || applied.epoch() < awaited->second.epoch) continue;
    awaited_.erase(awaited);
    bool late = false;
    for (const uint64_t id : table_.FlowsOf(host)) {
      if (SendFlow* flow = table_.Find(id); flow->identity.job_id() == applied.job_id()) late |= std::exchange(flow->unapplied, false);
    }
    if (late) TouchPaths(fmt::format("{} has taken up the policy of job {}", host, applied.job_id()));
  }
}

/// A policy that is not in force is no fact to plan with: its flows count where their lanes say that they are.
void Core::WatchApplied() {
  for (auto entry = awaited_.begin(); entry != awaited_.end();) {
    const auto& [job_id, host] = entry->first;
    Awaited& awaited = entry->second;
    std::vector<SendFlow*> flows;
    for (const uint64_t id : table_.FlowsOf(host)) {
      if (SendFlow* flow = table_.Find(id); flow->identity.job_id() == job_id && !flow->stale()) flows.push_back(flow);
    }
    if (flows.empty()) {
      entry = awaited_.erase(entry);
      continue;
    }
    if (!awaited.late && now_s_ - awaited.since_s >= kLateAfter && mode_ == v1::MODE_ENFORCE) {
      awaited.late = true;
      ++counters_.policies_late;
      for (SendFlow* flow : flows) flow->unapplied = true;
      DecideTrouble("limit", job_id, fmt::format("{} has not taken up epoch {} after {:.0f} s: a process of the job there stands still or has lost "
                                                 "its agent; its flows are planned with as they are", host, awaited.epoch, now_s_ - awaited.since_s));
      TouchPaths(fmt::format("{} has not taken up the policy of job {}", host, job_id));
    }
    ++entry;
  }
}

void Core::TellShortage(const std::string& host, const v1::Shortage& shortage) {
  if (jobs_.Find(shortage.job_id()) == nullptr || (shortages_.size() >= kMostShortages && !shortages_.contains({shortage.job_id(), host}))) return;
  v1::Shortage& known = shortages_[{shortage.job_id(), host}];
  v1::Shortage now = shortage;
  now.set_flows_dropped(std::clamp<int64_t>(shortage.flows_dropped(), 0, kMostCounted));
  now.set_policy_rejected(std::clamp<int64_t>(shortage.policy_rejected(), 0, kMostCounted));
  now.set_policy_cut(std::clamp<int64_t>(shortage.policy_cut(), 0, kMostCounted));
  const int64_t dropped = now.flows_dropped() - known.flows_dropped(), refused = now.policy_rejected() - known.policy_rejected();
  const int64_t cut = now.policy_cut() - known.policy_cut();
  known = now;
  if (dropped > 0) {
    counters_.flows_unseen += dropped;
    DecideTrouble("limit", shortage.job_id(), fmt::format("{} flows of its processes on {} found no slot in their telemetry, {} in all: nobody sees or "
                                                          "steers them", dropped, host, now.flows_dropped()));
  }
  if (refused > 0) {
    counters_.entries_refused += refused;
    DecideTrouble("limit", shortage.job_id(), fmt::format("its processes on {} refused {} entries of a policy: those flows keep what they had", host, refused));
  }
  if (cut > 0) {
    counters_.entries_cut += cut;
    DecideTrouble("limit", shortage.job_id(), fmt::format("{} entries of its policy on {} do not reach those of its processes whose plugin is older than "
                                                          "segment version 3, which read the first {}", now.policy_cut(), host, kMaxFlowsOfOld));
  }
}

}  // namespace weft::controller
