// What a link gives, inferred from what flows get. The switches say nothing; of every lane the sender says what it put on
// the wire, and the receiver, for the time in which the next bytes stood in a queue on their way, how much arrived
// (netplugin/telemetry/arrival_meter.h). The second is the rate that the lane's path gave it, whatever the flow's application and the
// acknowledgements did meanwhile. Judged in slots of 0.2 s:
//
//   rate of a lane        r = bytes / time of its backlog
//   load that it sees     on each link of its path, r plus what the other lanes on that link sent while it was backlogged;
//                         two lanes' backlogs in one slot may have been at the same time or not, so this is an interval:
//                         [low, high]. What was sent in the slot before may have come in this one: at most it is `most`
//
// A backlogged lane has a full link: max-min fairness read backwards. It is *explained* when the most load of some link
// of its path is >= 80 % of what that link is believed to give. A lane without such a link, in each of `windows`
// consecutive windows of backlog, waits at a link that gives less than believed. Where no link of its path was 65 % full, three
// eighths of a window's backlog say so as well, in at least a window's time: a job that sends a quarter of the time has a window
// of backlog in 1.6 s only. So do the lanes over a link between switches of
// whose last ten windows, all lanes' together, at most two had a link 90 % full on the lane's way, nor the mean of them: bursts of
// several flows that overlap for part of a slot make `most` too much, so that three windows in a row seldom say so, but of a full
// link it is 100 % or more. Which one: not a link that another lane
// found full meanwhile (exonerated); if other unexplained lanes share links with it, one of the shared ones; among the
// rest the links between switches, since only those can be avoided. The culprits' estimate becomes the least load seen (of many lanes'
// windows the mean), or goes some of the way there if it was lowered before.
//
// A lowered estimate then follows what its lanes see: the link that is fullest for a backlogged lane is what holds it, so
// an estimate outside [low, high] moves towards it with every window: the first ones count like those that it was made of,
// later ones less, and more when down than up. At 90 % of the line rate it is the line rate again.
//
// Recovery: a link that no backlogged lane uses shows nothing; so `recovery_interval` after it was last seen to hold a
// lane, its estimate is raised by half, which lets flows try it. A test that fails is undone at once: the estimate goes on from
// where it was before, or from what the link was seen to give where that is more. The next interval is then twice as long (up to 16
// times). So it converges and does not flap.
//
// Whose word it is. All that a lane shows is what its user's processes say, who may say anything. So every owner has estimates of
// his own, made of his own lanes only; what others send on a link counts as load, and shows that a link is full. His own flows are
// planned with his estimates (flow_planner.h). For all others a link gives what at least two owners have found that it
// gives no more than: the second least of their estimates. Where all flows are of one owner, that is his.
//
// What is kept of owners who come and go. An estimate that says no more than a new one would is dropped at once; one of an owner
// without any flow when his lanes have not shown it for 16 recovery intervals (8 minutes), however often it was tested or paused
// meanwhile. Of a link that is held to be bad (bad_links.h) it stays until the hold is lifted. And of one link at most kMostOwners
// owners have estimates after a slot, those with the least: the others lose nothing by it now, since the second least of these,
// with which all are planned, is no more than what they have found. So there are at most kMostOwners times as many as links.
//
// Limits. A deficit under 20 % of a healthy link is not seen. Where a path has several equally suspect switch links, all
// of them are blamed until another lane exonerates one. A lane that its own pacing or the receiver's window holds looks
// like a slow path, as does a congestion control that leaves the wire idle while it has bytes. Estimates are low rather
// than right: the least of the looks, and down faster than up.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "controller/fabric_view.h"
#include "controller/flow_table.h"

namespace weft::controller {

struct LinkMonitorOptions {
  Seconds slot{0.2};
  Seconds window{0.4};             ///< of backlog, per look at a lane
  int windows = 3;                 ///< consecutive windows that a verdict needs
  double explained = 0.8;          ///< load over estimate from which a link counts as full
  Seconds recovery_interval{30};
  bool lossy_links = false;        ///< links that lose segments without being full by our count are planned with less (bad_links.h)
};

/// An estimate changed: the one that all are planned with, or the owner's own.
struct CapacityChange {
  LinkId link;
  BitsPerSecond before, after;
  std::string reason;
  Owner owner = kNoOwner;
  bool for_all = true;
};

enum class Badness { kSilent, kLossy };

/// A link that is full and shared: what a re-plan may resolve.
struct Collision {
  LinkId link;
  BitsPerSecond load;
  std::vector<uint64_t> flows;     ///< with bytes on it, ascending
};

class LinkMonitor {
 public:
  static constexpr size_t kMostOwners = 64;   ///< with an estimate of the same link
  using LaneKey = std::pair<uint64_t, int32_t>;  ///< flow and source port

  LinkMonitor(LinkMonitorOptions options, const FabricView* fabric) : options_(options), fabric_(fabric) {}

  /// Judges `slot`; every slot once, ascending, when it has been measured whole.
  std::vector<CapacityChange> Evaluate(const FlowTable& table, int64_t slot, Seconds now);
  /// Puts estimates back whose confirmation is overdue.
  std::vector<CapacityChange> Recover(Seconds now);

  /// A lane in the slot that was judged last.
  struct LaneUse {
    LaneKey key;
    const SendFlow* flow = nullptr;
    const std::vector<LinkId>* links = nullptr;
    double carried = 0;            ///< bits, by its sender
    double before = 0;             ///< in the slot before, beside its backlog
    double backlog = 0;            ///< share of the slot
    double rate = 0;               ///< bits per second while backlogged
  };
  /// Until the flow table changes.
  const std::vector<LaneUse>& uses() const { return uses_; }

  /// What is believed to be left of the link for the flows that are managed, of whomever.
  BitsPerSecond Available(LinkId link) const;
  /// For flows of `owner`; never more.
  BitsPerSecond Available(LinkId link, Owner owner) const;
  /// By lanes of `owner` the link is bad (bad_links.h), and planned with `share` of its line rate at most; 1: with what
  /// was believed of it before.
  CapacityChange Hold(LinkId link, Owner owner, Badness badness, double share, const std::string& why);
  /// Links that have been full and shared for the last three slots.
  const std::vector<Collision>& collisions() const { return collisions_; }
  /// How many estimates are kept, of all owners and links. Complexity: linear in links.
  size_t estimates() const;
  /// The flow's traffic goes elsewhere from `now` on: what was seen of it proves nothing about its new path.
  void Forget(uint64_t flow, Seconds now);

 private:
  /// What one owner's lanes have shown of a link.
  struct Estimate {
    BitsPerSecond available;
    BitsPerSecond announced;       ///< the last value that a change was reported with
    double exonerated_s = -1e300;
    int64_t looks = 0;             ///< that the estimate has followed since it was first lowered
    double confirmed_s = 0;        ///< when the lowered estimate was last seen to be right, or tested; less the time that it was paused
    double seen_s = -1e300;        ///< when his lanes last showed it
    double tested_s = -1e300;      ///< when its estimate was last raised as a test
    BitsPerSecond untested;        ///< what it was before
    double interval_s = 0;         ///< until the next test
    double lowered_s = -1e300;     ///< when it was last told to be less than before
    std::array<double, 2> shares{1, 1};  ///< of the line rate that it is planned with at most, by Badness
    BitsPerSecond before_bad;      ///< what it was believed to give
    /// Neither followed nor tested meanwhile.
    bool bad() const { return std::min(shares[0], shares[1]) < 1; }
  };
  struct LinkState {
    std::map<Owner, Estimate> estimates;
    double exonerated_s = -1e300;  ///< by anybody's lanes, for all
    int contended = 0;             ///< consecutive slots full and shared
  };
  /// Mean load of a link in bits per second as a lane saw it.
  struct Load {
    double low = 0, high = 0;
    double most = 0;               ///< high, where more of it was sent in the slot before
    double middle() const { return (low + high) / 2; }
  };
  struct Look {
    double time_s = 0;             ///< when it was over
    double begin_s = 0;
    double backlog_s = 0;
    std::map<LinkId, Load> load;
    /// While it is made, loads are bits: those of the slots in it.
    void Add(const Look& part);
    /// As rates.
    Look Mean(double now_s) const;
  };
  /// A look at one of the lanes over a link.
  struct PooledLook {
    double time_s = 0;
    LaneKey lane;
    double fullness = 0;           ///< Fullness(), kMostFullness at most
    double middle = 0;             ///< of what the link carried, bits per second
  };
  struct LaneWindow {
    Owner owner = kNoOwner;
    Look next;                     ///< the window in the making
    Look glance;                   ///< the look in the making
    std::deque<Look> looks;        ///< the newest `windows`
  };

  static constexpr double kCarriedShort = 1.5, kCarriedLong = 3;  ///< seconds over which an owner's bytes on a link prove what it gives
  static constexpr double kWorthTelling = 0.1;  ///< relative change of an estimate that a plan should know
  static constexpr int kMaxBackoff = 16;      ///< recovery intervals between two tests at most
  static constexpr double kLookLife = 20;     ///< seconds: what is older belongs to another phase of the job
  static constexpr double kFarFromFull = 0.65;  ///< fullness of the fullest link on the way of a lane of which a glance says enough
  static constexpr double kGlance = 0.375;    ///< of a window's backlog, in a window's time at least
  static constexpr double kSameTime = 1e-9;   ///< seconds
  static constexpr size_t kPooledLooks = 10;  ///< of all lanes over a link, that are judged together
  static constexpr size_t kFullLooks = 2;    ///< of them at most, where they wait for it
  static constexpr double kLeastAvailable = 0.02;  ///< of the line rate: 0 would make paths impossible and ratios infinite
  static constexpr double kRestored = 0.9;         ///< of the line rate
  static constexpr double kSameRate = 1.1;         ///< of two rates that were measured, that mean the same
  /// Of the way to what is seen, per look. What others leave of a link goes up and down, and a burst that meets a short queue
  /// is served before those who wait their turn: planned is with what can be counted on, not with the mean.
  static constexpr double kFollowUp = 0.1, kFollowDown = 0.4;

  /// Made if there is none.
  Estimate& EstimateOf(LinkId link, Owner owner);
  /// nullptr if there is none.
  const Estimate* FindEstimate(LinkId link, Owner owner) const;
  /// Sets the owner's estimate, and says whether it is all others' too.
  CapacityChange Set(LinkId link, Owner owner, BitsPerSecond to, std::string reason);
  /// Whose flows there are, and what that makes of estimates where one owner is not alone any more, or is again.
  void CountOwners(const FlowTable& table, std::vector<CapacityChange>& changes);
  /// Drops those that are kept no longer; where that changes what all are planned with, it is a change. Complexity: linear in flows
  /// and estimates.
  void DropEstimates(const FlowTable& table, double now_s, std::vector<CapacityChange>& changes);
  static void KeepLeast(std::map<Owner, Estimate>* estimates);
  /// Links that flows which are still being probed may have loaded in `slot`: on shortest ways between their ends, or next to the
  /// end that is known. A host that was never probed may hang anywhere: for ten seconds after its first such flow all links are in
  /// doubt. Who crosses one of them is not judged; everybody else is. Complexity: linear in lanes, and in links for each
  /// of at most kMaxUnlocated pairs of hosts.
  std::set<LinkId> Unsure(const FlowTable& table, int64_t slot, double now_s);
  bool MayHangAnywhere(const std::string& host, double now_s);
  /// Time in which nobody can confirm their estimates does not count for their recovery.
  void Pause(const std::set<LinkId>& links);
  std::vector<LaneUse> Collect(const FlowTable& table, int64_t slot) const;
  using UsesByLink = std::vector<std::vector<size_t>>;   ///< indices of uses, by the link's index
  UsesByLink ByLink(const std::vector<LaneUse>& uses) const;
  Load Seen(const LaneUse& lane, const std::vector<size_t>& on_link, const std::vector<LaneUse>& uses) const;
  void FindCollisions(const std::vector<LaneUse>& uses, const UsesByLink& by_link);
  static bool SameLinks(const Look& a, const Look& b);
  bool IsFull(const Load& load, BitsPerSecond available) const;
  bool IsUnexplained(const LaneWindow& window) const;
  /// Of the link of the lane's path that may have been fullest: the most that it may have carried over what it is believed to give.
  double Fullness(const Look& look, Owner owner) const;
  void AddToPools(const LaneKey& lane, Owner owner, const Look& look);
  /// What lanes over these links have seen was judged by other estimates.
  void ForgetPooled(const std::vector<CapacityChange>& changes);
  /// Whether its pool, of several lanes, says that they wait for it.
  bool IsUnexplained(LinkId link, Owner owner) const;
  /// The lane in one slot.
  Look LookAt(const LaneUse& use, const UsesByLink& by_link, const std::vector<LaneUse>& uses) const;
  /// Whether nothing needs to be added to it before it counts.
  bool IsOver(const Look& glance, Owner owner, double end_s) const;
  /// `end_s`: of the slot.
  void Judge(const LaneUse& use, LaneWindow& window, double end_s, double now_s, std::vector<CapacityChange>& changes);
  /// Links that the look found full gave what they are believed to.
  void Exonerate(const Look& look, Owner owner, double now_s);
  /// Exonerates, and moves lowered estimates to what the window saw.
  void FollowLook(const Look& look, Owner owner, double now_s, std::vector<CapacityChange>& changes);
  void Follow(LinkId link, Owner owner, const Load& load, double now_s, std::vector<CapacityChange>& changes);
  /// No estimate is less than what its owner's lanes have carried since it was lowered, in the mean of kCarriedLong (or as long as it
  /// has been, from kCarriedShort on). He could forge that for nobody but himself. Complexity: linear in lanes, where there are estimates.
  void RaiseToCarried(const FlowTable& table, int64_t slot, std::vector<CapacityChange>& changes);
  std::vector<LinkId> Suspects(const LaneWindow& window) const;
  std::vector<LinkId> Culprits(const LaneKey& lane, const LaneWindow& window) const;
  void Blame(const LaneUse& lane, const LaneWindow& window, double now_s, std::vector<CapacityChange>& changes);
  void BlamePooled(const LaneUse& lane, Owner owner, double now_s, std::vector<CapacityChange>& changes);
  void Lower(const std::map<LinkId, double>& links, Owner owner, const std::string& evidence, double now_s,
             std::vector<CapacityChange>& changes);

  LinkMonitorOptions options_;
  const FabricView* fabric_;
  std::map<LinkId, LinkState> links_;
  bool alone_ = true;                        ///< all flows, and all estimates, are of one owner
  std::map<LaneKey, LaneWindow> windows_;
  std::map<std::pair<LinkId, Owner>, std::deque<PooledLook>> pools_;  ///< of links between switches; none is empty
  double crowded_since_s_ = -1e9;            ///< when more young flows came than their ways can be looked at
  std::map<std::string, double> unknown_s_;  ///< hosts without a probe: when they first carried something
  std::map<uint64_t, double> moved_s_;  ///< when flows were last given other paths
  std::vector<Collision> collisions_;
  std::vector<LaneUse> uses_;
};

}  // namespace weft::controller
