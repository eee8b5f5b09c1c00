#include "collectives/table_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace weft::collectives {
namespace {

using abi::CollectiveAlgorithm;
using planner::Algorithm;

std::optional<Algorithm> OursOf(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kTree: return Algorithm::kTree;
    case CollectiveAlgorithm::kRing: return Algorithm::kRing;
    case CollectiveAlgorithm::kHalvingDoubling: return Algorithm::kHalvingDoubling;
    case CollectiveAlgorithm::kHierarchical: return Algorithm::kHierarchical;
    case CollectiveAlgorithm::kTorus: return Algorithm::kTorus;
    case CollectiveAlgorithm::kDirect: return Algorithm::kDirect;
    case CollectiveAlgorithm::kPairwise: return Algorithm::kPairwise;
    case CollectiveAlgorithm::kParameterServer: return Algorithm::kParameterServer;
    case CollectiveAlgorithm::kPipelined: return Algorithm::kPipelined;
    case CollectiveAlgorithm::kForest: return Algorithm::kForest;
    case CollectiveAlgorithm::kCollNetDirect:
    case CollectiveAlgorithm::kCollNetChain:
    case CollectiveAlgorithm::kNvls:
    case CollectiveAlgorithm::kNvlsTree:
    case CollectiveAlgorithm::kPat: return std::nullopt;
  }
  return std::nullopt;
}

std::optional<planner::Collective> OursOf(abi::CollectiveOp collective) {
  switch (collective) {
    case abi::CollectiveOp::kAllReduce: return planner::Collective::kAllReduce;
    case abi::CollectiveOp::kAllGather: return planner::Collective::kAllGather;
    case abi::CollectiveOp::kReduceScatter: return planner::Collective::kReduceScatter;
    case abi::CollectiveOp::kBroadcast: return planner::Collective::kBroadcast;
    case abi::CollectiveOp::kAllToAll: return planner::Collective::kAllToAll;
    case abi::CollectiveOp::kReduce: return std::nullopt;
  }
  return std::nullopt;
}

std::optional<abi::CollectiveOp> TheirsOf(planner::Collective collective) {
  switch (collective) {
    case planner::Collective::kAllReduce: return abi::CollectiveOp::kAllReduce;
    case planner::Collective::kAllGather: return abi::CollectiveOp::kAllGather;
    case planner::Collective::kReduceScatter: return abi::CollectiveOp::kReduceScatter;
    case planner::Collective::kBroadcast: return abi::CollectiveOp::kBroadcast;
    case planner::Collective::kAllToAll: return abi::CollectiveOp::kAllToAll;
    case planner::Collective::kSendRecv: return std::nullopt;
  }
  return std::nullopt;
}

/// Whether there is a schedule for the entry's algorithm and collective, if perhaps not for its parameter.
bool Runs(const abi::CollectiveEntry& entry) {
  const auto collective = OursOf(entry.collective);
  const auto algorithm = OursOf(entry.algorithm);
  if (!collective || !algorithm) return false;
  const std::vector<Algorithm> known = planner::AlgorithmsFor(*collective);
  return std::find(known.begin(), known.end(), *algorithm) != known.end();
}

planner::AlgorithmSpec SpecOf(const abi::CollectiveEntry& entry) {
  return {OursOf(entry.algorithm).value_or(Algorithm::kRing), static_cast<int32_t>(entry.parameter)};
}

}  // namespace

Result<TableChoice> TableChoice::Parse(std::string_view text, int world) {
  TableChoice choice;
  choice.world_ = world;
  if (text.empty()) return choice;
  abi::CollectiveTable table;
  size_t at = 0;
  if (const char* wrong = abi::ParseCollectiveTable(text.data(), text.size(), &table, &at)) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: offset {}: {}", abi::kCollectivesVariable, at, wrong));
  }
  std::vector<int32_t> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  choice.members_ = abi::MembersHash(ranks.data(), ranks.size());
  for (uint32_t i = 0; i < table.count; ++i) {
    const abi::CollectiveEntry& entry = table.entries[i];
    const bool for_us = entry.members == abi::MembersKind::kAny ||
                        (entry.members == abi::MembersKind::kRanks && entry.ranks == static_cast<uint32_t>(world)) ||
                        (entry.members == abi::MembersKind::kHash && entry.members_hash == choice.members_);
    if (!for_us || !Runs(entry)) continue;
    if (const auto schedule = planner::MakeSchedule(SpecOf(entry), *OursOf(entry.collective), world); !schedule) {
      return Fail(schedule.error().WithContext(fmt::format("{}: entry {}", abi::kCollectivesVariable, i + 1)));
    }
    choice.table_.entries[choice.table_.count++] = entry;
  }
  return choice;
}

planner::AlgorithmSpec TableChoice::For(planner::Collective collective, Bytes bytes) const {
  const auto op = TheirsOf(collective);
  if (!op || table_.count == 0) return {};
  const abi::CollectiveEntry* entry = abi::FindCollective(
      table_, {.collective = *op, .bytes = static_cast<uint64_t>(bytes.count()), .ranks = static_cast<uint32_t>(world_),
               .nodes = 0, .members_hash = members_, .nccl = false});
  return entry == nullptr ? planner::AlgorithmSpec{} : SpecOf(*entry);
}

}  // namespace weft::collectives
