// Which source port takes which way: the state machine of path probing, without sockets or clock. It says which probe
// to send next and when to come back, is told the answers, and hands out reports as flows become known. The middle hops
// are probed per port with the flow's own four-tuple and a TTL that ends at or before the last switch, never at the
// host.
//
// Order: flows that carry bytes before idle ones (of NCCL's twelve connections between two hosts two may carry all),
// least-known flows first among those; ports of a flow's lanes, then candidates. A flow is done when `max_candidates`
// ports are known, when the last few brought no new way, or when twelve ports all went one way
// (of two equal ways, six would miss one for 1 flow in 32, twelve for 1 in 2,048).
#pragma once

#include <map>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "agent/probe/destination.h"
#include "agent/probe/dscp_trace.h"
#include "agent/probe/path_watch.h"

namespace weft::agent {

struct TraceTarget {
  uint64_t flow = 0;
  Ipv4 source = 0;
  Ipv4 destination = 0;
  uint16_t destination_port = 0;      ///< a live listening port: probes to it must end before it
  std::vector<uint16_t> lanes;        ///< source ports in use
  std::vector<uint16_t> candidates;   ///< source ports that could be used, in the order of asking
};

struct TracedPath {
  uint16_t source_port = 0;
  std::vector<Ipv4> hops;  ///< first switch first; 0 where none answered
  bool complete = false;

  friend bool operator==(const TracedPath&, const TracedPath&) = default;
};

struct TraceReport {
  uint64_t flow = 0;
  Ipv4 source = 0;
  Ipv4 destination = 0;
  uint16_t destination_port = 0;
  int hop_count = 0;              ///< switches on the way
  std::vector<TracedPath> paths;  ///< ports known so far
  bool finished = false;          ///< no more is coming unless the flow changes
};

/// What has been counted since the start.
struct TracerCounters {
  uint64_t sent = 0;
  uint64_t answered = 0;
  uint64_t silent_destinations = 0;
};

/// Not thread-safe. Complexity: Next() and TakeReports() are linear in flows times ports.
class PathTracer {
 public:
  /// A probe to send now, or none and when to call again (a large value: when something happens).
  struct Step {
    std::optional<Probe> probe;
    Seconds wake{0};
  };

  PathTracer(const TracerOptions& options, uint64_t seed);

  /// A new flow, or new lanes of a known one. Requires: addresses nonzero.
  void Track(TraceTarget target, Seconds now);
  void Forget(uint64_t flow);
  /// There is a sign that the flow's paths are others than they were. Unknown flows are no error.
  void ProbeAgain(uint64_t flow, Seconds now);
  void SetRate(double per_s) { budget_.SetRate(per_s); }
  /// The flows that carry bytes, in place of those named before. Unknown ones are no error.
  void SetCarrying(std::set<uint64_t> flows) { carrying_ = std::move(flows); }

  /// The DSCP of the site's classes: lanes are asked whether it arrives as sent.
  void SetClasses(std::vector<uint8_t> dscp) { dscp_.SetClasses(std::move(dscp)); }
  std::vector<DscpRewrite> rewrites() const { return dscp_.rewrites(); }

  Step Next(Seconds now);
  void OnTimeExceeded(const TimeExceeded& answer, Seconds now);
  void OnTcpAnswer(const TcpAnswer& answer);
  /// Flows that have become known better since the last call.
  std::vector<TraceReport> TakeReports(Seconds now);

  /// Whether an answer of a destination (a TCP segment) is awaited.
  bool AwaitsArrival() const;
  const TracerCounters& counters() const { return counters_; }

 private:
  struct Tuple {
    Ipv4 source = 0, destination = 0;
    uint16_t destination_port = 0, source_port = 0;
    friend auto operator<=>(const Tuple&, const Tuple&) = default;
  };
  struct PortTrace {
    std::vector<ProbeQuery> middle;  // TTL 2 .. hops - 1
    bool done = false;
    Seconds done_at{0};
  };
  struct Flow {
    TraceTarget target;
    size_t reported_distinct = 0, reported_lanes = 0;
    bool finished = false;
    Seconds finished_at{0};
    Seconds again_at{0};  // when it is due anyway; 0: not drawn
    std::optional<Seconds> again_after;  // it is finished: only some of its ports were asked, or there was another sign meanwhile
    int gaps = 0;             // times in a row that the way of a lane was not known whole
    Seconds changed_at{-1e9}; // when a way of it was last seen to have changed
  };
  struct Sent {
    Tuple tuple;
    int ttl = 0;
    bool to_destination = false;
    Seconds at{0};
    std::optional<uint8_t> tos = {};  // of a question of dscp_
    bool watch = false;               // of watch_
  };
  /// What is known of a flow, worked out afresh from its ports.
  struct Progress {
    std::vector<TracedPath> paths;
    size_t distinct = 0, lanes_known = 0, unknown_lanes = 0, in_flight = 0, asked = 0;
    size_t wanted = 0;  // ports more that would settle it; 0: it is settled
  };
  using Ends = std::pair<Ipv4, Ipv4>;

  DestinationTrace& Destination(const TraceTarget& target);
  std::optional<Probe> NextOfDestinations(Seconds now);
  std::optional<Probe> NextOfFlow(Flow& flow, Seconds now);
  std::optional<Probe> NextOfDscp(Seconds now);
  std::optional<Probe> NextOfWatch(Seconds now);
  void StartPorts(Flow& flow, Seconds now);
  size_t Wanted(const Progress& progress, size_t since_new) const;
  Progress Assess(const Flow& flow, Seconds now);
  void Settle(PortTrace& port, Seconds now);
  Probe Register(Probe probe, bool to_destination, Seconds now);
  Seconds WakeTime(Seconds now);
  void Restart(Flow& flow);
  void AskAgain(Flow& flow, Seconds now);
  void AskChanged(const WatchedWay& way, Seconds now);
  void CompareEnds();
  Seconds DueAgain(Flow& flow);
  void Defer(Flow& flow);
  void AskGaps(Flow& flow, const Progress& progress);
  void ReprobeOverdue(Seconds now);
  void Purge(Seconds now);

  const TracerOptions options_;
  std::mt19937_64 random_;
  ProbeBudget budget_;
  std::map<Ends, DestinationTrace> destinations_;
  std::map<Ends, DestinationTrace> before_;  // what was known of those that are asked again now
  std::map<Ends, Seconds> asked_again_;      // when they last were
  std::map<Tuple, PortTrace> ports_;
  std::map<uint64_t, Flow> flows_;
  std::set<uint64_t> carrying_;
  DscpTrace dscp_{options_};
  PathWatch watch_{options_};
  std::unordered_map<uint32_t, Sent> sent_;
  TracerCounters counters_;
};

}  // namespace weft::agent
