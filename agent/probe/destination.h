// How far a destination is, and which switches are the first and the last on the way. Asked with SYNs to a closed port,
// so that no probe that could arrive ever goes to a port where somebody listens: the distance from the TTL that is left
// in the reset of one SYN with a full TTL, then confirmed forwards (the last TTL that is exceeded, the first that
// arrives), because the way back may be longer or shorter. First and last switch are the same for all ports of hosts
// with one cable, so they are asked once per destination.
#pragma once

#include <optional>

#include "agent/probe/budget.h"
#include "agent/probe/packet.h"
#include "common/units.h"

namespace weft::agent {

/// One question ("who is at this TTL?") and how often it has been put.
struct ProbeQuery {
  int ttl = 0;
  int attempts = 0;
  Seconds sent{0};
  bool done = false;
  Ipv4 answer = 0;  ///< 0 when done: nobody answers

  /// Gives up after the last attempt's timeout.
  void Expire(Seconds now, const TracerOptions& options);
  bool Due(Seconds now, const TracerOptions& options) const;
  /// When there is something to do about it: at once if it was never put, else when its answer is overdue.
  Seconds Wake(Seconds now, const TracerOptions& options) const;
  void Sent(Seconds now);
  void Answer(Ipv4 from);
};

class DestinationTrace {
 public:
  enum class State { kAsking, kReady, kSilent };

  /// `source_port` and `closed_port`: of the SYNs; nobody should listen on the latter.
  DestinationTrace(Ipv4 source, Ipv4 destination, uint16_t source_port, uint16_t closed_port);
  /// One that asks again for all but the first switch, if that is known: a host has one cable, and all its destinations share that switch's
  /// answers.
  DestinationTrace Afresh() const;

  /// The next probe that is due and has a token, without its sequence number; then counted as sent.
  std::optional<Probe> Next(Seconds now, const TracerOptions& options, ProbeBudget& budget);
  /// When Next() should be called again; a large value if never.
  Seconds Wake(Seconds now, const TracerOptions& options, ProbeBudget& budget) const;

  /// `from` says that the probe sent with `ttl` ended there.
  void OnTimeExceeded(int ttl, Ipv4 from, ProbeBudget& budget);
  /// The destination answered the probe sent with `ttl`, with `left` in its own packet's TTL.
  void OnArrived(int ttl, int left);

  State state() const { return state_; }
  int hops() const { return hops_; }  ///< switches on the way, once kReady
  Ipv4 first() const { return first_.answer; }
  Ipv4 last() const { return hops_ > 1 ? last_.answer : first_.answer; }

 private:
  void SetDistance(int hops);
  void Settle(Seconds now, const TracerOptions& options);
  std::optional<ProbePlace> PlaceOf(const ProbeQuery& query) const;

  Ipv4 source_;
  Ipv4 destination_;
  uint16_t source_port_;
  uint16_t closed_port_;
  State state_ = State::kAsking;
  Seconds silent_since_{0};
  int hops_ = -1;        // -1: the distance is not known yet
  int corrections_ = 0;  // a path that changes under our hands must not keep us busy for ever
  ProbeQuery distance_;
  ProbeQuery first_, last_, confirm_;
};

}  // namespace weft::agent
