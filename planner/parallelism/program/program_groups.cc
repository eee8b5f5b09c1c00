#include "planner/parallelism/program/program_groups.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "planner/parallelism/tensor_grid.h"
#include "planner/tasks/pipeline_order.h"

namespace weft::planner::inline parallelism {
namespace {

/// Ranks by their place in the grid.
class Grid {
 public:
  explicit Grid(const Strategy& s) : s_(s) {}

  int32_t Rank(int64_t stage, int64_t replica, int64_t context, int64_t tensor) const {
    const int64_t outer = s_.rank_order == RankOrder::kTpCpPpDp ? replica * s_.pp + stage : stage * s_.dp + replica;
    return static_cast<int32_t>((outer * s_.cp + context) * s_.tp + tensor);
  }

  /// Calls body(stage, replica, context, tensor) for every rank.
  template <typename Body>
  void ForAll(Body body) const {
    for (int64_t p = 0; p < s_.pp; ++p) {
      for (int64_t d = 0; d < s_.dp; ++d) {
        for (int64_t c = 0; c < s_.cp; ++c) {
          for (int64_t t = 0; t < s_.tp; ++t) body(p, d, c, t);
        }
      }
    }
  }

 private:
  const Strategy& s_;
};

using Key = std::tuple<int64_t, int64_t, int64_t>;

/// Groups of the ranks that have the same key.
template <typename KeyOf>
ProgramCommunicator Partition(const Grid& grid, CommunicatorKind kind, KeyOf key) {
  std::map<Key, std::vector<int32_t>> groups;
  grid.ForAll([&](int64_t p, int64_t d, int64_t c, int64_t t) { groups[key(p, d, c, t)].push_back(grid.Rank(p, d, c, t)); });
  ProgramCommunicator communicator{.kind = kind, .groups = {}};
  for (auto& [unused, ranks] : groups) communicator.groups.push_back(std::move(ranks));
  return communicator;
}

/// Those that have the same parameters: all, and within and across shard groups, whose ranks are neighbours among them.
void AddReplicas(const Strategy& s, const Grid& grid, bool spatial, const AlgorithmSpec& sums, ProgramGroups* groups) {
  if (s.dp * s.cp * (spatial ? s.tp : 1) > 1) {
    groups->data = groups->Add(Partition(grid, CommunicatorKind::kData, [spatial](int64_t p, int64_t, int64_t, int64_t t) {
      return Key(p, spatial ? 0 : t, 0);
    }));
    groups->communicators.back().sums = sums;
    groups->shard = groups->data;
  }
  if (s.zero_stage == 0 || s.shard_group == 0 || s.shard_group >= s.dp * s.cp) return;
  const auto place = [&](int64_t d, int64_t c) { return d * s.cp + c; };
  groups->shard = -1;
  if (s.shard_group > 1) {
    groups->shard = groups->Add(Partition(grid, CommunicatorKind::kData, [&](int64_t p, int64_t d, int64_t c, int64_t t) {
      return Key(p, t, place(d, c) / s.shard_group);
    }));
  }
  groups->across = groups->Add(Partition(grid, CommunicatorKind::kData, [&](int64_t p, int64_t d, int64_t c, int64_t t) {
    return Key(p, t, place(d, c) % s.shard_group);
  }));
}

/// Tensor ranks of a grid, along each of its sides.
void AddGridSides(const Strategy& s, const Grid& grid, ProgramGroups* groups) {
  const RankGrid shape = GridOf(s);
  if (!shape.exists()) return;
  int64_t stride = 1;
  for (size_t side = 0; side < groups->along.size(); ++side) {
    const int64_t size = side < 2 || shape.cube ? shape.side : shape.depth;
    if (size == 1) break;
    groups->along[side] = groups->Add(Partition(grid, CommunicatorKind::kTensor, [&](int64_t p, int64_t d, int64_t c, int64_t t) {
      return Key(p, d * s.cp + c, t - t / stride % size * stride);
    }));
    stride *= size;
  }
  // Of a flat grid those of a column, layer by layer; of a cube those of a plane.
  groups->same_columns = groups->along[1];
  if (!shape.cube) return;
  groups->same_columns = groups->Add(Partition(grid, CommunicatorKind::kTensor, [&](int64_t p, int64_t d, int64_t c, int64_t t) {
    return Key(p, d * s.cp + c, t / (shape.side * shape.side));
  }));
}

void AddExperts(const Strategy& s, const Grid& grid, bool moe, ProgramGroups* groups) {
  const auto add = [&](CommunicatorKind kind, int64_t size, auto key) {
    if (size == 1) return -1;
    return groups->Add(Partition(grid, kind, [&](int64_t p, int64_t d, int64_t c, int64_t t) {
      return key(p, ExpertPlaceOf((d * s.cp + c) * s.tp + t, s.ep, s.etp));
    }));
  };
  groups->expert = add(CommunicatorKind::kExpert, s.ep, [](int64_t p, const ExpertPlace& e) { return Key(p, e.copy, e.tensor); });
  groups->expert_tensor =
      add(CommunicatorKind::kExpertTensor, s.etp, [](int64_t p, const ExpertPlace& e) { return Key(p, e.copy, e.expert); });
  if (!moe) return;
  groups->expert_data = add(CommunicatorKind::kExpertData, ExpertDp(s),
                            [](int64_t p, const ExpertPlace& e) { return Key(p, e.expert, e.tensor); });
}

}  // namespace

std::vector<Boundary> BoundariesOf(const Strategy& s) {
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (int64_t v = 0; v + 1 < s.pp * s.vpp; ++v) {
    const int64_t from = PlaceOf(s.schedule, v, s.pp).stage, to = PlaceOf(s.schedule, v + 1, s.pp).stage;
    if (from == to) continue;
    pairs.insert({from, to});
    pairs.insert({to, from});
  }
  std::vector<Boundary> boundaries;
  for (const auto& [from, to] : pairs) boundaries.push_back({from, to});
  return boundaries;
}

ProgramGroups GroupsOf(const Strategy& s, const GroupTraits& traits, const AlgorithmSpec& sums) {
  const Grid grid(s);
  ProgramGroups groups;
  if (s.tp > 1) {
    groups.tensor = groups.Add(
        Partition(grid, CommunicatorKind::kTensor, [](int64_t p, int64_t d, int64_t c, int64_t) { return Key(p, d, c); }));
    AddGridSides(s, grid, &groups);
  }
  if (s.cp > 1) {
    groups.context = groups.Add(
        Partition(grid, CommunicatorKind::kContext, [](int64_t p, int64_t d, int64_t, int64_t t) { return Key(p, d, t); }));
  }
  AddReplicas(s, grid, traits.spatial, sums, &groups);
  AddExperts(s, grid, traits.moe, &groups);
  const auto pair = [&](CommunicatorKind kind, int64_t from, int64_t to) {
    ProgramCommunicator communicator{.kind = kind, .groups = {}};
    for (int64_t d = 0; d < s.dp; ++d) {
      for (int64_t c = 0; c < s.cp; ++c) {
        for (int64_t t = 0; t < s.tp; ++t) communicator.groups.push_back({grid.Rank(from, d, c, t), grid.Rank(to, d, c, t)});
      }
    }
    return communicator;
  };
  for (const Boundary& b : BoundariesOf(s))
    groups.messages[{b.from, b.to}] = groups.Add(pair(CommunicatorKind::kPipeline, b.from, b.to));
  if (traits.tied_apart) groups.embedding = groups.Add(pair(CommunicatorKind::kEmbedding, 0, s.pp - 1));
  if (ReplicasDiffer(s) && GpuCount(s) > s.dp) {
    groups.replica = groups.Add(
        Partition(grid, CommunicatorKind::kWorld, [](int64_t, int64_t d, int64_t, int64_t) { return Key(d, 0, 0); }));
  }
  if (GpuCount(s) > 1) {
    groups.world = groups.Add(
        Partition(grid, CommunicatorKind::kWorld, [](int64_t, int64_t, int64_t, int64_t) { return Key(0, 0, 0); }));
    std::sort(groups.communicators.back().groups[0].begin(), groups.communicators.back().groups[0].end());
  }
  groups.ranks.resize(static_cast<size_t>(GpuCount(s)));
  grid.ForAll([&](int64_t p, int64_t d, int64_t c, int64_t t) {
    groups.ranks[static_cast<size_t>(grid.Rank(p, d, c, t))] = {static_cast<int32_t>(p), static_cast<int32_t>(p),
                                                                static_cast<int32_t>(t), static_cast<int32_t>(c),
                                                                static_cast<int32_t>(d)};
  });
  return groups;
}

}  // namespace weft::planner::parallelism
