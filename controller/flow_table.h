// The flows of all jobs as their senders report them: identity, lanes, the path that each probed source port takes,
// and what was measured, by time slot. Input is what agents say and may be late, repeated or nonsense: it is checked
// here, and what makes no sense is counted and ignored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "controller/fabric_view.h"
#include "controller/flow_demand.h"
#include "controller/late_ranks.h"
#include "controller/slot_ring.h"
#include "proto/telemetry.pb.h"

namespace weft::controller {

/// Seconds for which a lane's bytes were sent again and nothing was acknowledged, from which on its path counts as silent.
inline constexpr double kSilentAfter = 1;

/// One connection of a flow, by its source port.
struct Lane {
  int32_t weight = 0;         ///< in force in the plugin
  bool active = false;
  bool failed = false;
  int64_t wire_bytes = 0;     ///< newest counter
  double unattributed = 0;    ///< bytes carried before the lane's path was known
  double rtt_s = 0;
  SlotRing carried;           ///< bytes on the wire
  bool metered = false;       ///< the two counters below are known
  bool sender_meters = false; ///< they are its sender's: it goes over RDMA
  double owed_s = 0, owed_bytes = 0;  ///< of what its sender said, what has not been counted below yet
  double backlog_s = 0;       ///< newest counter
  int64_t backlog_bytes = 0;  ///< newest counter
  SlotRing backlog;           ///< seconds in which its next bytes stood in a queue on their way
  SlotRing delivered;         ///< bytes on the wire that arrived in that time
  double silent_s = 0;        ///< newest word: what it sent goes unanswered for so long
  bool silent = false;        ///< its path counts as silent: since kSilentAfter, and then for a while after it answers again
  int silences = 0;           ///< one after the other
  double shunned_until_s = 0; ///< it carries nothing before, even if it answers
  double silent_at_s = 0;     ///< when silent_s was said
  int64_t arrived_bytes = -1; ///< on the wire, by its receiver: newest counter; -1: none yet
  double arrived_s = -1e300;  ///< when it last grew, by bytes that are sent again, too
  int64_t retransmits = 0;    ///< newest counter
  SlotRing again;             ///< segments sent again

  /// Whether it may be given bytes.
  bool usable() const { return !failed && !silent; }
  /// What it sends again in its silence does arrive: acknowledgements are what is lost, on a way of their own. Not what was on its way
  /// before, nor what a queue behind a break still let through: of what is sent again after twice as long each time, some came lately.
  bool arrives() const {
    return silent_s > 0 && arrived_s >= silent_at_s - std::min(silent_s - kOnItsWay, kSentAgain * silent_s);
  }
  static constexpr double kOnItsWay = 0.5;  ///< seconds for which what was sent before may still arrive and be told of
  static constexpr double kSentAgain = 0.75;  ///< of a silence: when the newest was sent again, at the latest
};

/// A lane whose path fell silent.
struct Silence {
  uint64_t flow = 0;
  int32_t port = 0;
  double silent_s = 0;
};

/// Where a probe from one source port went.
struct ProbedPath {
  std::vector<std::string> hops;
  std::vector<LinkId> links;  ///< empty while an end's address belongs to no host that has registered
};

/// What a flow does in an iteration, in the mean over the newest whole iterations that were measured. All of it is of the
/// same iterations: a burst that one number counts and the other leaves out would look like a job that changes.
struct FlowMeter {
  double begin_s = 0;         ///< start of the first iteration of the window in the making, on the host's clock; 0: none
  double newest_s = 0;        ///< start of the newest one
  int64_t iterations = 0;     ///< between the two
  double seen_s = 0;          ///< up to when samples have come, in the controller's time
  double bytes = 0, busy_s = 0, wire_s = 0, held_s = 0;  ///< the flow's counters when the window began
  bool known = false;         ///< a whole window has been measured;
  double since_s = 0;         ///< when it began, on the host's clock; per iteration:
  double period_s = 0;
  double bytes_each = 0;      ///< on the wire
  double busy_each_s = 0;     ///< that bursts lasted
  double wire_each_s = 0;     ///< that TCP had bytes for which no acknowledgement had come
  double held_each_s = 0;     ///< that the time window held them back
};

/// When a flow's bursts may begin (netplugin/abi/segment.h), on its host's clock. Period 0: at any time.
struct FlowWindow {
  double period_s = 0, offset_s = 0, length_s = 0;
  double lead_s = 0;          ///< that its bursts begin later than its job's
};

/// Whose processes bring telemetry about: a user id, or kNoOwner where agents do not say. What one owner says of his own flows counts
/// for them; for others' only what a second one says too (link_monitor.h).
using Owner = int64_t;
inline constexpr Owner kNoOwner = -1;

/// A flow at its sender.
struct SendFlow {
  uint64_t id = 0;
  v1::FlowIdentity identity;
  Owner owner = kNoOwner;
  std::string host;
  double opened_s = 0;        ///< controller's time
  bool resumed = false;       ///< it was open when its host came: what it carried before is not known
  double active_s = 0;        ///< when it last carried bytes
  double stale_since_s = -1;  ///< its host went away; -1: it did not
  std::map<int32_t, Lane> lanes;
  std::map<int32_t, ProbedPath> probed;
  std::map<int32_t, int32_t> decided;  ///< source port -> weight of the newest decision; empty: none yet
  std::map<int32_t, int32_t> planned;  ///< as the planner had it, where its owner's own findings have changed that; else empty
  bool unapplied = false;     ///< its host has not taken the newest decision up: it goes on as its lanes say
  bool doubted = false;       ///< its host's NICs have sent less than its owner says (nic_claims.h): it counts for its owner alone
  bool settled = false;       ///< decided with all jobs together: only that moves it, unless a way of it changes
  double wire_bytes = 0;      ///< seen since the flow became known
  double first_s = 0;         ///< when it first carried bytes
  CarriedLately lately;
  double period_s = 0;        ///< iteration period, 0 if unknown
  double iteration_start_s = 0;  ///< first burst of the newest iteration, on the host's clock; 0 if unknown
  FlowMeter meter;
  FlowWindow window;          ///< of the newest decision
  struct Waits {
    double peer_s = -1, wire_s = -1;                ///< newest counters, of the receiver and of the sender; -1: none yet
    double peer_before_s = -1, wire_before_s = -1;  ///< when TakeWaits() last looked; -1: there was none
  } waits;

  bool stale() const { return stale_since_s >= 0; }
  /// Links of the lane with this port, or nullptr while unknown.
  const std::vector<LinkId>* PathOf(int32_t port) const;
};

/// Whether what is said of the flow comes from a process of its user's; agents that do not say whose are believed.
template <typename Said>
bool MaySpeakFor(const SendFlow& flow, const Said& said) {
  return flow.owner == kNoOwner || !said.has_user_id() || flow.owner == said.user_id();
}

/// What measurement makes of a link.
struct LinkUse {
  int64_t paths = 0;         ///< probed ports whose way crosses it
  double carried_bytes = 0;  ///< since the controller started
  SlotRing carried;
};

/// What the core wants to know about a report that it passed on.
enum class Change { kNone, kFlows, kPaths };

class FlowTable {
 public:
  /// `slot_s` is the length of a measurement slot. `fabric` must outlive the table.
  FlowTable(double slot_s, FabricView* fabric) : slot_s_(slot_s), fabric_(fabric) {}

  /// A flow was opened (or is announced again by a restarted agent). `fresh`: it opened within this session, so that
  /// its counters began at 0 in this controller's life.
  Change Open(const std::string& host, const v1::FlowIdentity& identity, bool fresh, double now_s);
  Change Close(const std::string& host, uint64_t flow);
  /// Counters of a sample that covers (from_s, to_s] of the controller's time.
  Change Count(const std::string& host, const v1::FlowCounters& counters, double from_s, double to_s);
  Change AddPaths(const std::string& host, const v1::PathReport& report, double now_s);

  void HostGone(const std::string& host, double now_s);
  /// Forgets flows whose host has been away since before `before_s`, and early path reports. Returns how many flows
  /// went.
  int Expire(double before_s);
  /// Gives links to probed paths that had none, after hosts registered more addresses. True if any got some.
  bool ResolvePaths();

  /// The watchdog of the flow's sender says that nothing of it is acknowledged, or that it moves again: for plugins that cannot say
  /// which of its lanes. Returns whether a lane's path counts as silent now that did not before.
  Change Stall(const std::string& host, uint64_t flow, bool begins, double stalled_s, double now_s);
  /// Links between switches that probes have left for others since the last call.
  std::set<LinkId> TakeLeftLinks() { return std::exchange(left_, {}); }
  /// Flows of which some probed path crosses one of these links, by their hosts.
  std::map<std::string, std::vector<uint64_t>> CrossedBy(const std::set<LinkId>& links) const;
  /// Flows with a lane whose path counts as silent.
  const std::set<uint64_t>& silent_flows() const { return silent_flows_; }
  /// Lanes whose paths fell silent since the last call.
  std::vector<Silence> TakeSilences() { return std::exchange(silences_, {}); }
  /// Lanes that answer again, and have been let alone for long enough after that, may carry bytes again. Returns whether some may.
  bool ForgiveSilences(double now_s);

  /// Flows that could go over one of these links are settled no longer: all, or those of `owner`. Complexity: linear in flows and
  /// their probed paths.
  void Unsettle(const std::set<LinkId>& links, std::optional<Owner> owner = std::nullopt);
  /// No flow of the job is settled any longer. True if any was. Complexity: linear in flows.
  /// Whether what `owner` says of his flows from `host` counts for others. Complexity: linear in the host's flows.
  void Doubt(const std::string& host, Owner owner, bool doubted);
  bool UnsettleJob(const std::string& job_id);

  /// How long ranks have waited since the last call, by job: those that receive over the network, of flows whose ranks are known, that have
  /// carried bytes lately and whose hosts are connected. Complexity: linear in flows.
  std::map<std::string, JobWaits> TakeWaits(double now_s);

  const std::map<uint64_t, SendFlow>& flows() const { return flows_; }
  SendFlow* Find(uint64_t flow);
  /// Flows that `host` sends, by id.
  const std::set<uint64_t>& FlowsOf(const std::string& host) const;
  const std::vector<LinkUse>& links() const { return links_; }
  int64_t ignored() const { return ignored_; }
  double slot_s() const { return slot_s_; }
  /// Bytes between hosts that no link was charged with, since the way of the lane that carried them is not known yet, or never was.
  double unattributed_bytes() const { return unattributed_bytes_; }

 private:
  struct EarlyReport {
    std::string host;
    double received_s = 0;
    v1::PathReport report;
  };

  Change Ignore();
  void Erase(uint64_t flow);
  void Attribute(SendFlow& flow, int32_t port, double bytes, double from_s, double to_s);
  void CountBacklog(Lane& lane, const v1::LaneCounters& counters, bool sender, double from_s, double to_s);
  Change CountArrivals(const std::string& host, const v1::FlowCounters& counters, double from_s, double to_s);
  static void CountIterations(SendFlow& flow, const v1::FlowCounters& counters, double to_s);
  void Hear(SendFlow& flow, int32_t port, double silent_s, double now_s);
  void CountLane(SendFlow& flow, const v1::LaneCounters& counters, double from_s, double to_s);
  bool Resolve(SendFlow& flow, int32_t port);
  void EnsureLinks();
  void Release(const std::vector<LinkId>& links, bool left);

  double slot_s_;
  double unattributed_bytes_ = 0;
  FabricView* fabric_;
  std::map<uint64_t, SendFlow> flows_;
  std::map<std::string, std::set<uint64_t>> by_host_;
  std::set<uint64_t> fresh_;  ///< flows whose first counters count from 0
  std::map<uint64_t, EarlyReport> early_;
  std::vector<LinkUse> links_;
  std::vector<Silence> silences_;
  std::set<LinkId> left_;
  std::set<uint64_t> silent_flows_;
  int64_t ignored_ = 0;
};

}  // namespace weft::controller
