// What waits to go to the controller. Bounded without losing what matters: counters are cumulative, so a newer one of a
// flow replaces an older one that has not gone yet, and a newer path report the older; flows that opened or closed are
// never dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "proto/telemetry.pb.h"

namespace weft::agent {

/// Not thread-safe.
class Outbox {
 public:
  static constexpr int kMostDelays = 1024;  ///< of collectives, that wait; later ones are dropped
  static constexpr int kMostStalls = 1024;  ///< likewise
  /// Of flows in one message: a larger sample goes in several, since a controller takes no message of more than 8 MiB.
  static constexpr size_t kMostBytes = size_t{3} << 20;
  /// Whether `sample` was merged into one that had not gone yet.
  bool Add(v1::HostSample sample);
  void Add(v1::PathReport report);
  /// The host's interfaces are others than before; goes before everything else.
  void Add(v1::Register registration);
  /// The newest is the only one that counts.
  void Add(v1::QosReport qos);
  void Clear();
  bool empty() const { return !registration_ && !qos_ && parts_.empty() && !sample_ && reports_.empty(); }
  /// The next message: the sample first, since it names the flows that reports are about; with `more` set if its rest comes next.
  /// Requires: not empty.
  v1::AgentMessage Take();
  /// Opened and closed flows that wait. Past a bound the session had better start anew, with a full account.
  size_t events() const;

 private:
  std::optional<v1::Register> registration_;
  std::optional<v1::QosReport> qos_;
  std::deque<v1::HostSample> parts_;  // what is left of a sample that began to go
  std::optional<v1::HostSample> sample_;
  std::map<std::pair<uint64_t, bool>, int> counter_of_;  // (flow, send) -> index in sample_->counters
  std::map<uint64_t, v1::PathReport> reports_;           // by flow
};

}  // namespace weft::agent
