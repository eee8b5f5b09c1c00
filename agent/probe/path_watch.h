// Whether known ways still go where they went: once a second one port of a flow is asked for one hop again, each hop in turn. A hop that
// answers otherwise, or not at all after some attempts, is a sign that paths have changed, also where no flow sends over them now; what
// follows the sign is the tracer's.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "agent/probe/budget.h"
#include "agent/probe/packet.h"
#include "common/units.h"

namespace weft::agent {

/// One port of a flow, and the switch that its probes of this TTL have found.
struct WatchedWay {
  uint64_t flow = 0;
  Ipv4 source = 0;
  Ipv4 destination = 0;
  uint16_t destination_port = 0;
  uint16_t source_port = 0;
  int ttl = 0;
  Ipv4 hop = 0;
  bool lane = false;       ///< the port is one that the flow sends from

  friend auto operator<=>(const WatchedWay&, const WatchedWay&) = default;
};

/// Not thread-safe, without sockets or clock.
class PathWatch {
 public:
  static constexpr size_t kMostHops = 256, kMostWays = 64;  ///< hops, and ways over each; more are left out

  explicit PathWatch(const TracerOptions& options) : options_(options) {}

  /// The ways that are looked at from now on.
  void SetWays(const std::vector<WatchedWay>& ways);
  bool WantsWays(Seconds now) const { return options_.watch_interval.count() > 0 && now >= ways_due_; }

  /// The next probe that is due and has a token, without its sequence number; then counted as sent. `random`: any number. Complexity:
  /// logarithmic in hops.
  std::optional<Probe> Next(Seconds now, ProbeBudget& budget, uint64_t random);
  /// When Next() or SetWays() should be called again; a large value if never.
  Seconds Wake() const;
  /// The switch `from` had the probe that was sent with `sent`.
  void OnTimeExceeded(const Probe& sent, Ipv4 from);
  /// A way that has changed, once.
  std::optional<WatchedWay> TakeChanged(Seconds now);

 private:
  struct Question {
    WatchedWay way;
    int attempts = 0;
    Seconds sent{0};
    Ipv4 answer = 0;       ///< 0: none yet
  };
  using Hop = std::pair<int, Ipv4>;   ///< TTL and switch

  const TracerOptions options_;
  struct Ways {
    std::vector<WatchedWay> all;
    std::vector<size_t> lanes;   ///< of them: half of the questions are about these
  };
  std::map<Hop, Ways> ways_;
  Hop last_{0, 0};
  std::optional<Question> question_;
  Seconds next_{0};
  Seconds ways_due_{0};
};

}  // namespace weft::agent
