// Turns one process's telemetry segment into what the controller is told: flows that opened, counters that changed,
// flows that closed. Everything in the segment is untrusted: identity is copied between two equal even generations,
// enumerations and times are checked, counters never run backwards in what comes out.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/period.h"
#include "agent/telemetry_map.h"
#include "agent/user_quotas.h"
#include "proto/telemetry.pb.h"

namespace weft::agent {

/// What a process has moved since the last time it was asked; index 0 sends, 1 receives.
struct TrafficDelta {
  int64_t bytes[2] = {};
  int64_t wire_bytes[2] = {};
  int64_t retransmits = 0;
  double wait_peer_s = 0;
  double wait_wire_s = 0;
  double gate_held_s = 0;     ///< for a time window to open
  int64_t bursts_lost = 0;    ///< overwritten before they were read
  int64_t slots_invalid = 0;  ///< flow slots with nonsense in them
  int64_t flows_refused = 0;  ///< that were more than their user may have
  int64_t flows_of_others = 0;  ///< that have the number of another user's flow
};

/// A send flow whose paths are wanted.
struct SendFlow {
  uint64_t flow = 0;
  std::string local_address;
  std::string peer_address;
  uint16_t peer_port = 0;
  std::vector<uint16_t> lanes;  ///< source ports
};

/// Not thread-safe. One per attached process.
class TelemetryReader {
 public:
  /// Flows count for `uid` in `quotas`; one that its user may not have is looked at once and then left alone. Null: there are none.
  /// Requires: `map` and `quotas` outlive the reader; Close() comes before its end.
  explicit TelemetryReader(const TelemetryMap& map, UserQuotas* quotas = nullptr, uint32_t uid = 0);

  /// Reads every slot that was ever taken. Complexity: O(those), about 2.4 KiB of shared memory touched for each.
  void Sample();
  /// The process is gone: what is open closes.
  void Close();

  /// Adds the news since the last Collect to `sample`.
  void Collect(v1::HostSample* sample);
  /// Adds every open flow with its counters to `sample`; the next Collect says only what came later.
  void Snapshot(v1::HostSample* sample);
  /// New send flows, and those with new lanes, since the last call.
  std::vector<SendFlow> TakeSendFlows();
  /// Send flows that closed since the last call.
  std::vector<uint64_t> TakeClosedSendFlows();
  /// Send flows that sent much again, or get no answer, since the last call: their paths may be others than they were.
  std::vector<uint64_t> TakeDoubtful() { return std::exchange(doubtful_, {}); }
  TrafficDelta TakeTraffic();
  /// Every open send flow and the bytes that it has sent.
  std::vector<std::pair<uint64_t, int64_t>> SentBytes() const;

  int64_t open_flows(bool send) const;
  /// Newest epoch that the plugin has read or runs.
  int64_t NewestEpoch() const;
  /// The median period of the flows that have one; zero if none.
  Seconds Period() const;

 private:
  struct Slot {
    bool tracked = false;        // identity is known and it is not closed
    uint32_t generation = 0;     // of the tracked flow, or of the last one that closed
    bool seen = false;           // `generation` means something
    bool opened_told = false, dirty = false, lanes_new = false;
    v1::FlowIdentity identity;
    v1::FlowCounters counters;
    uint64_t bursts_read = 0;
    double busy_s = 0, burst_bytes = 0;
    PeriodEstimator period;
  };

  void SampleSlot(uint32_t index);
  bool CopyIdentity(const abi::FlowSlot& from, uint32_t generation, v1::FlowIdentity* identity) const;
  void ReadCounters(const abi::FlowSlot& from, Slot& slot);
  void ReadLanes(const abi::FlowSlot& from, const v1::FlowCounters& before, v1::FlowCounters* now);
  void ReadBursts(const abi::FlowSlot& from, Slot& slot);
  void CountTraffic(const Slot& slot, const v1::FlowCounters& now);
  void CloseSlot(Slot& slot);

  const TelemetryMap& map_;
  UserQuotas* const quotas_;
  const uint32_t uid_;
  std::deque<Slot> slots_;   // of those that ever had something in them
  std::vector<Slot*> slot_at_;  // by index, as many as the process says that it has taken; null: nothing was there yet
  std::vector<v1::FlowIdentity> opened_;   // of flows that opened and closed between two Collects
  std::vector<v1::FlowCounters> last_;     // last counters of closed flows
  std::vector<uint64_t> closed_;
  std::vector<uint64_t> closed_sends_;
  std::vector<uint64_t> doubtful_;
  TrafficDelta traffic_;
};

}  // namespace weft::agent
