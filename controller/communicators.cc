#include "controller/communicators.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

namespace weft::controller {
namespace {

using planner::Operation;
using planner::OperationKind;
using planner::OperationPass;

constexpr int64_t kMostRanks = 1 << 20;      // of a job that is looked at

/// What the ranks of one kind of group do in an iteration.
struct PlannedGroup {
  planner::CommunicatorKind kind;
  planner::Group group;
};

bool Sends(const Operation& o) { return o.kind != OperationKind::kCompute && o.group.size > 1; }

/// Those that a job of `ranks` can have, the smallest first.
std::vector<PlannedGroup> GroupsOf(const planner::OperationList& list, int64_t ranks) {
  std::vector<PlannedGroup> groups;
  for (const planner::StageOperations& stage : list.classes) {
    for (const Operation& o : stage.operations) {
      const auto same = [&](const PlannedGroup& g) { return g.kind == o.communicator && g.group.size == o.group.size && g.group.stride == o.group.stride; };
      const bool there = Sends(o) && o.group.stride > 0 && o.group.size <= ranks && o.group.stride <= ranks;
      if (there && std::ranges::none_of(groups, same)) groups.push_back({o.communicator, o.group});
    }
  }
  std::ranges::stable_sort(groups, {}, [](const PlannedGroup& g) { return g.group.size; });
  return groups;
}

/// The least rank of the group that `rank` is in.
int64_t FirstOf(const planner::Group& group, int64_t rank) {
  const int64_t block = group.size * group.stride;
  return rank / block * block + rank % group.stride;
}

/// The ranks at the ends of each communicator's flows.
std::map<uint64_t, std::set<int64_t>> MembersSeen(std::span<const SendFlow* const> flows, int64_t ranks) {
  std::map<uint64_t, std::set<int64_t>> seen;
  for (const SendFlow* flow : flows) {
    const v1::FlowIdentity& identity = flow->identity;
    if (identity.comm() == 0) continue;
    for (const int64_t rank : {identity.rank(), identity.peer_rank()}) {
      if (rank >= 0 && rank < ranks) seen[identity.comm()].insert(rank);
    }
  }
  return seen;
}

class Matcher {
 public:
  Matcher(const planner::OperationList& list, std::span<const std::string> hosts) : list_(list), hosts_(hosts), groups_(GroupsOf(list, static_cast<int64_t>(hosts.size()))) {
    for (const PlannedGroup& group : groups_) {
      if (group.kind == planner::CommunicatorKind::kPipeline) pipeline_stride_ = group.group.stride;
    }
  }

  std::optional<KnownCommunicator> Match(const std::set<int64_t>& members) const {
    for (const PlannedGroup& planned : groups_) {
      const int64_t first = FirstOf(planned.group, *members.begin());
      if (std::ranges::any_of(members, [&](int64_t rank) { return FirstOf(planned.group, rank) != first; })) continue;
      if (first + (planned.group.size - 1) * planned.group.stride >= static_cast<int64_t>(hosts_.size())) continue;
      KnownCommunicator known{.kind = planned.kind, .group = planned.group, .first = first};
      AddPlanned(&known);
      return known;
    }
    return std::nullopt;
  }

 private:
  int64_t StageOf(int64_t rank) const {
    return pipeline_stride_ > 0 ? rank / pipeline_stride_ % list_.stages : rank / list_.ranks_per_stage % list_.stages;
  }

  /// Of what member k of the group sends, the share that leaves its host.
  double Leaves(const KnownCommunicator& known, int64_t k, const Operation& o, const std::map<std::string_view, int64_t>& on_host) const {
    const auto host = [&](int64_t member) -> const std::string& {
      return hosts_[static_cast<size_t>(known.first + (member + known.group.size) % known.group.size * known.group.stride)];
    };
    if (o.kind == OperationKind::kAllToAll) {
      return static_cast<double>(known.group.size - on_host.at(host(k))) / static_cast<double>(known.group.size - 1);
    }
    // A ring, or a pipeline whose gradients go the other way.
    const int64_t next = o.kind == OperationKind::kSendReceive && o.pass != OperationPass::kForward ? k - 1 : k + 1;
    return host(next) != host(k) ? 1 : 0;
  }

  void AddPlanned(KnownCommunicator* known) const {
    known->slack = true;
    std::map<std::string_view, int64_t> on_host;
    for (int64_t k = 0; k < known->group.size; ++k) ++on_host[hosts_[static_cast<size_t>(known->first + k * known->group.stride)]];
    for (int64_t k = 0; k < known->group.size; ++k) {
      const int64_t rank = known->first + k * known->group.stride;
      for (const Operation& o : list_.OfStage(StageOf(rank)).operations) {
        if (!Sends(o) || o.communicator != known->kind || o.group.size != known->group.size || o.group.stride != known->group.stride) continue;
        known->slack &= !o.hides_behind.empty();
        const double times = o.pass == OperationPass::kOnce ? 1 : static_cast<double>(list_.micro_batches);
        known->planned_bytes += times * planner::BytesSent(o) * Leaves(*known, k, o, on_host);
      }
    }
  }

  const planner::OperationList& list_;
  const std::span<const std::string> hosts_;
  const std::vector<PlannedGroup> groups_;
  int64_t pipeline_stride_ = 0;
};

}  // namespace

std::map<uint64_t, KnownCommunicator> MatchCommunicators(const planner::OperationList& list, std::span<const std::string> rank_hosts,
                                                         std::span<const SendFlow* const> flows) {
  std::map<uint64_t, KnownCommunicator> known;
  const auto ranks = static_cast<int64_t>(rank_hosts.size());
  if (ranks == 0 || ranks > kMostRanks || list.ranks_per_stage <= 0) return known;
  const Matcher matcher(list, rank_hosts);
  for (const auto& [comm, members] : MembersSeen(flows, ranks)) {
    if (members.size() < 2) continue;   // one rank is in a group of every kind
    if (const std::optional<KnownCommunicator> match = matcher.Match(members)) known[comm] = *match;
  }
  for (const SendFlow* flow : flows) {
    const auto match = known.find(flow->identity.comm());
    if (match == known.end()) continue;
    ++match->second.flows;
    match->second.measured_bytes += flow->meter.known ? flow->meter.bytes_each : -std::numeric_limits<double>::infinity();
  }
  for (auto& [comm, match] : known) match.measured_bytes = std::max(0.0, match.measured_bytes);
  return known;
}

int32_t ClassStep(const std::map<uint64_t, KnownCommunicator>& known, uint64_t comm, bool below, bool above) {
  const auto mine = known.find(comm);
  if (mine == known.end()) return 0;
  const bool mixed = std::ranges::any_of(known, [&](const auto& other) { return other.second.slack != mine->second.slack; });
  if (!mixed) return 0;
  if (below) return mine->second.slack ? 1 : 0;
  return above && !mine->second.slack ? -1 : 0;
}

}  // namespace weft::controller
