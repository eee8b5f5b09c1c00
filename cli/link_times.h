// How long messages take between two ranks through a net plugin, as `weft perf` measures it.
#pragma once

#include <string>

#include "common/result.h"
#include "common/units.h"

namespace weft::cli {

struct LinkOptions {
  std::string plugin;      ///< empty: ours
  std::string rendezvous;  ///< HOST:PORT of rank 0; empty: both ranks on this machine
  int rank = 0;            ///< of this process, with a rendezvous: 0 or 1
};

struct LinkTimes {
  Seconds message{0};      ///< of a few bytes, one way: half of a round trip, the median
  BitsPerSecond rate;      ///< payload of a long message
};

/// Errors: `weft perf`'s. Requires: no other thread in this process.
[[nodiscard]] Result<LinkTimes> MeasureLink(const LinkOptions& options);

}  // namespace weft::cli
