// What a link gives, inferred from what flows get. The switches say nothing; the senders say two things about every
// flow: how many bytes its lanes put on the wire, and how long it had bytes ready while the kernel's buffer was full
// ("waiting for the wire"). From these, in slots of 0.2 s:
//
//   rate of a flow   r_f = bytes / time while the wire behind it is busy
//   load of a link   L_l = Σ r_f over the flows with bytes on it
//
// Whether a flow is held by its own path or by something else (a ring idles at the rate of its slowest link) shows in
// two ways. It *waits* at least 30 % of the slot; or, since kernels buffer a lot, it has the same bytes under way for
// longer: its round trip is 1.5 times what it is while its link is full at the believed rate (by Little's law the
// queue before a link that gives half stands twice as long, and the queue of a flow that is starved does not grow).
//
// How long was its wire busy? Where a queue stands (round trips of 1/20 slot and more) and the neighbour slots carry
// bytes too: all of the slot, so r_f is the plain average. Where none stands, buffers are nothing beside a slot, and
// the wire was busy while the flow waited: r_f = bytes / wait, if the neighbour slots are limited too. Other slots,
// the start and the end of a burst, are not judged.
//
// A limited flow is *explained* when some link of its lanes has L_l >= 80 % of what the link is believed to give: it
// waits because that link is full. Of several lanes only those with long round trips count, since the queue stands
// before the link that holds the flow. That is max-min fairness read backwards: every flow has a full link. A flow
// without one, in each of `windows` consecutive windows, waits at a link that gives less than believed. Which one:
// none at all while another flow of the job is held clearly more, for that one holds the ring; not a link that
// another flow found full meanwhile (exonerated); if other unexplained flows share links with it, one of the shared
// ones; among the rest the links between switches, since only those can be avoided. The estimate of the culprits
// becomes the load seen in those windows.
//
// Recovery: more load than the estimate, on average of as many windows, raises it. A link that nobody uses, or that is
// used only beside another full one, shows nothing; so `recovery_interval` after it was last seen to be the one full
// link of a flow, its estimate is raised by half, which lets flows try it. If it is lowered again soon, the next
// interval is twice as long (up to 16 times). So it converges and does not flap, and a test of a link that is still
// slow costs its flows a fifth of their rate for three windows.
//
// Limits. A deficit under 20 % is not seen. Foreign traffic that starts and stops faster than three windows is
// averaged. Where a path has several equally suspect switch links, all of them are blamed until another flow
// exonerates one. A receiver that reads too slowly looks like a slow wire. Two flows that alternate within one slot
// look like a higher load, which errs towards not blaming. Bursts of fewer than three slots are not judged; nor is a
// flow that was never seen with a full link and never waits.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "controller/fabric_view.h"
#include "controller/flow_table.h"

namespace weft::controller {

struct LinkMonitorOptions {
  Seconds slot{0.2};
  Seconds window{0.4};             ///< of a busy wire, per look at a flow
  int windows = 3;                 ///< consecutive windows that a verdict averages over
  double explained = 0.8;          ///< load over estimate from which a link counts as full
  double limited = 0.3;            ///< share of a slot that a flow must wait for the wire to be judged
  Seconds recovery_interval{30};
};

/// An estimate changed.
struct CapacityChange {
  LinkId link;
  BitsPerSecond before, after;
  std::string reason;
};

/// A link that is full and shared: what a re-plan may resolve.
struct Collision {
  LinkId link;
  BitsPerSecond load;
  std::vector<uint64_t> flows;     ///< with bytes on it, ascending
};

class LinkMonitor {
 public:
  LinkMonitor(LinkMonitorOptions options, const FabricView* fabric) : options_(options), fabric_(fabric) {}

  /// Judges `slot`; every slot once, ascending, when its neighbour slot + 1 has been measured too.
  std::vector<CapacityChange> Evaluate(const FlowTable& table, int64_t slot, Seconds now);
  /// Puts estimates back whose confirmation is overdue.
  std::vector<CapacityChange> Recover(Seconds now);

  /// What is believed to be left of the link for the flows that are managed.
  BitsPerSecond Available(LinkId link) const;
  /// Links that have been full and shared for the last three slots.
  const std::vector<Collision>& collisions() const { return collisions_; }
  /// The flow's traffic goes elsewhere now: what was seen of it proves nothing about its new path.
  void Forget(uint64_t flow, Seconds now);

 private:
  struct LinkState {
    BitsPerSecond available;
    double exonerated_s = -1e300;
    double confirmed_s = 0;        ///< when the lowered estimate was last seen to be right
    double tested_s = -1e300;      ///< when its estimate was last raised as a test
    double interval_s = 0;         ///< until the next test
    int contended = 0;             ///< consecutive slots full and shared
  };
  struct LaneUse {
    const std::vector<LinkId>* links = nullptr;
    double bytes = 0;
    double rtt_s = 0;
  };
  /// A flow in the slot under judgement.
  struct FlowUse {
    const SendFlow* flow = nullptr;
    bool limited = false;
    bool plateau = false;          ///< inside a burst, neither its start nor its end
    double rtt_s = 0;              ///< longest of its lanes
    double waited = 0;             ///< share of the slot
    double busy = 1;               ///< share of the slot in which its wire was busy
    std::vector<LaneUse> lanes;
  };
  /// Loads seen by one flow on its links, bits per second, over `window` of a busy wire.
  struct Look {
    double time_s = 0;
    double busy_s = 0;
    std::map<LinkId, double> load;
    std::set<LinkId> queued;       ///< links of the lanes before which a queue stands
    std::set<LinkId> worst;        ///< of those, the links of the lanes with the longest round trips
  };
  struct FlowWindow {
    std::string job;
    double held = 0;               ///< how much it is held by its own path: growth of the round trip, and waiting
    double held_at_s = 0;
    double usual_rtt_s = 0;        ///< while a link of its own was full; 0: not seen yet
    double since_s = 0;            ///< before it the flow's bytes went another way
    Look next;                     ///< in the making: bits instead of rates
    std::deque<Look> looks;        ///< the newest `windows`
  };
  /// The looks of a window from the `first` on together.
  struct Summary {
    std::map<LinkId, double> load; ///< mean
    std::set<LinkId> queued;       ///< in any
    std::set<LinkId> worst;
  };

  LinkState& State(LinkId link);
  /// Whether a flow that is still being probed carried bytes in `slot` on a path that is not known yet.
  static bool HasUnlocatedFlow(const FlowTable& table, int64_t slot, double now_s);
  std::vector<FlowUse> Collect(const FlowTable& table, int64_t slot) const;
  std::vector<double> Loads(const std::vector<FlowUse>& uses) const;
  void FindCollisions(const std::vector<FlowUse>& uses, const std::vector<double>& loads);
  void Accumulate(const FlowUse& use, const std::vector<double>& loads, double now_s,
                  std::vector<CapacityChange>& changes);
  void Judge(const FlowUse& use, FlowWindow& window, double now_s, std::vector<CapacityChange>& changes);
  bool IsJudged(const FlowUse& use, const std::vector<double>& loads, double now_s);
  bool HoldsItsJob(const FlowWindow& window, double now_s) const;
  bool IsFull(const FlowUse& use, const std::vector<double>& loads) const;
  static Summary Summarize(const FlowWindow& window, size_t first = 0);
  bool IsUnexplained(const FlowWindow& window) const;
  std::vector<LinkId> Culprits(uint64_t flow, const FlowWindow& window) const;
  void Blame(const SendFlow& flow, const FlowWindow& window, double now_s, std::vector<CapacityChange>& changes);
  void Raise(LinkId link, double load, double now_s, std::vector<CapacityChange>& changes);

  LinkMonitorOptions options_;
  const FabricView* fabric_;
  std::map<LinkId, LinkState> links_;
  std::map<uint64_t, FlowWindow> windows_;
  std::vector<Collision> collisions_;
};

}  // namespace weft::controller
