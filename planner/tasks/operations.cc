#include "planner/tasks/operations.h"

#include <algorithm>
#include <array>

namespace weft::planner::inline tasks {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"tensor", "context",  "expert",    "expert-tensor", "data",
                                                    "expert-data", "pipeline", "embedding", "world"};

constexpr std::array<std::string_view, 7> kKinds = {"compute",    "all-reduce", "all-gather", "reduce-scatter",
                                                    "all-to-all", "broadcast",  "send"};
constexpr std::array<std::string_view, 4> kPasses = {"forward", "data-gradient", "weight-gradient", "once"};
constexpr std::array<std::string_view, 7> kParts = {"parameters", "gradients", "optimizer", "activations",
                                                    "transient",  "buffers",   "context"};
constexpr std::array<std::string_view, 4> kSpans = {"iteration", "micro-batch", "pass", "backward"};
constexpr std::array<std::string_view, 3> kChunks = {"all", "first", "last"};

}  // namespace

std::string_view OperationKindName(OperationKind kind) { return kKinds[static_cast<size_t>(kind)]; }
std::string_view OperationPassName(OperationPass pass) { return kPasses[static_cast<size_t>(pass)]; }
std::string_view HoldingPartName(HoldingPart part) { return kParts[static_cast<size_t>(part)]; }
std::string_view HoldingSpanName(HoldingSpan span) { return kSpans[static_cast<size_t>(span)]; }
std::string_view HoldingChunksName(HoldingChunks chunks) { return kChunks[static_cast<size_t>(chunks)]; }

std::string_view CommunicatorKindName(CommunicatorKind kind) { return kNames[static_cast<size_t>(kind)]; }

double BytesSent(const Operation& o) {
  const double n = static_cast<double>(o.group.size);
  switch (o.kind) {
    case OperationKind::kCompute: return 0;
    case OperationKind::kAllReduce: return o.calls * 2 * (n - 1) / n * o.bytes;
    case OperationKind::kAllGather:
    case OperationKind::kReduceScatter:
    case OperationKind::kAllToAll: return o.calls * (n - 1) / n * o.bytes;
    case OperationKind::kBroadcast:
    case OperationKind::kSendReceive: return o.calls * o.bytes;
  }
  return 0;
}

const StageOperations& OperationList::OfStage(int64_t stage) const {
  return *std::find_if(classes.begin(), classes.end(), [&](const StageOperations& c) {
    return std::binary_search(c.stages.begin(), c.stages.end(), stage);
  });
}

}  // namespace weft::planner::tasks
