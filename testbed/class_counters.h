// Counters of HTB classes by rtnetlink. `tc -s class show` prints no JSON for classes, and starting a process per port
// would disturb what a two-core testbed measures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

namespace weft::testbed {

/// One class of a port. `bytes` and `packets` are what it sent: Ethernet frames with every header of every segment of an
/// offloaded packet, without preamble and frame check sequence.
struct ClassCounters {
  uint32_t class_id = 0;  ///< major << 16 | minor, as tc writes in hexadecimal: 1:10 is 0x00010010
  int64_t bytes = 0;
  int64_t packets = 0;
  int64_t drops = 0;
};

/// Whether the class is one of the fabric's, 1:10, 1:20 …: 1:1 above them, and in fair ports the queues of flows below them,
/// count the same bytes again.
constexpr bool IsFabricClass(uint32_t class_id) { return (class_id & 0xffff) >= 0x10 && (class_id & 0xffff) < 0x1000; }

/// Reads one device's classes. Keeps one socket inside the device's namespace.
class ClassCounterReader {
 public:
  /// Errors: kNotFound for namespace or device.
  [[nodiscard]] static Result<ClassCounterReader> Open(std::string_view netns, const std::string& device);

  /// Errors: kFailedPrecondition, kUnavailable.
  [[nodiscard]] Result<std::vector<ClassCounters>> Read();

 private:
  std::string name_;  // "netns/device", for messages
  UniqueFd socket_;
  int interface_ = 0;
  uint32_t sequence_ = 0;
};

}  // namespace weft::testbed
