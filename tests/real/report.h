// What the experiment prints, and the facts that must hold whatever the machine is busy with.
#pragma once

#include <string>
#include <vector>

#include "tests/real/experiment.h"

namespace weft::real {

/// One line per policy and job: paths, class, alone, measured, simulated, error, time held.
std::string Table(const std::vector<Outcome>& outcomes);

/// Share of all bytes that had to share the wire, per policy, and a picture of each trace.
std::string Bursts(const std::vector<Outcome>& outcomes, BitsPerSecond full, size_t columns);

/// Errors against the simulator: how many of the cases are within `promise`, mean and worst.
std::string Errors(const std::vector<Outcome>& outcomes, double promise);

/// What does not hold, one line each; empty: all does. `together` and `apart` are places in `outcomes` of the same jobs on
/// the same paths without and with time shifts. Bursts must interleave there if every job has one: with several their gaps are
/// too short.
std::vector<std::string> BrokenFacts(const std::vector<Outcome>& outcomes, size_t together, size_t apart,
                                     const Ending& ending, bool one_burst = true);

/// Writes `trace-POLICY.csv` per outcome, and bursts.svg, into `folder`. Errors: kFailedPrecondition naming the file.
[[nodiscard]] Status WriteTraces(const std::string& folder, const std::vector<Outcome>& outcomes, BitsPerSecond full);

}  // namespace weft::real
