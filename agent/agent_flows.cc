// The agent's hand on the flows of its host's processes: whose paths are probed, and what of it is more than a user may have.
#include <fmt/format.h>

#include <optional>
#include <string>

#include "agent/agent.h"
#include "agent/monotonic.h"
#include "common/log.h"

namespace weft::agent {

void Agent::CountTraffic(Process& process) {
  const TrafficDelta traffic = process.reader->TakeTraffic();
  metrics_.AddTraffic(process.map->job(), traffic);
  if (traffic.flows_refused > 0) TellOverQuota(process.peer, "flow", traffic.flows_refused);
  if (traffic.flows_of_others > 0) TellFlowsOfOthers(process.peer, traffic.flows_of_others);
}

bool Agent::CountLeftAlone(const char* what, int64_t count) {
  metrics_.AddOverQuota(what, count);
  const uint64_t now = MonotonicNs();
  for (const auto& [kind, lines] : quota_lines_.TakeLeftOut(now)) {
    LogWarn("agent", "left out lines about flows that are left alone", {{"what", kind}, {"lines", lines}});
  }
  return quota_lines_.Take(what, now);
}

void Agent::TellOverQuota(const Peer& peer, const char* what, int64_t count) {
  if (!CountLeftAlone(what, count)) return;
  LogWarn("agent", "user has as many as one may; those beyond go as without an agent",
          {{"what", what}, {"uid", peer.uid}, {"pid", peer.pid}, {"refused", count},
           {"next", "raise quotas: in agent.yaml if he needs them"}});
}

void Agent::TellFlowsOfOthers(const Peer& peer, int64_t count) {
  if (!CountLeftAlone("number", count)) return;
  LogWarn("agent", "flows have the numbers of another user's and are not followed",
          {{"uid", peer.uid}, {"pid", peer.pid}, {"refused", count},
           {"next", "numbers are drawn at random: find out what this process writes into its segment"}});
}

void Agent::FollowFlows(Process& process) {
  for (const SendFlow& flow : process.reader->TakeSendFlows()) StartTrace(process, flow);
  const uint32_t uid = process.peer.uid;
  for (const uint64_t flow : process.reader->TakeClosedSendFlows()) {
    if (!quotas_.ReturnDestination(uid, flow)) continue;  // it was more than he may have
    paths_.erase(flow);
    lane_ports_.erase(flow);
    if (prober_) prober_->Forget(flow);
  }
  for (const uint64_t flow : process.reader->TakeDoubtful()) {
    if (prober_ && paths_.contains(flow)) prober_->ProbeAgain(flow);
  }
}

void Agent::StartTrace(const Process& process, const SendFlow& flow) {
  const std::string place = flow.peer_address + " " + std::to_string(flow.peer_port);
  if (!quotas_.TakeDestination(process.peer.uid, flow.flow, place)) return TellOverQuota(process.peer, "destination", 1);
  lane_ports_[flow.flow] = flow.lanes;
  const std::optional<Ipv4> source = ParseIpv4(flow.local_address);
  const std::optional<Ipv4> destination = ParseIpv4(flow.peer_address);
  if (!source || !destination) {
    if (!ipv6_said_) LogWarn("agent", "paths of IPv6 flows are not probed", {{"peer", flow.peer_address}});
    ipv6_said_ = true;
    return;
  }
  // The segment may name any address; probes go out under our own only.
  if (!prober_ || flow.peer_port == 0 || !PortIsFree(*source, 0)) return;
  paths_.try_emplace(flow.flow);
  paths_[flow.flow].set_flow(flow.flow);
  prober_->Track({.flow = flow.flow,
                  .source = *source,
                  .destination = *destination,
                  .destination_port = flow.peer_port,
                  .lanes = flow.lanes});
}

}  // namespace weft::agent
