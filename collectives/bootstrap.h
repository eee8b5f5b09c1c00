// How the ranks of one job find each other before the first connection exists: rank 0 listens on a TCP address, all
// others join it, and small blobs (plugin handles) are exchanged over that star. Not on any hot path.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::collectives {

struct BootstrapOptions {
  RankId rank{0};
  int world = 1;
  std::string address;       ///< "host:port" of rank 0; ignored when world is 1
  Seconds timeout{60};       ///< for all ranks to be there, and for each exchange
};

/// The star of all ranks. One thread at a time.
class Bootstrap {
 public:
  /// Errors: kInvalidArgument for a malformed address, kAlreadyExists when rank 0's port is in use, kDeadlineExceeded
  /// naming the ranks that did not join.
  [[nodiscard]] static Result<std::unique_ptr<Bootstrap>> Join(const BootstrapOptions& options);
  ~Bootstrap();

  RankId rank() const;
  int world() const;

  /// Every rank's blob, in order of rank. Collective. Errors: kUnavailable naming the rank that is gone.
  [[nodiscard]] Result<std::vector<std::vector<uint8_t>>> AllGather(std::span<const uint8_t> mine);

 private:
  class Impl;
  explicit Bootstrap(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::collectives
