#include "planner/collectives/packed_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "planner/collectives/schedule_builder.h"

namespace weft::planner::inline collectives {
namespace {

constexpr int64_t kMostChunks = 1 << 16;

/// A tree and its chunks, which are numbered root by root.
struct TreeChunks {
  const PackedTree* tree;
  int32_t first, count;
};

std::vector<TreeChunks> AssignChunks(const TreePacking& packing) {
  std::vector<int64_t> used(static_cast<size_t>(packing.ranks), 0);
  std::vector<TreeChunks> assigned;
  for (const PackedTree& tree : packing.trees) {
    int64_t& next = used[static_cast<size_t>(tree.root)];
    assigned.push_back({&tree, static_cast<int32_t>(tree.root * packing.trees_per_root + next),
                        static_cast<int32_t>(tree.weight)});
    next += tree.weight;
  }
  return assigned;
}

ChunkRef Working(Collective collective, int32_t chunk) {
  return collective == Collective::kReduceScatter ? ScratchChunk(chunk) : OutputChunk(chunk);
}

void Up(const TreeChunks& part, Collective collective, ScheduleBuilder* builder) {
  for (auto edge = part.tree->edges.rbegin(); edge != part.tree->edges.rend(); ++edge) {
    for (int32_t c = part.first; c < part.first + part.count; ++c) {
      builder->TransferAndAdd(edge->second, Working(collective, c), edge->first, Working(collective, c));
    }
  }
}

void Down(const TreeChunks& part, ScheduleBuilder* builder) {
  for (const auto& [parent, child] : part.tree->edges) {
    for (int32_t c = part.first; c < part.first + part.count; ++c) {
      builder->Transfer(parent, OutputChunk(c), child, OutputChunk(c));
    }
  }
}

}  // namespace

Result<Schedule> PackedSchedule(Collective collective, const TreePacking& packing) {
  const bool gathers = collective == Collective::kAllGather, scatters = collective == Collective::kReduceScatter;
  if (!gathers && !scatters && collective != Collective::kAllReduce) {
    return Fail(Code::kInvalidArgument, fmt::format("forest {}: expected allreduce, allgather or reducescatter",
                                                    CollectiveName(collective)));
  }
  if (packing.trees_per_root > kMostChunks / packing.ranks) {
    return Fail(Code::kResourceExhausted, fmt::format("forest: {} trees for each of {} ranks, expected at most {} in all; "
                                                      "round the capacities", packing.trees_per_root, packing.ranks,
                                                      kMostChunks));
  }
  const auto own = static_cast<int32_t>(packing.trees_per_root);
  const int32_t chunks = own * packing.ranks;
  ScheduleBuilder builder(collective, "forest", packing.ranks, chunks, scatters ? chunks : 0);
  for (int32_t rank = 0; rank < packing.ranks; ++rank) {
    for (int32_t c = 0; c < (gathers ? own : chunks); ++c) {
      builder.Copy(rank, Working(collective, gathers ? rank * own + c : c), InputChunk(c));
    }
  }
  const std::vector<TreeChunks> parts = AssignChunks(packing);
  for (const TreeChunks& part : parts) {
    if (!gathers) Up(part, collective, &builder);
  }
  for (const TreeChunks& part : parts) {
    if (!scatters) Down(part, &builder);
  }
  for (int32_t rank = 0; rank < packing.ranks && scatters; ++rank) {
    for (int32_t c = 0; c < own; ++c) builder.Copy(rank, OutputChunk(c), ScratchChunk(rank * own + c));
  }
  return builder.Finish();
}

Seconds PackedTime(Collective collective, const TreePacking& packing, Bytes bytes, BitsPerSecond unit) {
  if (packing.ranks <= 1) return Seconds(0);
  const Seconds once = bytes / (unit * (packing.rate_per_root() * packing.ranks));
  return collective == Collective::kAllReduce ? 2 * once : once;
}

PackingGraph GroupedGraph(int32_t ranks, int32_t group) {
  const int32_t groups = (ranks + group - 1) / group;
  PackingGraph graph{.ranks = ranks, .nodes = ranks + groups + 1};
  for (int32_t rank = 0; rank < ranks; ++rank) {
    graph.cables.push_back({rank, ranks + rank / group, 4});
    graph.cables.push_back({rank, ranks + groups, 1});
  }
  return graph;
}

Result<Schedule> PackedGroupsSchedule(Collective collective, int32_t ranks, int32_t group) {
  WEFT_ASSIGN_OR_RETURN(const TreePacking packing, PackTrees(GroupedGraph(ranks, group)));
  return PackedSchedule(collective, packing);
}

}  // namespace weft::planner::collectives
