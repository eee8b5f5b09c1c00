// How a sending RDMA flow begins anew, on its own port or on another. Background thread, under the hold.
#include <algorithm>
#include <string>
#include <utility>

#include "netplugin/log.h"
#include "netplugin/rdma/send_flow.h"

namespace weft::net::rdma {

void SendFlow::Restart() {
  if (std::exchange(peer_goes_home_, false)) Because(PortChoice::Reason::kPeerGoesHome);  // unless it is this end's turn
  if (state_ == State::kFailed) {
    if (fruitless_++ > 0) TakeTurns();
    Log(nccl::kLogWarn, "send to rank %d over %s: queue pair %u (UDP port %u): %s; setting the flow up anew",
        recorder_.slot().peer_rank, pairs_->port()->name().c_str(), failed_lane_, pairs_->UdpPort(failed_lane_),
        pairs_->port()->verbs().wc_status_str(failed_status_));
  }
  if (failed_since_ == 0) failed_since_ = NowNs();
  peer_moves_ = out_of_reach_ = false;
  restart_wanted_ = false;
  Stop(AwaitedGeneration() + 1);
}

/// Nothing has got through since the last time: one end tries another of its ports, then the other end, and so on.
void SendFlow::TakeTurns() {
  const bool mine = ports_.Others(*pairs_->port(), NowNs()) > 0 && (!moved_last_ || peer_others_ == 0);
  if (mine) Because(PortChoice::Reason::kNothingGetsThrough);
  else hint_ = Hint::kTakeAnotherPort;
  moved_last_ = mine;
}

bool SendFlow::ReachesAllFrom(const std::shared_ptr<Port>& port) {
  return port == ports_.home() || std::ranges::all_of(requests_, [&](const SendRequest& request) {
           return !request.taken || request.done || !request.region || ports_.home()->Copy(request.region, port);
         });
}

/// Other paths, and other keys for what is in flight.
void SendFlow::OnMoved(PortChoice::Reason reason) {
  using enum PortChoice::Reason;
  if (reason != kNothingGetsThrough && pairs_->port() == ports_.home()) {
    moved_last_ = false;
    if (hint_ == Hint::kNone) hint_ = Hint::kGoesHome;
    fruitless_ = 1;  // if it leads nowhere still, the first failure shall tell
  } else {
    moved_last_ = true;
  }
  unanswered_ = 0;
  suspect_until_.fill(0);
  for (SendRequest& request : requests_) {
    if (!request.taken || request.done || !request.region) continue;
    const ibv_mr* mr = On(request.region);
    if (!mr) return;
    request.local_key = mr->lkey;
  }
}

/// A lane that was heard of after others is one whose ways, there and back, are open: other lanes' answers can take the one, credits and
/// their answers both. Each time that it was in vain the next one; nullopt: all have been tried.
std::optional<uint32_t> SendFlow::OpenLane() {
  const auto heard = [&](uint32_t lane) { return (unanswered_ >> lane & 1) ? 0 : heard_ns_[lane]; };
  for (uint32_t lane = 0; lane < pairs_->lanes(); ++lane) {
    uint32_t later = 0;
    for (uint32_t other = 0; other < pairs_->lanes(); ++other) later += heard(other) > heard(lane) || (heard(other) == heard(lane) && other < lane);
    if (heard(lane) == 0 || later != ways_tried_) continue;
    ++ways_tried_;
    return lane;
  }
  return std::nullopt;
}

void SendFlow::OnStopped() {
  const std::optional<uint32_t> open = credits_doubted_ || unanswered_ != 0 ? OpenLane() : std::nullopt;
  const bool came = std::exchange(credits_came_, false);
  if (std::exchange(credits_doubted_, false) && came) {
    pairs_->SetUdpPort(kControlLane, open ? pairs_->UdpPort(*open) : PortsAnew(flow_, AwaitedGeneration(), kMaxParts + 1)[kControlLane]);
  }
  const uint64_t now = NowNs();
  for (uint32_t lane = 0; lane < pairs_->lanes(); ++lane) {
    // Of a port that is down no path is to blame.
    if ((unanswered_ >> lane & 1) && !pairs_->port()->WasDown(now)) suspect_until_[lane] = now + kSuspectNs;
  }
  const auto unanswered = static_cast<uint8_t>(std::exchange(unanswered_, 0));
  const uint8_t data_class = WantedClass(now);
  const int control = services_.environment.rdma.control_traffic_class;
  pairs_->SetTrafficClasses(data_class, control >= 0 ? static_cast<uint8_t>(control) : data_class);
  ControlMessage reset = Message(ControlType::kReset);
  reset.hint = std::exchange(hint_, Hint::kNone);
  reset.slots[0].unanswered = unanswered;
  reset.slots[0].complete = came;
  reset.slots[0].arrived = static_cast<uint8_t>(open ? *open + 1 : 0);
  Say(reset);
}

/// The receiver has said what it has; all else is written again.
void SendFlow::OnConnected(const ControlMessage& report) {
  ApplyReport(report);
  MeasureAnew();
  connected_ns_ = NowNs();
  pairs_->memory().credits.fill({});  // their keys may be those of another port; the receiver writes all of them again
  if (error_ != nccl::kSuccess || !Say(Message(ControlType::kReady))) return;
  state_ = State::kRunning;
  if (outstanding_ == 0) failed_since_ = 0;  // otherwise the next acknowledgement will say so
  PublishLanes();
  Reweigh(NowNs());
  LogPaths(("set up anew, " + std::to_string(sent_again_) + " parts to write again").c_str());
  // What the failed lanes held goes over the others while they are under suspicion.
  uint32_t turn = 0;
  unposted_ = 0;
  for (SendRequest& request : requests_) {
    if (!request.taken || request.done) continue;
    ++unposted_;
    for (uint32_t i = 0; i < request.part_count; ++i) {
      PostedPart& part = request.parts[i];
      for (uint32_t tries = 0; tries < kMaxParts && shares_[part.lane].weight == 0; ++tries) {
        part.lane = static_cast<uint8_t>(turn++ % pairs_->lanes());
      }
    }
  }
  PostPending();
}

void SendFlow::ApplyReport(const ControlMessage& report) {
  sent_again_ = 0;
  uint32_t came = 0, missing = 0;  // of lanes: bit i, lane i
  for (SendRequest& request : requests_) {
    if (!request.taken || request.done) continue;
    const SlotReport& slot = report.slots[request.sequence % kSlots];
    // The slot may already hold a later receive: then this message was complete and its buffer is gone.
    const bool later = slot.used && static_cast<int32_t>(slot.sequence - request.sequence) > 0;
    const bool same = slot.used && slot.sequence == request.sequence;
    if (!later && !same) {
      Fail(nccl::kInternalError, "the peer does not know a receive that it had announced");
      return;
    }
    if (same) request.credit.key = slot.key;
    for (uint32_t i = 0; i < request.part_count; ++i) {
      PostedPart& part = request.parts[i];
      if (part.done) continue;
      if (later || slot.complete || (slot.arrived >> i & 1)) {
        part.begun_ns = 0;  // what got lost was the answer: how long that took is not the lane's pace
        came |= 1u << part.lane % kMaxParts;
        PartDone(request, part);
      } else {
        if (part.posted > 0) missing |= 1u << part.lane % kMaxParts;
        part.posted = 0;
        part.ended = false;
        ++sent_again_;
      }
    }
  }
  // All that a lane held is there: its path is open, and answers take another from now on.
  for (uint32_t lane = 0; lane < pairs_->lanes(); ++lane) {
    if ((came & ~missing) >> lane & 1) suspect_until_[lane] = 0;
  }
}

void SendFlow::WorkWhileStopped(uint64_t now) {
  if (state_ == State::kFailed) {
    Restart();
    return;
  }
  if (stopping()) return;
  // The peer knows this port, so that it must be told of another.
  if (peer_moves_ || ports_.BetterThan(*pairs_->port(), now)) {
    Restart();
    return;
  }
  const uint32_t others = ports_.Others(*pairs_->port(), now);
  if (Unreachable(now) && others + peer_others_ > 0) {
    TakeTurns();
    Restart();
  } else if (out_of_reach_ && others > 0) {
    Because(PortChoice::Reason::kNothingGetsThrough);
    Restart();
  }
}

}  // namespace weft::net::rdma
