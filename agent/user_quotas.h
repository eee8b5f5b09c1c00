// What one user of a host may have the agent keep and do for him, over however many processes he spreads it: telemetry segments and
// the memory that they map, flows, and places that are probed. What is over it is refused; others lose nothing by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "common/result.h"

namespace weft::agent {

/// Of one user. A host of eight ranks that use all of their flow slots needs 8 segments, 2,048 flows and 1,024 destinations.
struct UserLimits {
  int segments = 256;
  int memory_mib = 512;      ///< mapped, of his segments together
  int flows = 16'384;        ///< open ones that are followed, sending and receiving
  int destinations = 4'096;  ///< addresses with ports to which paths are probed
};

enum class DestinationAnswer {
  kTaken,
  kTooMany,       ///< it would be one place more than the user may have
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

  /// One more flow that is followed; false: he has as many as he may.
  [[nodiscard]] bool TakeFlow(uint32_t uid);
  void ReturnFlow(uint32_t uid);

  /// The paths of `flow` to `place` are wanted; asked again for a flow whose lanes or place have changed. What is refused changes
  /// nothing: a known flow keeps the place that it had.
  [[nodiscard]] DestinationAnswer TakeDestination(uint32_t uid, uint64_t flow, const std::string& place);
  /// The flow has closed. Whether its paths were his: a number says nothing of whose flow it is.
  bool ReturnDestination(uint32_t uid, uint64_t flow);
  bool IsProbedFor(uint32_t uid, uint64_t flow) const;

 private:
  struct User {
    size_t segments = 0, bytes = 0, flows = 0;
    std::map<std::string, size_t> places;  // to how many of his flows each belongs
  };
  struct Probed {
    uint32_t uid = 0;
    std::string place;
  };
  void DropIfNothing(uint32_t uid);

  const UserLimits limits_;
  std::map<uint32_t, User> users_;     // who hold something
  std::map<uint64_t, Probed> probed_;  // by flow
};

}  // namespace weft::agent
