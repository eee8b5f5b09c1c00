// The queue pairs of one end of a flow, their completion queue and registered memory: made, connected, set back to the
// start, and posted to. Up to kMaxParts pairs carry data, one more carries credits in its own traffic class.
//
// Not thread-safe: its owner sees to it that one thread at a time is in here.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "netplugin/rdma/own_pages.h"
#include "netplugin/rdma/port.h"
#include "netplugin/rdma/verbs.h"
#include "netplugin/rdma/wire.h"

namespace weft::net::rdma {

/// What a work request's number says of it. Packed into wr_id.
struct WorkId {
  uint32_t generation = 0;  ///< of the connection; older ones are leftovers
  uint8_t lane = 0;         ///< kControlLane: a credit
  uint8_t slot = 0;
  uint8_t part = 0;
  bool last = false;        ///< of its part
  bool receive = false;

  uint64_t Pack() const {
    return (uint64_t{generation} << 32) | (uint64_t{lane} << 24) | (uint64_t{slot} << 16) | (uint64_t{part} << 8) |
           (last ? 2u : 0u) | (receive ? 1u : 0u);
  }
  static WorkId Unpack(uint64_t id) {
    return {static_cast<uint32_t>(id >> 32), static_cast<uint8_t>(id >> 24), static_cast<uint8_t>(id >> 16),
            static_cast<uint8_t>(id >> 8), (id & 2) != 0, (id & 1) != 0};
  }
};

/// One RDMA write. An empty one needs no memory.
struct Write {
  WorkId id;
  const void* from = nullptr;
  uint32_t local_key = 0;
  uint64_t length = 0;
  uint64_t to = 0;
  uint32_t remote_key = 0;
  const Immediate* immediate = nullptr;  ///< nullptr: a plain write
  bool inlined = false;                  ///< copied at once, where the device can: for credits and records
};

class QueuePairs {
 public:
  static constexpr uint32_t kDataDepth = 128;   ///< writes in flight per data pair
  static constexpr uint32_t kReceives = 2 * kSlots;  ///< posted per data pair of the receiver: one per part in flight

  /// `receives`: the receiver's end, which needs receive requests. nullptr with the reason in `why`.
  static std::unique_ptr<QueuePairs> Make(std::shared_ptr<Port> port, uint32_t lanes, bool receives, std::string* why);
  ~QueuePairs();
  QueuePairs(const QueuePairs&) = delete;
  QueuePairs& operator=(const QueuePairs&) = delete;

  const std::shared_ptr<Port>& port() const { return port_; }
  uint32_t lanes() const { return lanes_; }
  FlowMemory& memory() { return *memory_; }
  uint32_t memory_key() const { return memory_mr_->rkey; }
  uint32_t memory_local_key() const { return memory_mr_->lkey; }
  uint32_t generation() const { return generation_; }

  /// Fills port, queue pairs and memory of a message.
  void Describe(ControlMessage* message) const;

  /// Asks of the network what `former`, the same flow's pairs on another port, asked.
  void AskAs(const QueuePairs& former);
  bool receives() const { return receives_; }
  /// What Connect() asks of the network for a lane.
  void SetUdpPort(uint32_t lane, uint16_t port) { udp_ports_[lane] = port; }
  /// The source port of what this end sends on a lane; 0 on InfiniBand. Valid once connected.
  uint16_t UdpPort(uint32_t lane) const;
  /// Moves a live pair where the device can (mlx5). False: it needs a new start.
  bool MoveUdpPort(uint32_t lane, uint16_t port);
  void SetTrafficClasses(uint8_t data, uint8_t control) { data_class_ = data, control_class_ = control; }
  uint8_t data_class() const { return data_class_; }
  uint8_t control_class() const { return control_class_; }

  /// Takes all pairs from their start to ready-to-send against `peer`, and posts the receives. False with the reason
  /// in `why`.
  bool Connect(const ControlMessage& peer, std::string* why);

  /// Ends all traffic at once: every request that was posted gets its completion, which Poll() hands out.
  void BeginStop();
  /// Whether all of them have it, or 100 ms have passed since BeginStop(). Afterwards the peer can write no more.
  bool Stopped() const;
  /// Back to the start, with new packet numbers; the next Connect() begins `generation`. False with the reason in
  /// `why`.
  bool Restart(uint32_t generation, std::string* why);
  /// Back to the start after a Connect() that failed, for another try with the numbers that the peer knows.
  bool Rewind(std::string* why);

  /// Up to `most` completions; counts what they free. Never blocks.
  int Poll(ibv_wc* completions, int most) {
    const int count = ibv_poll_cq(cq_, most, completions);
    for (int i = 0; i < count; ++i) Finished(completions[i]);
    return count;
  }
  /// Whether a lane takes another write now.
  bool HasRoom(uint32_t lane) const { return in_flight_[lane] < Depth(lane); }
  uint32_t in_flight(uint32_t lane) const { return in_flight_[lane]; }
  /// The first lane with a write in flight; -1: none has.
  int BusyLane() const;
  /// Completions so far, of any kind.
  uint64_t completed() const { return completed_; }
  /// False (errno set) when the device refuses. Requires: HasRoom(lane).
  bool Post(const Write& write);
  /// Gives a used receive request back to a lane.
  bool PostReceive(uint32_t lane);

 private:
  QueuePairs(std::shared_ptr<Port> port, uint32_t lanes, bool receives)
      : port_(std::move(port)), lanes_(lanes), receives_(receives) {}
  bool MakeMemory(std::string* why);
  bool MakePairs(std::string* why);
  bool ToInit(ibv_qp* qp, std::string* why);
  bool ToReady(uint32_t lane, const ControlMessage& peer, std::string* why);
  void ChoosePacketNumbers();
  void Finished(const ibv_wc& completion);
  uint32_t Depth(uint32_t lane) const { return lane == kControlLane ? 2 * kSlots : kDataDepth; }
  /// Calls `f` for the lanes that exist, the control lane last.
  template <typename F>
  bool ForEachLane(const F& f) const {
    for (uint32_t lane = 0; lane < lanes_; ++lane) {
      if (!f(lane)) return false;
    }
    return f(kControlLane);
  }

  static constexpr uint32_t kAllLanes = kMaxParts + 1;

  const std::shared_ptr<Port> port_;
  const uint32_t lanes_;
  const bool receives_;
  OwnPages pages_;
  FlowMemory* memory_ = nullptr;  // in pages_
  ibv_mr* memory_mr_ = nullptr;
  ibv_cq* cq_ = nullptr;
  uint32_t longest_inline_ = 0;
  uint32_t generation_ = 0;
  uint8_t data_class_ = 0, control_class_ = 0;
  uint64_t stop_deadline_ = 0;
  uint64_t completed_ = 0;
  std::array<ibv_qp*, kAllLanes> pairs_{};
  std::array<uint32_t, kAllLanes> packet_numbers_{};
  std::array<uint32_t, kAllLanes> peer_numbers_{};
  std::array<uint16_t, kAllLanes> udp_ports_{};   // asked for; 0: the device's choice
  std::array<uint32_t, kAllLanes> in_flight_{};
  std::array<uint32_t, kAllLanes> receives_posted_{};
};

}  // namespace weft::net::rdma
