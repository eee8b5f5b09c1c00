// The ranks of `weft perf` on this machine.
#pragma once

#include <functional>

#include "cli/perf_rank.h"
#include "cli/rank_processes.h"

namespace weft::cli {

/// The plugin learns who it serves from its environment.
void TellPlugin(int rank, int ranks);

/// Forks plan.ranks processes, which meet over the loopback interface. Requires: no other thread in this process.
[[nodiscard]] RankOutcome RunLocally(const PerfPlan& plan, const std::function<RankOutcome(const PerfPlace&)>& body);

}  // namespace weft::cli
