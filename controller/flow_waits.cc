// The receivers' part of the flow table: what arrives late, and how long they wait.
#include <algorithm>
#include <cmath>
#include <utility>

#include "controller/flow_table.h"

namespace weft::controller {
namespace {

constexpr double kLately = 10;  // seconds

/// How much a counter has grown, and its newest value for the next time; 0 the first time, and where it makes no sense.
double Growth(double newest, double& before) {
  if (!std::isfinite(newest) || newest < 0) return 0;
  const double then = std::exchange(before, newest);
  return then >= 0 && newest >= then ? newest - then : 0;
}

}  // namespace

/// What the receiving end says: only what the sender cannot know.
Change FlowTable::CountArrivals(const std::string& host, const v1::FlowCounters& counters, double from_s, double to_s) {
  SendFlow* flow = Find(counters.flow());
  if (flow == nullptr) return Change::kNone;  // its sender may be on a host without an agent, or not have spoken yet
  const std::string* to = fabric_->HostOf(flow->identity.peer_address());
  if (to == nullptr) return Change::kNone;
  if (*to != host || !MaySpeakFor(*flow, counters)) return Ignore();  // as in Open
  for (const v1::LaneCounters& of : counters.lanes()) {
    if (const auto lane = flow->lanes.find(of.source_port()); lane != flow->lanes.end()) {
      CountBacklog(lane->second, of, /*sender=*/false, from_s, to_s);
      const int64_t before = std::exchange(lane->second.arrived_bytes, of.wire_bytes());
      if (before >= 0 && of.wire_bytes() > before) lane->second.arrived_s = from_s;
    }
  }
  flow->waits.peer_s = counters.wait_peer_s();
  return Change::kNone;
}

std::map<std::string, JobWaits> FlowTable::TakeWaits(double now_s) {
  std::map<std::string, JobWaits> jobs;
  for (auto& [id, flow] : flows_) {
    const int32_t from = flow.identity.rank(), to = flow.identity.peer_rank();
    const std::string* receiver = fabric_->HostOf(flow.identity.peer_address());
    const double wire_s = Growth(flow.waits.wire_s, flow.waits.wire_before_s), peer_s = Growth(flow.waits.peer_s, flow.waits.peer_before_s);
    if (flow.stale() || from < 0 || to < 0 || receiver == nullptr || flow.active_s <= now_s - kLately) continue;
    JobWaits& job = jobs[flow.identity.job_id()];
    RankWaits& sends = job[from];
    sends.host = flow.host;
    sends.wire_s = std::max(sends.wire_s, wire_s);
    RankWaits& receives = job[to];
    receives.host = *receiver;
    if (flow.waits.peer_before_s < 0) continue;  // its agent has said nothing of it
    receives.peer_s += peer_s;
    receives.held_s += std::max(0.0, peer_s - wire_s);  // at least: its bytes were on their way for so long, whether waited for or not
    ++receives.flows;
  }
  for (auto& [id, job] : jobs) {
    std::erase_if(job, [](const auto& rank) { return rank.second.flows == 0; });
    for (auto& [number, rank] : job) {
      rank.peer_s /= rank.flows;
      rank.held_s /= rank.flows;
    }
  }
  return jobs;
}

}  // namespace weft::controller
