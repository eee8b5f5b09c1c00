// What the job's policy makes of a sending RDMA flow: weights at once, ports and traffic class by beginning anew.
#include <algorithm>
#include <bit>

#include "netplugin/log.h"
#include "netplugin/rdma/send_flow.h"

namespace weft::net::rdma {

bool SendFlow::ReadPolicy(uint64_t now) {
  if (!entry_.Read(services_.policies, flow_, now, services_.telemetry.process().policy_rejected)) return false;
  recorder_.slot().policy_epoch.store(entry_.epoch(), std::memory_order_relaxed);
  gate_.Set(entry_.policy(), now);
  CountHeld();
  return true;
}

/// Asked before a message is cut, while the flow has a time window. False: the burst is early. NCCL's thread.
bool SendFlow::GateOpens() {
  const uint64_t now = NowNs();
  bool open = true;
  if (window_leased_) {
    open = gate_.Opens(now, recorder_.last_active());
  } else {
    gate_.Release(now);
  }
  // The peer has done its part: from here on the time is the gate's.
  if (!open && recorder_.waiting()) recorder_.WaitEnds(recorder_.slot().wait_peer_ns, now);
  CountHeld();
  return open;
}

void SendFlow::CountHeld() {
  uint64_t ns = 0;
  if (!gate_.TakeHeld(&ns)) return;
  Bump(recorder_.slot().gate_held_ns, ns);
  Bump(recorder_.slot().gate_holds, 1);
}

bool SendFlow::Wanted(uint16_t port) const {
  return port != 0 && std::ranges::any_of(entry_.policy().lanes,
                                          [port](const auto& lane) { return lane.source_port == port && lane.weight > 0; });
}

/// Gives ports that are to carry something and no lane has to lanes that are to carry nothing.
void SendFlow::ApplyPorts() {
  uint32_t lane = 0;
  for (const abi::LanePolicy& wanted : entry_.policy().lanes) {
    const uint16_t port = wanted.source_port;
    if (port == 0) break;
    if (wanted.weight == 0) continue;
    bool have = false;
    for (uint32_t i = 0; i < pairs_->lanes(); ++i) have = have || pairs_->UdpPort(i) == port;
    if (have) continue;
    while (lane < pairs_->lanes() && Wanted(pairs_->UdpPort(lane))) ++lane;
    if (pairs_->port()->rule() != PortRule::kFlowLabel || port < kFirstRocePort || lane == pairs_->lanes()) {
      if (!ports_refused_) {
        Log(nccl::kLogInfo, "send to rank %d over %s: UDP port %u cannot be had (%u queue pairs, ports from %u); the "
            "policy is approximated", recorder_.slot().peer_rank, pairs_->port()->name().c_str(), port,
            pairs_->lanes(), kFirstRocePort);
      }
      ports_refused_ = true;
      continue;
    }
    // What has been measured is the other way's.
    recorder_.lane(lane).backlog_ns.store(0, std::memory_order_relaxed);
    recorder_.lane(lane).backlog_bytes.store(0, std::memory_order_relaxed);
    meters_[lane].Forget();
    if (!pairs_->MoveUdpPort(lane, port)) {
      pairs_->SetUdpPort(lane, port);
      restart_wanted_ = true;
    }
    ++lane;
  }
}

/// 0 without a policy, too.
uint32_t SendFlow::PolicyWeight(uint32_t lane) const {
  if (!entry_.present()) return 0;
  for (const abi::LanePolicy& wanted : entry_.policy().lanes) {
    if (wanted.source_port == 0) break;
    if (wanted.source_port == pairs_->UdpPort(lane)) return wanted.weight;
  }
  return 0;
}

/// Weights that are in force: the policy's on the lanes it names, all alike without one; none for a lane under
/// suspicion while another can carry its share.
void SendFlow::Reweigh(uint64_t now) {
  std::array<uint32_t, kMaxParts> weights{};
  uint64_t total = 0;
  const auto weigh = [&](const auto& weight_of) {
    total = 0;
    for (uint32_t lane = 0; lane < pairs_->lanes(); ++lane) total += weights[lane] = weight_of(lane);
    return total > 0;
  };
  const auto trusted = [&](uint32_t lane) { return suspect_until_[lane] <= now; };
  const auto alike = [](uint32_t) -> uint32_t { return 1; };
  weigh([&](uint32_t lane) { return trusted(lane) ? PolicyWeight(lane) : 0; }) ||
      weigh([&](uint32_t lane) { return trusted(lane) ? 1u : 0u; }) || weigh(alike);
  for (uint32_t lane = 0; lane < pairs_->lanes(); ++lane) {
    if (shares_[lane].weight == weights[lane]) continue;
    shares_[lane].weight = weights[lane];
    for (LaneShare& share : shares_) share.served = 0;
    recorder_.lane(lane).weight.store(weights[lane], std::memory_order_relaxed);
  }
}

uint8_t SendFlow::WantedClass(uint64_t now) const {
  const int own = services_.environment.rdma.traffic_class;
  if (own >= 0) return static_cast<uint8_t>(own);  // the user's
  return PolicyLeased(now) ? static_cast<uint8_t>(entry_.policy().traffic_class & 0xFC) : own_class_;
}

/// What the NIC sends again it says to nobody, until it gives the pair up: parts in flight without an answer are all that shows.
void SendFlow::WatchAnswers(uint64_t now) {
  std::array<bool, kMaxParts> holds{};
  for (const SendRequest& request : requests_) {
    if (!request.taken || request.done || state_ != State::kRunning) continue;
    for (uint32_t part = 0; part < request.part_count; ++part) {
      if (request.parts[part].posted > 0 && !request.parts[part].done) holds[request.parts[part].lane % kMaxParts] = true;
    }
  }
  for (uint32_t lane = 0; lane < pairs_->lanes(); ++lane) {
    uint64_t& since = answered_ns_[lane];
    if (!holds[lane] || since == 0) since = now;
    const uint64_t silent_ns = now - std::min(now, since);
    const uint64_t silent_ms = silent_ns < kWorthTellingNs ? 0 : std::min<uint64_t>(silent_ns / 1'000'000, UINT32_MAX);
    recorder_.slot().silent_ms[lane].store(static_cast<uint32_t>(silent_ms), std::memory_order_relaxed);
    if (holds[lane] && GivesUp(lane, now)) Unanswered(lane);
  }
  if (state_ != State::kRunning || unanswered_ == 0 || peer_gone_) return;
  Log(nccl::kLogInfo, "send to rank %d over %s: no answer to what %d of %u queue pairs hold; it is written again", recorder_.slot().peer_rank,
      pairs_->port()->name().c_str(), std::popcount(unanswered_), pairs_->lanes());
  ++given_up_;
  restart_wanted_ = true;
}

/// A lane that is slow is not silent: four times as long as its last part took is no more than waiting for the next.
bool SendFlow::GivesUp(uint32_t lane, uint64_t now) const {
  const uint64_t silent_ns = now - std::min(now, std::max(answered_ns_[lane], connected_ns_));
  // The policy may have left a lane that has to do while those it names are under suspicion.
  const bool left = suspect_until_[lane] <= now && (entry_.present() ? PolicyWeight(lane) : shares_[lane].weight) == 0;
  return silent_ns >= std::max(4 * took_ns_[lane], (left ? kLeftNs : kStuckNs) << Patience(given_up_));
}

}  // namespace weft::net::rdma
