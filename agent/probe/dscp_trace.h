// Whether the DSCP of a flow's packets arrives as it was sent, hop by hop: a probe with the flow's own four-tuple, a small TTL and
// the
// class's DSCP dies at a switch, which quotes the IP header as it came. The last switch's own change is not seen: nobody quotes
// what
// leaves it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/probe/budget.h"
#include "agent/probe/packet.h"
#include "common/units.h"

namespace weft::agent {

/// One way, by the port of a lane.
struct DscpWay {
  Ipv4 source = 0;
  Ipv4 destination = 0;
  uint16_t destination_port = 0;
  uint16_t source_port = 0;
  int hops = 0;  ///< switches on it

  friend auto operator<=>(const DscpWay&, const DscpWay&) = default;
};

struct DscpRewrite {
  DscpWay way;
  uint8_t dscp = 0;   ///< that was sent
  uint8_t seen = 0;   ///< that arrived ...
  Ipv4 at = 0;        ///< ... at this switch, the first one
  Ipv4 after = 0;     ///< the switch before it, if it answered; 0: the host itself, or not known

  friend bool operator==(const DscpRewrite&, const DscpRewrite&) = default;
};

/// Not thread-safe, without sockets or clock.
class DscpTrace {
 public:
  explicit DscpTrace(const TracerOptions& options) : options_(options) {}

  /// The DSCP of the site's classes; empty: nothing is asked.
  void SetClasses(std::vector<uint8_t> dscp);
  /// The ways that are looked at from now on, 64 at most; others are forgotten.
  void SetWays(std::vector<DscpWay> ways);
  bool WantsWays(Seconds now) const { return !dscp_.empty() && now >= ways_due_; }

  /// The next probe that is due and has a token, without its sequence number; then counted as sent.
  std::optional<Probe> Next(Seconds now, ProbeBudget& budget);
  /// When Next() or SetWays() should be called again; a large value if never.
  Seconds Wake() const;
  /// The switch `from` had the probe that was sent with `sent` and says that it came with `tos`. False: not one of ours.
  bool OnTimeExceeded(const Probe& sent, Ipv4 from, uint8_t tos, Seconds now);

  /// One for each pair of switches and DSCP that is changed between them.
  std::vector<DscpRewrite> rewrites() const;

 private:
  struct Question {
    DscpWay way;
    uint8_t dscp = 0;
    int ttl = 0;

    friend auto operator<=>(const Question&, const Question&) = default;
  };
  struct Answer {
    int attempts = 0;       ///< since it was last answered or given up
    Seconds next{0};        ///< when it may be asked
    Ipv4 from = 0;          ///< 0: not answered
    uint8_t seen = 0;
  };

  const TracerOptions options_;
  std::vector<uint8_t> dscp_;
  std::map<Question, Answer> questions_;
  Seconds next_{0};
  Seconds ways_due_{0};
};

}  // namespace weft::agent
