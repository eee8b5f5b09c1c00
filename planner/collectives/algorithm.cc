#include "planner/collectives/algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "planner/collectives/all_to_all.h"
#include "planner/collectives/group_exchange.h"
#include "planner/collectives/packed_schedule.h"
#include "planner/collectives/parameter_server.h"
#include "planner/collectives/ring.h"
#include "planner/collectives/tree.h"

namespace weft::planner::inline collectives {
namespace {

/// Those with a schedule, in the order of the enumeration.
constexpr std::array kScheduled = {Algorithm::kRing, Algorithm::kTree, Algorithm::kHalvingDoubling, Algorithm::kHierarchical,
                                   Algorithm::kTorus, Algorithm::kDirect, Algorithm::kPairwise, Algorithm::kParameterServer,
                                   Algorithm::kPipelined, Algorithm::kForest};

bool Knows(Algorithm algorithm, Collective collective) {
  const bool reduces = collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
                       collective == Collective::kAllGather;
  switch (algorithm) {
    case Algorithm::kRing: return true;
    case Algorithm::kTree: return collective == Collective::kAllReduce || collective == Collective::kBroadcast;
    case Algorithm::kHalvingDoubling:
    case Algorithm::kTorus:
    case Algorithm::kForest: return reduces;
    case Algorithm::kHierarchical:
    case Algorithm::kDirect: return reduces || collective == Collective::kAllToAll;
    case Algorithm::kPairwise: return collective == Collective::kAllToAll;
    case Algorithm::kParameterServer: return collective == Collective::kAllReduce;
    case Algorithm::kPipelined: return collective == Collective::kBroadcast;
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree: return false;
  }
  return false;
}

int32_t LargestDivisorToRoot(int32_t ranks) {
  int32_t best = 1;
  for (int32_t d = 1; d * d <= ranks; ++d) {
    if (ranks % d == 0) best = d;
  }
  return best;
}

/// The parameter that a 0 stands for.
int32_t Parameter(const AlgorithmSpec& spec, Collective collective, int32_t ranks) {
  if (spec.parameter > 0) return spec.parameter;
  const auto root = static_cast<int32_t>(std::ceil(std::sqrt(std::max(1, ranks))));
  const bool ragged = collective == Collective::kAllReduce || collective == Collective::kAllToAll;
  switch (spec.algorithm) {
    case Algorithm::kHierarchical: return ragged ? root : LargestDivisorToRoot(ranks);
    case Algorithm::kForest: return root;
    case Algorithm::kTorus: return LargestDivisorToRoot(ranks);
    case Algorithm::kParameterServer: return ranks;
    default: return 0;
  }
}

/// Inside groups everybody reaches everybody; across them rings need the fewest connections.
constexpr GroupPattern kInside = GroupPattern::kDirect;
constexpr GroupPattern kAcross = GroupPattern::kRing;

Schedule Named(Schedule schedule, Algorithm algorithm) {
  schedule.algorithm = AlgorithmName(algorithm);
  return schedule;
}

Status CheckKnown(const AlgorithmSpec& spec, Collective collective, int32_t ranks, RankId root) {
  if (ranks < 1 || root.value() < 0 || root.value() >= ranks) {
    return Fail(Code::kInvalidArgument, fmt::format("{} {}: {} ranks, root {}, expected at least 1 and a root below it",
                                                    AlgorithmName(spec.algorithm), CollectiveName(collective), ranks,
                                                    root.value()));
  }
  if (Knows(spec.algorithm, collective)) return Ok();
  std::string known;
  for (const Algorithm algorithm : AlgorithmsFor(collective)) {
    known += (known.empty() ? "" : ", ") + std::string(AlgorithmName(algorithm));
  }
  return Fail(Code::kInvalidArgument, fmt::format("algorithm \"{}\" for {}: expected one of {}",
                                                  AlgorithmName(spec.algorithm), CollectiveName(collective), known));
}

}  // namespace

Result<AlgorithmSpec> ParseAlgorithm(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  std::string accepted;
  for (const Algorithm known : kScheduled) {
    accepted += (accepted.empty() ? "" : ", ") + std::string(AlgorithmName(known));
    if (AlgorithmName(known) != name) continue;
    AlgorithmSpec spec{.algorithm = known};
    if (colon == std::string_view::npos) return spec;
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), spec.parameter);
    const bool takes = Parameter({known, 0}, Collective::kAllReduce, 4) != 0;
    if (error == std::errc() && end == number.data() + number.size() && spec.parameter > 0 && takes) return spec;
    return Fail(Code::kInvalidArgument, fmt::format("algorithm \"{}\": expected {} and a positive number behind it", text,
                                                    "hierarchical, torus, ps or forest"));
  }
  return Fail(Code::kInvalidArgument, fmt::format("algorithm \"{}\": expected one of {}", name, accepted));
}

std::string ToString(const AlgorithmSpec& spec) {
  if (spec.parameter == 0) return std::string(AlgorithmName(spec.algorithm));
  return fmt::format("{}:{}", AlgorithmName(spec.algorithm), spec.parameter);
}

std::vector<Algorithm> AlgorithmsFor(Collective collective) {
  std::vector<Algorithm> known;
  for (const Algorithm algorithm : kScheduled) {
    if (Knows(algorithm, collective)) known.push_back(algorithm);
  }
  return known;
}

Result<AlgorithmSpec> WithParameter(const AlgorithmSpec& spec, Collective collective, int32_t ranks) {
  WEFT_RETURN_IF_ERROR(CheckKnown(spec, collective, ranks, RankId(0)));
  return AlgorithmSpec{spec.algorithm, Parameter(spec, collective, ranks)};
}

Result<Schedule> MakeSchedule(const AlgorithmSpec& spec, Collective collective, int32_t ranks, RankId root) {
  WEFT_RETURN_IF_ERROR(CheckKnown(spec, collective, ranks, root));
  const int32_t parameter = Parameter(spec, collective, ranks);
  const auto flat = [&](GroupPattern pattern) {
    return Named(BuildLevels(FlatLevels(collective, pattern, ranks)), spec.algorithm);
  };
  const auto levels = [&](const Result<LevelPlan>& plan) -> Result<Schedule> {
    if (!plan) return Fail(plan.error());
    return Named(BuildLevels(*plan), spec.algorithm);
  };
  const bool to_all = collective == Collective::kAllToAll;
  switch (spec.algorithm) {
    case Algorithm::kRing: return RingSchedule(collective, ranks, root);
    case Algorithm::kTree: return TreeSchedule(collective, ranks, root);
    case Algorithm::kHalvingDoubling: return flat(GroupPattern::kHalving);
    case Algorithm::kDirect: return to_all ? DirectAllToAll(ranks) : flat(GroupPattern::kDirect);
    case Algorithm::kPairwise: return PairwiseAllToAll(ranks);
    case Algorithm::kHierarchical:
      return to_all ? HierarchicalAllToAll(ranks, parameter)
                    : levels(HierarchicalLevels(collective, ranks, parameter, kInside, kAcross));
    case Algorithm::kTorus: return levels(TorusLevels(collective, ranks, parameter));
    case Algorithm::kParameterServer: return ParameterServerSchedule(collective, ranks, parameter);
    case Algorithm::kPipelined: {
      WEFT_ASSIGN_OR_RETURN(Schedule chain, RingSchedule(collective, ranks, root));
      return Named(std::move(chain), spec.algorithm);
    }
    case Algorithm::kForest: return PackedGroupsSchedule(collective, ranks, parameter);
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree: break;
  }
  return Fail(Code::kInternal, "algorithm without a schedule");
}

}  // namespace weft::planner::collectives
