// CostModel::CommunicationVolumes: what a stage's operations send, passes put together.
#include <algorithm>
#include <cmath>

#include "planner/parallelism/cost_model.h"

namespace weft::planner::inline parallelism {

std::vector<CommunicationVolume> CostModel::CommunicationVolumes(const OperationList& list, int64_t stage) {
  std::vector<CommunicationVolume> lines;
  for (const Operation& o : list.OfStage(stage).operations) {
    if (o.kind == OperationKind::kCompute || o.bytes <= 0) continue;
    const bool once = o.pass == OperationPass::kOnce;
    // What runs once is said as a whole, whatever it is cut into.
    CommunicationVolume line{.kind = o.communicator, .what = o.what, .type = o.kind, .group = o.group.size, .stride = o.group.stride,
                             .bytes = Bytes(std::llround(once ? o.bytes * o.calls : o.bytes)), .count = once ? 1 : o.calls,
                             .per_iteration = once, .hides_behind = o.hides_behind};
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const CommunicationVolume& other) {
      return other.what == line.what && other.type == line.type && other.group == line.group && other.stride == line.stride &&
             other.per_iteration == once && (once || other.bytes == line.bytes);
    });
    if (same == lines.end()) {
      lines.push_back(line);
    } else if (once) {
      same->bytes += line.bytes;
    } else {
      same->count += line.count;
    }
  }
  return lines;
}

}  // namespace weft::planner::parallelism
