#include "collectives/nccl/nccl_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace weft::collectives {

std::string NcclJobLine(const NcclJobOptions& options) {
  std::vector<int64_t> bytes;
  for (const NcclStep& step : options.steps) {
    if (step.call != NcclCall::kCompute) bytes.push_back(step.bytes.count());
  }
  return fmt::format("{{\"job\":{{\"model\":\"weft-nccl-job\",\"ranks\":{},\"bucket_bytes\":[{}]}}}}", options.world, fmt::join(bytes, ","));
}

std::string NcclIterationLine(const NcclIteration& iteration) {
  std::string apart;
  if (iteration.apart) {
    std::vector<double> ready;
    for (const Seconds time : iteration.apart->ready) ready.push_back(time.count());
    apart = fmt::format(",\"apart\":{{\"forward_s\":0.0,\"backward_s\":{:.9f},\"ready_s\":[{:.9f}]}}", iteration.apart->compute.count(),
                        fmt::join(ready, ","));
  }
  const std::string calls = iteration.calls.empty() ? "" : fmt::format(",\"calls_s\":[{:.9f}]", fmt::join(iteration.calls, ","));
  return fmt::format("{{\"step\":{},\"iteration_s\":{:.9f},\"time_s\":{:.9f}{}{}}}", iteration.number, iteration.time.count(),
                     iteration.end.count(), apart, calls);
}

std::string NcclSummaryLine(const NcclJobOptions& options, const std::string& version, int64_t iterations, std::vector<double> times,
                            int64_t checked) {
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return fmt::format("{{\"summary\":{{\"steps\":{},\"ranks\":{},\"nccl\":\"{}\",\"elements_checked\":{},\"iteration_s_median\":{:.9f}}}}}",
                     iterations, options.world, version, checked, *middle);
}

}  // namespace weft::collectives
