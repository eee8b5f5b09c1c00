// What rank 0 of `weft-nccl-job` prints: JSON lines with the keys of `weft-train --output json`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/nccl/nccl_job.h"
#include "common/units.h"

namespace weft::collectives {

/// What computation took in an iteration in which all ranks waited for each other after it: of the slowest rank.
struct NcclApartCompute {
  Seconds compute{0};
  std::vector<Seconds> ready;  ///< of each collective in order, the computation before it
};

struct NcclIteration {
  int64_t number = 0;
  Seconds time{0};  ///< that it took
  Seconds end{0};   ///< CLOCK_MONOTONIC
  std::optional<NcclApartCompute> apart;
  std::vector<double> calls;  ///< seconds of one call of each timed step, in order
};

/// Collectives of an iteration, bytes of each.
std::string NcclJobLine(const NcclJobOptions& options);
std::string NcclIterationLine(const NcclIteration& iteration);
/// `times`: of the ordinary iterations, in seconds. Requires: at least one.
std::string NcclSummaryLine(const NcclJobOptions& options, const std::string& version, int64_t iterations, std::vector<double> times,
                            int64_t checked);

}  // namespace weft::collectives
