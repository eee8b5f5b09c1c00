// What one user of a host may have the agent keep and do for him, over however many processes he spreads it: telemetry segments and
// the memory that they map, flows, and places that are probed. What is over it is refused; others lose nothing by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "common/result.h"

namespace weft::agent {

/// Of one user. A rank that uses all of its flow slots needs a segment of 10 MiB, 4,096 flows and, where half of them send, 2,048
/// destinations: two such fit the destinations, four the flows. A segment before version 3 has 1 MiB.
struct UserLimits {
  int segments = 256;
  int memory_mib = 512;      ///< mapped, of his segments together: some 50 of version 3. What reading them can cost the agent at most
  int flows = 16'384;        ///< open ones that are followed, sending and receiving
  int destinations = 4'096;  ///< addresses with ports to which paths are probed
};

enum class FlowAnswer {
  kTaken,
  kTooMany,       ///< it would be one more than the user may have
  kAnothersFlow,  ///< another user has a flow of this number
};

/// Counts what users hold. Not thread-safe.
class UserQuotas {
 public:
  explicit UserQuotas(const UserLimits& limits = {}) : limits_(limits) {}

  /// One more segment of `bytes` mapped bytes. Errors: kResourceExhausted naming user, what he holds and what is the most; then
  /// nothing is taken, and nothing is to be given back.
  [[nodiscard]] Status TakeSegment(uint32_t uid, size_t bytes);
  void ReturnSegment(uint32_t uid, size_t bytes);

  /// One more end of `flow` that is followed. A number is the user's who first names it, until none of its ends is open:
  /// others neither count for it, nor lead its probes elsewhere, nor end it.
  [[nodiscard]] FlowAnswer TakeFlow(uint32_t uid, uint64_t flow);
  /// Requires: taken.
  void ReturnFlow(uint32_t uid, uint64_t flow);

  /// The paths of `flow`, which is his, to `place` are wanted; asked again for a flow whose lanes or place have changed. False: it
  /// would be one place more than he may have; that changes nothing, a known flow keeps the place that it had.
  [[nodiscard]] bool TakeDestination(uint32_t uid, uint64_t flow, const std::string& place);
  /// The flow has closed. Whether its paths were probed.
  bool ReturnDestination(uint32_t uid, uint64_t flow);

 private:
  struct User {
    size_t segments = 0, bytes = 0, flows = 0;
    std::map<std::string, size_t> places;  // to how many of his flows each belongs
  };
  struct Ends {
    uint32_t uid = 0;
    size_t open = 0;
  };
  void DropIfNothing(uint32_t uid);

  const UserLimits limits_;
  std::map<uint32_t, User> users_;     // who hold something
  std::map<uint64_t, Ends> flows_;     // by number
  std::map<uint64_t, std::string> probed_;  // by flow: its place
};

}  // namespace weft::agent
