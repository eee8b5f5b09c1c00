// The ranks of a local job as forked processes: one failure ends all, and nothing is left behind.
#pragma once

#include <functional>
#include <string>

namespace weft::cli {

/// What a rank's process ends with.
struct RankOutcome {
  int exit_code = 0;
  std::string message;  ///< of a failure
};

/// Forks `ranks` processes that run `body(rank)`, and waits for all. The first that fails or dies ends the others.
/// Its outcome is returned, a death by signal before anything that the survivors say of it; also when this process
/// dies, the ranks do. Requires: no other thread in this process.
[[nodiscard]] RankOutcome RunRankProcesses(int ranks, const std::function<RankOutcome(int rank)>& body);

}  // namespace weft::cli
