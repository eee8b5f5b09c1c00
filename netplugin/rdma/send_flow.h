// The sending end of an RDMA flow: waits for a credit, cuts the message over the queue pairs by weight, writes it into
// the receiver's buffer.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "netplugin/policy/gate.h"
#include "netplugin/policy/policy.h"
#include "netplugin/rdma/flow.h"
#include "netplugin/rdma/split.h"
#include "netplugin/telemetry/part_meter.h"

namespace weft::net::rdma {

class SendFlow final : public Flow {
 public:
  /// `traffic_class`: of data, when no leased policy says otherwise.
  SendFlow(const Services& services, Setup setup, uint8_t traffic_class);
  ~SendFlow() override;

  /// nullptr until the receiver has posted a buffer of that tag for it.
  int Isend(const void* data, uint64_t size, int tag, void* mhandle, Request** request) override;
  int Test(Request* request, int* done, int* size) override;
  /// Since the peer's NIC last acknowledged a part: a send that is in flight has a buffer to go to, so that nothing else
  /// can be late.
  uint64_t SilentNs() const override { return silent_ns_; }

 private:
  static constexpr uint64_t kSuspectNs = 10'000'000'000;  // how long a lane that failed alone carries nothing
  static constexpr uint64_t kWorthTellingNs = 200'000'000;  // that a lane gives no answer: as soon as TCP would send again
  // What a lane holds is written again over others: once the policy has taken the lane's
  // weight for its silence, and where it has not, when a device that tries again should have said something.
  static constexpr uint64_t kLeftNs = 1'000'000'000, kStuckNs = 10'000'000'000;
  static constexpr uint64_t kAdaptiveRoutingBytes = 8192; // above, a write of its own ends the part

  struct PostedPart : Part {
    uint64_t posted = 0;  // bytes handed to the queue pair
    bool ended = false;   // its last write, too
    bool done = false;    // and acknowledged
    uint32_t ordinal = 0;      // of its lane's parts
    uint64_t begun_ns = 0;     // when it was first posted
    uint64_t sent_ns = 0;      // the same as MeterNs(); 0: not measured
    uint64_t wire_bytes = 0;
  };
  struct SendRequest : Request {
    const char* data = nullptr;
    MemoryRegion* region = nullptr;
    uint32_t local_key = 0;
    Credit credit{};
    uint32_t part_count = 0;
    uint32_t parts_done = 0;
    bool told = false;    // when it came
    std::array<PostedPart, kMaxParts> parts{};
  };

  void Sample(uint64_t now) override;
  void OnMessage(const ControlMessage& message) override;
  void Work(const Tick& tick) override;
  void OnCompletion(const ibv_wc& completion) override;
  void Unanswered(uint32_t lane) override {
    if (lane < kMaxParts) unanswered_ |= 1u << lane;
  }

  void LogPaths(const char* what) const;
  std::optional<uint32_t> FindCredit(int32_t tag, Credit* credit) const;
  int Accepts(const void* data, uint64_t size, void* mhandle, const Credit& credit);
  void Take(uint32_t sequence);
  void Begin(SendRequest& request);
  void PostPending();
  void BeginPart(PostedPart& part);
  bool PostPart(SendRequest& request, uint32_t part);
  void Measure(const Arrivals& arrivals);
  void MeasureAnew();
  Write NextWrite(SendRequest& request, uint32_t part, Immediate* immediate);
  void PartDone(SendRequest& request, PostedPart& part);
  void OnConnected(const ControlMessage& report) override;
  void ApplyReport(const ControlMessage& report);
  void Restart();
  void OnStopped() override;
  void OnMoved(PortChoice::Reason reason) override;
  bool ReachesAllFrom(const std::shared_ptr<Port>& port) override;
  void WantAnotherPort() override { restart_wanted_ = true; }
  void TakeTurns();
  std::optional<uint32_t> OpenLane();
  void WorkWhileStopped(uint64_t now);
  bool Paced(uint64_t size);
  bool GateOpens();

  // send_flow_policy.cc: background thread, under the hold.
  bool ReadPolicy(uint64_t now);
  void CountHeld();
  void ApplyPorts();
  void Reweigh(uint64_t now);
  void WatchAnswers(uint64_t now);
  bool GivesUp(uint32_t lane, uint64_t now) const;
  uint32_t PolicyWeight(uint32_t lane) const;
  bool Wanted(uint16_t port) const;
  bool PolicyLeased(uint64_t now) const { return entry_.Leased(services_.policies, now); }
  uint8_t WantedClass(uint64_t now) const;

  const uint8_t own_class_;
  std::array<SendRequest, kSlots> requests_;
  uint32_t next_ = 0;         // first receive that no message was taken for
  uint32_t ahead_ = 0;        // bit i: one was taken for receive next_ + 1 + i, whose tag came first
  uint32_t end_ = 0;          // after the last receive that one was taken for
  uint32_t unposted_ = 0;     // requests with writes that found no room
  uint32_t outstanding_ = 0;  // requests not done
  uint64_t busy_since_ = 0;   // outstanding_ left 0
  uint32_t sent_again_ = 0;
  bool moved_last_ = false;   // this end's port was the last to be changed, not the peer's
  Hint hint_ = Hint::kNone;   // of the kReset to come
  bool peer_moves_ = false;   // it asked for a restart in order to change its port
  bool peer_goes_home_ = false;
  bool out_of_reach_ = false; // of the peer: the port that the last kReset named
  std::array<LaneShare, kMaxParts> shares_{};
  std::array<uint64_t, kMaxParts> suspect_until_{};
  std::array<uint64_t, kMaxParts> answered_ns_{};  // when a lane last had nothing in flight or heard of the peer's NIC
  std::array<uint64_t, kMaxParts> heard_ns_{};     // when the peer's NIC last acknowledged something; 0: never
  std::array<PartMeter, kMaxParts> meters_;
  std::array<uint32_t, kMaxParts> lane_parts_{};   // begun on a lane
  uint32_t unanswered_ = 0;   // bit i: lane i failed for want of an answer
  std::array<uint64_t, kMaxParts> took_ns_{};  // that the last part on a lane took
  uint64_t connected_ns_ = 0;
  bool credits_doubted_ = false;  // the receiver asked to begin anew
  bool credits_came_ = false;     // and what it had said is here: it is answers that get lost
  uint32_t ways_tried_ = 0;   // lanes whose ways have been taken for others since anything was last answered
  uint32_t given_up_ = 0;     // times since a message was last done
  uint64_t silent_ns_ = UINT64_MAX;  // background thread
  uint64_t pacing_bps_ = 0;
  uint64_t paced_until_ = 0;

  // Policy.
  FlowEntry entry_;
  Gate gate_;                   // the time window
  bool window_leased_ = false;  // as of the last sweep
  bool restart_wanted_ = false;
  bool ports_refused_ = false;  // said once
};

}  // namespace weft::net::rdma
