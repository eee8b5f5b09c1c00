// One process of a fire run: loads the built library, drives all its ends in one thread, as NCCL's progress thread does,
// through tables of several versions at once.
#pragma once

#include <string>

#include "tests/fire/control.h"
#include "tests/fire/ends.h"

namespace weft::net::fire {

struct RankSettings {
  uint32_t rank = 0;
  std::string run_dir;    ///< of this rank's agent
  std::string interface;  ///< NCCL_SOCKET_IFNAME
};

/// Runs until all its connections have ended. In a process of its own: sets the environment. Returns the exit status:
/// 0, or 1 after writing to the rank's report. SIGUSR1 makes it say on stderr where each end stands, and return.
int RunRank(const RankSettings& rank, Settings settings, Control& control);

}  // namespace weft::net::fire
