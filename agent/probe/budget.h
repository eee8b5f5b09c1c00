// How fast probes may go out. A router answers only so many of a host's probes (Linux: a burst of 6 per asking address,
// then one per second, and real switches are no more generous), and what it does not answer is lost effort. So probes
// that end at one place share a token bucket. Probes with the TTL of a middle hop end at any of several switches, not
// known beforehand: each new one that is seen to answer there adds its own allowance to that bucket.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <set>

#include "agent/probe/packet.h"
#include "common/units.h"

namespace weft::agent {

struct TracerOptions {
  int max_candidates = 12;        ///< ports tried per flow beside those of its lanes
  int single_path_ports = 12;     ///< so many ports on one path: there is no other
  int first_report_ports = 6;     ///< so many on one path: worth a report, though the search goes on
  int burst = 6;                  ///< probes at once per switch
  double rate_per_s = 1;          ///< then so many per second and switch
  int attempts = 4;               ///< per port and hop
  Seconds answer_timeout{1};
  Seconds destination_retry{60};  ///< after a destination that did not answer
  Seconds cache_age{300};         ///< a path of the same four-tuple is believed so long
  Seconds reprobe_interval{60};   ///< every flow again so often, a quarter sooner or later; 0: never
  Seconds probe_again_after{10};   ///< a flow is not probed again at a sign sooner than so long after it was
  Seconds watch_interval{1};       ///< between two probes that ask whether known ways are still the same; 0: none
  bool exhaustive = false;        ///< all candidates, whatever has been found
};

/// Where probes end: at hop `ttl` of a source's way to anywhere (`destination` 0) or to one destination.
struct ProbePlace {
  Ipv4 source = 0;
  Ipv4 destination = 0;
  int ttl = 0;

  friend auto operator<=>(const ProbePlace&, const ProbePlace&) = default;
};

/// Token buckets, one per place. Not thread-safe.
class ProbeBudget {
 public:
  explicit ProbeBudget(const TracerOptions& options) : options_(options), rate_per_s_(options.rate_per_s) {}

  /// Takes a token if there is one.
  bool Take(const ProbePlace& place, Seconds now);
  /// Takes one where half of a burst is left after it, for what is not urgent.
  bool TakeSpare(const ProbePlace& place, Seconds now);
  /// When TakeSpare() will succeed again, if nobody else takes.
  Seconds SpareAt(const ProbePlace& place, Seconds now);
  /// When Take() will succeed again, if nobody else takes.
  Seconds ReadyAt(const ProbePlace& place, Seconds now);
  /// What a switch is asked from now on, at most the options' own: a site's limit on its answers is for all hosts together.
  void SetRate(double per_s) { rate_per_s_ = std::min(options_.rate_per_s, per_s); }
  /// `from` answered a probe that ended at `place`.
  void Answered(const ProbePlace& place, Ipv4 from);

 private:
  struct Bucket {
    double tokens = 0;
    Seconds filled{0};
    std::set<Ipv4> switches;
  };

  Bucket& Filled(const ProbePlace& place, Seconds now);
  double Rate(const Bucket& bucket) const;
  double Burst() const;
  Seconds HasAt(const ProbePlace& place, double tokens, Seconds now);

  const TracerOptions options_;
  double rate_per_s_;
  std::map<ProbePlace, Bucket> buckets_;
};

}  // namespace weft::agent
