#include "planner/collectives/group_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/collectives/schedule_builder.h"

namespace weft::planner::inline collectives {
namespace {

void AddRing(int32_t n, std::vector<GroupTransfer>* out) {
  for (int32_t round = 0; round + 1 < n; ++round) {
    for (int32_t i = 0; i < n; ++i) out->push_back({0, i, (i + 1) % n, (i + 2 * n - 1 - round) % n});
  }
}

void AddDirect(int32_t n, std::vector<GroupTransfer>* out) {
  for (int32_t shift = 1; shift < n; ++shift) {
    for (int32_t i = 0; i < n; ++i) out->push_back({0, i, (i + shift) % n, (i + shift) % n});
  }
}

/// Pairs at distance n/2, n/4 … 1: each gives away the half that is the partner's.
void AddHypercube(int32_t n, std::vector<GroupTransfer>* out) {
  int32_t round = 0;
  for (int32_t distance = n / 2; distance >= 1; distance /= 2, ++round) {
    for (int32_t i = 0; i < n; ++i) {
      const int32_t partner = i ^ distance;
      const int32_t first = partner / distance * distance;
      for (int32_t c = first; c < first + distance; ++c) out->push_back({round, i, partner, c});
    }
  }
}

/// With skip s = ceil(s'/2), member i gives the sums for members i+s … i+s'-1 to member i+s, which keeps them as those for
/// itself and the members behind it.
void AddCirculant(int32_t n, std::vector<GroupTransfer>* out) {
  for (int32_t before = n, skip = 0, round = 0; before > 1; before = skip, ++round) {
    skip = (before + 1) / 2;
    for (int32_t i = 0; i < n; ++i) {
      for (int32_t offset = skip; offset < before; ++offset) out->push_back({round, i, (i + skip) % n, (i + offset) % n});
    }
  }
}

/// Where the sums stand while they grow: an all-reduce sums in its output, a reduce-scatter in scratch of the same layout.
ChunkRef Working(Collective collective, int32_t chunk) {
  return collective == Collective::kReduceScatter ? ScratchChunk(chunk) : OutputChunk(chunk);
}

void AddReduceScatter(const ExchangeLevel& level, Collective collective, ScheduleBuilder* builder) {
  for (const ExchangeGroup& group : level.groups) {
    int32_t round = 0;
    for (const GroupTransfer& t : ReduceScatterTransfers(level.pattern, static_cast<int32_t>(group.members.size()))) {
      if (std::exchange(round, t.round) != t.round) builder->Fence();
      for (const int32_t chunk : group.chunks[static_cast<size_t>(t.chunk)]) {
        builder->TransferAndAdd(group.members[static_cast<size_t>(t.from)], Working(collective, chunk),
                                group.members[static_cast<size_t>(t.to)], Working(collective, chunk));
      }
    }
  }
}

void AddAllGather(const ExchangeLevel& level, ScheduleBuilder* builder) {
  for (const ExchangeGroup& group : level.groups) {
    const auto transfers = ReduceScatterTransfers(level.pattern, static_cast<int32_t>(group.members.size()));
    int32_t round = transfers.empty() ? 0 : transfers.back().round;
    for (auto t = transfers.rbegin(); t != transfers.rend(); ++t) {
      if (std::exchange(round, t->round) != t->round) builder->Fence();
      for (const int32_t chunk : group.chunks[static_cast<size_t>(t->chunk)]) {
        builder->Transfer(group.members[static_cast<size_t>(t->to)], OutputChunk(chunk),
                          group.members[static_cast<size_t>(t->from)], OutputChunk(chunk));
      }
    }
  }
}

/// The ranks that own an equal share: chunk j·slots + b belongs to group j, and inside each group to the owner of slot b.
int32_t OwnerOf(int32_t slot, int32_t slots, int32_t members) { return slot * members / slots; }

Status CheckLevelled(Collective collective, int32_t ranks, std::string_view what) {
  const bool reduces = collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
                       collective == Collective::kAllGather;
  if (!reduces || ranks < 1) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: {} of {} ranks, expected allreduce, reducescatter or allgather of at least 1", what,
                            CollectiveName(collective), ranks));
  }
  return Ok();
}

}  // namespace

std::vector<GroupTransfer> ReduceScatterTransfers(GroupPattern pattern, int32_t members) {
  std::vector<GroupTransfer> transfers;
  switch (pattern) {
    case GroupPattern::kRing: AddRing(members, &transfers); break;
    case GroupPattern::kDirect: AddDirect(members, &transfers); break;
    case GroupPattern::kHalving:
      (members & (members - 1)) == 0 ? AddHypercube(members, &transfers) : AddCirculant(members, &transfers);
      break;
  }
  return transfers;
}

Schedule BuildLevels(const LevelPlan& plan) {
  const bool scatter = plan.collective == Collective::kReduceScatter;
  ScheduleBuilder builder(plan.collective, plan.algorithm, plan.ranks, plan.chunks, scatter ? plan.chunks : 0);
  const int32_t own = plan.chunks / plan.ranks;
  for (int32_t rank = 0; rank < plan.ranks; ++rank) {
    if (plan.collective == Collective::kAllGather) {
      for (int32_t c = 0; c < own; ++c) builder.Copy(rank, OutputChunk(rank * own + c), InputChunk(c));
      continue;
    }
    for (int32_t c = 0; c < plan.chunks; ++c) builder.Copy(rank, Working(plan.collective, c), InputChunk(c));
  }
  size_t deepest = 0;
  for (const auto& lane : plan.lanes) deepest = std::max(deepest, lane.size());
  for (size_t level = 0; level < deepest && plan.collective != Collective::kAllGather; ++level) {
    for (const auto& lane : plan.lanes) {
      if (level < lane.size()) AddReduceScatter(lane[level], plan.collective, &builder);
    }
    builder.Fence();
  }
  for (size_t level = deepest; level-- > 0 && !scatter;) {
    for (const auto& lane : plan.lanes) {
      if (level < lane.size()) AddAllGather(lane[level], &builder);
    }
    builder.Fence();
  }
  for (int32_t rank = 0; rank < plan.ranks && scatter; ++rank) {
    for (int32_t c = 0; c < own; ++c) builder.Copy(rank, OutputChunk(c), ScratchChunk(rank * own + c));
  }
  return builder.Finish();
}

LevelPlan FlatLevels(Collective collective, GroupPattern pattern, int32_t ranks) {
  ExchangeGroup group;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    group.members.push_back(rank);
    group.chunks.push_back({rank});
  }
  LevelPlan plan{.collective = collective, .ranks = ranks, .chunks = ranks};
  plan.lanes.push_back({{pattern, {std::move(group)}}});
  return plan;
}

Result<LevelPlan> HierarchicalLevels(Collective collective, int32_t ranks, int32_t group, GroupPattern inner,
                                     GroupPattern outer) {
  WEFT_RETURN_IF_ERROR(CheckLevelled(collective, ranks, "hierarchical"));
  if (group < 1 || (collective != Collective::kAllReduce && ranks % group != 0)) {
    return Fail(Code::kInvalidArgument, fmt::format("hierarchical {}: groups of {} among {} ranks, expected {}",
                                                    CollectiveName(collective), group, ranks,
                                                    group < 1 ? "at least 1" : "equal groups"));
  }
  const int32_t groups = (ranks + group - 1) / group;
  const auto size_of = [&](int32_t j) { return std::min(group, ranks - j * group); };
  const int32_t slots = groups > 1 ? std::lcm(std::min(group, ranks), size_of(groups - 1)) : std::min(group, ranks);
  ExchangeLevel inside{inner, {}}, across{outer, {}};
  for (int32_t j = 0; j < groups; ++j) {
    ExchangeGroup members;
    members.chunks.resize(static_cast<size_t>(size_of(j)));
    for (int32_t i = 0; i < size_of(j); ++i) members.members.push_back(j * group + i);
    for (int32_t slot = 0; slot < slots; ++slot) {
      auto& chunks = members.chunks[static_cast<size_t>(OwnerOf(slot, slots, size_of(j)))];
      for (int32_t k = 0; k < groups; ++k) chunks.push_back(k * slots + slot);
    }
    inside.groups.push_back(std::move(members));
  }
  for (int32_t slot = 0; slot < slots; ++slot) {
    ExchangeGroup owners;
    for (int32_t j = 0; j < groups; ++j) {
      owners.members.push_back(j * group + OwnerOf(slot, slots, size_of(j)));
      owners.chunks.push_back({j * slots + slot});
    }
    across.groups.push_back(std::move(owners));
  }
  LevelPlan plan{.collective = collective, .ranks = ranks, .chunks = groups * slots};
  plan.lanes.push_back({std::move(inside), std::move(across)});
  return plan;
}

Result<LevelPlan> TorusLevels(Collective collective, int32_t ranks, int32_t width) {
  WEFT_RETURN_IF_ERROR(CheckLevelled(collective, ranks, "torus"));
  if (width < 1 || ranks % width != 0) {
    return Fail(Code::kInvalidArgument,
                fmt::format("torus of {} ranks: width {}, expected a divisor", ranks, width));
  }
  const int32_t height = ranks / width;
  LevelPlan plan{.collective = collective, .ranks = ranks, .chunks = 2 * ranks};
  for (int32_t half = 0; half < 2; ++half) {
    ExchangeLevel rows{GroupPattern::kRing, {}}, columns{GroupPattern::kRing, {}};
    const auto chunk = [&](int32_t x, int32_t y) { return 2 * (y * width + x) + half; };
    for (int32_t y = 0; y < height; ++y) {
      ExchangeGroup row;
      for (int32_t x = 0; x < width; ++x) {
        row.members.push_back(y * width + x);
        std::vector<int32_t> column;
        for (int32_t k = 0; k < height; ++k) column.push_back(chunk(x, k));
        row.chunks.push_back(half == 0 ? column : std::vector{chunk(x, y)});
      }
      rows.groups.push_back(std::move(row));
    }
    for (int32_t x = 0; x < width; ++x) {
      ExchangeGroup column;
      for (int32_t y = 0; y < height; ++y) {
        column.members.push_back(y * width + x);
        std::vector<int32_t> row;
        for (int32_t k = 0; k < width; ++k) row.push_back(chunk(k, y));
        column.chunks.push_back(half == 1 ? row : std::vector{chunk(x, y)});
      }
      columns.groups.push_back(std::move(column));
    }
    if (half == 0) plan.lanes.push_back({std::move(rows), std::move(columns)});
    else plan.lanes.push_back({std::move(columns), std::move(rows)});
  }
  return plan;
}

}  // namespace weft::planner::collectives
