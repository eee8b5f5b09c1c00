// A planner::Schedule as the XML that MSCCL's interpreter kernels run (MSCCL_XML_FILES), so that synthesised algorithms run on
// GPUs without code of ours. One thread block per peer and direction and one for local sums and copies, each in the order of
// the rank's steps; what waits for another block's step says so.
//
// Untested on GPUs: no machine with MSCCL was at hand. The test interprets the XML.
#pragma once

#include <string>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/schedule.h"

namespace weft::formats {

struct MscclOptions {
  std::string protocol = "Simple";  ///< or LL, LL128
  Bytes least{0};                   ///< sizes for which MSCCL uses it
  Bytes most{int64_t{1} << 40};
};

/// Errors: kInvalidArgument for a schedule that cannot run or an unknown protocol; kFailedPrecondition for one whose rank needs
/// more thread blocks than MSCCL has (128).
[[nodiscard]] Result<std::string> MscclXml(const planner::Schedule& schedule, const MscclOptions& options = {});

}  // namespace weft::formats
