// The raw sockets of path probing: sends probes exactly as built (IP_HDRINCL), reads the ICMP time-exceeded that they
// draw, and, only while a destination's distance is asked for, TCP resets. A raw TCP socket is given a copy of every
// segment that reaches the host, so it exists for as short as possible and behind a filter.
#pragma once

#include <vector>

#include "agent/probe/packet.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "common/units.h"

namespace weft::agent {

class ProbeSockets {
 public:
  /// Errors: kFailedPrecondition without CAP_NET_RAW.
  [[nodiscard]] static Result<ProbeSockets> Open();

  /// Errors: kUnavailable where the kernel has no route or no buffer.
  [[nodiscard]] Status Send(const Probe& probe);

  struct Answers {
    std::vector<TimeExceeded> exceeded;
    std::vector<TcpAnswer> arrived;
  };
  /// Waits for answers until `timeout`, or until `wake` (a descriptor, -1: none) is readable, and reads all there are.
  /// `with_arrivals`: also destinations' own answers.
  [[nodiscard]] Result<Answers> Wait(Seconds timeout, int wake, bool with_arrivals);

 private:
  ProbeSockets() = default;
  Status SetArrivals(bool on);

  UniqueFd send_;
  UniqueFd icmp_;
  UniqueFd tcp_;  // only while distances are asked for
};

}  // namespace weft::agent
