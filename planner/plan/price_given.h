// A strategy that the user gives: whether it is legal for the job and the framework, and what it costs. The only place
// outside of a search that asks either question.
//
//   const Result<GivenPrice> price = PriceGiven(job, cluster, "megatron", strategy);
//   if (!price && price.error().code() == Code::kFailedPrecondition) ... the strategy is refused, the message says why
//   if (price && !price->fits) ... legal, and predicted not to fit
#pragma once

#include <string_view>

#include "common/result.h"
#include "common/units.h"
#include "planner/planner.h"

namespace weft::planner {

struct GivenPrice {
  JobPlan plan;                   ///< without bound and gap: nothing was searched
  Bytes usable;                   ///< of one device's memory
  bool fits = false;              ///< every stage, by the memory model
  bool framework_asked = false;   ///< whether the framework has rules that the strategy keeps
};

/// `framework` is read by ParseFramework(); one that it does not know (none, a launcher such as torchrun) restricts nothing.
/// A bucket_bytes of 0 is the framework's own. Any values in `strategy` are safe. Errors: kFailedPrecondition with the reason for a strategy that is not legal or that
/// the framework does not run; kInvalidArgument for a job or cluster that makes no sense, as Plan().
[[nodiscard]] Result<GivenPrice> PriceGiven(const JobSpec& job, const ClusterSpec& cluster, std::string_view framework,
                                            const Strategy& strategy);

}  // namespace weft::planner
