// How much of its NIC's line rate each flow asks for while its job communicates, from what it was seen to carry.
//
// A communication library opens more connections than it uses: NCCL connects rings and trees in both directions and may send
// over one of them. So a flow counts by its bytes, relative to those of the busiest NIC of its job:
//
//   share(f) = bytes(f) / max over the job's NICs of the sum of bytes of its flows
//
// Bytes are those of the recent past, with two memories: a short one, in which a flow that begins to send counts at once, and a
// long one, in which flows of other phases of an iteration are not forgotten. In a flow's first 20 s the larger share of the two counts.
// Later it is the long one's, as the short one follows the moment in the iteration; but where the short one is 1.5 times as large it
// begins to count, and from twice on it counts alone. Both are taken as of the moment at which the job last sent, so that they do not
// fade while the whole job computes.
#pragma once

#include <cstdint>
#include <map>

#include "common/units.h"

namespace weft::controller {

class FlowTable;

/// Bytes of which those of `half` seconds ago count half.
class FadingBytes {
 public:
  explicit FadingBytes(double half_s) : half_s_(half_s) {}

  /// Requires: times that do not go back (an earlier one counts as the newest).
  void Add(double bytes, double time_s);
  /// What is left of it at `time_s`.
  double At(double time_s) const;

 private:
  double half_s_;
  double bytes_ = 0, time_s_ = 0;
};

/// What a flow carried, for its demand.
struct CarriedLately {
  FadingBytes shortly{1}, long_since{10};
};

struct DemandOptions {
  /// A job that was silent for so long counts as next to nothing until it sends again.
  Seconds idle_after{30};
  /// A flow of a job that sends, silent for so long and for one and a half of its periods, counts as next to nothing.
  Seconds silent_after{1};
};

/// Share of a flow that carries nothing: it is spread too, but never at the cost of one that sends.
inline constexpr double kTraceOfDemand = 0.001;

/// The share of every flow of the table, in [kTraceOfDemand, 1]. Until `silent_after` of a job's or a flow's life each NIC's flows
/// share alike at least: a NIC sends at its line rate in the sum at most. Complexity: linear in the flows.
std::map<uint64_t, double> DemandShares(const FlowTable& table, Seconds now, const DemandOptions& options);

/// Of such shares, what flows ask for while they send: the activations of a pipeline and its gradients leave by the same NIC, and each has
/// all of it in its turn. Two flows of a job that send at the same time collide on a link for as long as they send, however short that is
/// of an iteration; so a flow counts with what it had of its NIC's bytes in the slots in which it sent, if it carries a fourth of what the
/// job's busiest NIC does, and with less below that; never with less than its share. Complexity: linear in lanes, times the slots of a
/// ring.
std::map<uint64_t, double> SendingShares(const FlowTable& table, Seconds now, const std::map<uint64_t, double>& shares);

}  // namespace weft::controller
