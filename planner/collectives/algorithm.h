// The algorithms that Weft's own runtime runs, and their schedules. What they cost: schedule_cost.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/collectives/algorithm_kind.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

/// An algorithm and its one parameter: the ranks per group (hierarchical, forest), the width (torus), the servers (ps). 0 is
/// the default: the divisor or number nearest to the square root; all ranks for servers.
struct AlgorithmSpec {
  Algorithm algorithm = Algorithm::kRing;
  int32_t parameter = 0;
  friend auto operator<=>(const AlgorithmSpec&, const AlgorithmSpec&) = default;
};

/// "ring", "hierarchical:8". Errors: kInvalidArgument with the accepted names.
[[nodiscard]] Result<AlgorithmSpec> ParseAlgorithm(std::string_view text);
std::string ToString(const AlgorithmSpec& spec);

/// The algorithms that have a schedule for `collective`, in the order of the enumeration.
std::vector<Algorithm> AlgorithmsFor(Collective collective);

/// `spec` with its default parameter filled in. Errors: kInvalidArgument when the algorithm does not know the collective, or
/// ranks < 1.
[[nodiscard]] Result<AlgorithmSpec> WithParameter(const AlgorithmSpec& spec, Collective collective, int32_t ranks);

/// Errors: kInvalidArgument when the algorithm does not know the collective, or the parameter does not fit the ranks.
[[nodiscard]] Result<Schedule> MakeSchedule(const AlgorithmSpec& spec, Collective collective, int32_t ranks,
                                            RankId root = RankId(0));

}  // namespace weft::planner::collectives
