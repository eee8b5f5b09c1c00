// ProgramOf: the step program of a plan, also of groups of machines that share the batch, or the layers, unequally.
#include <fmt/format.h>

#include <vector>

#include "planner/planner.h"

namespace weft::planner {
namespace {

tl::unexpected<Error> Refuse(std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); }

/// One strategy for all groups: that of each, with the replicas of all. Ranks of a group have consecutive numbers.
Result<Strategy> StrategyOfAll(const std::vector<GroupShare>& groups) {
  const auto with = [](Strategy s, int64_t replicas) {
    s.rank_order = RankOrder::kTpCpPpDp;
    s.dp = replicas;
    return s;
  };
  int64_t replicas = 0;
  for (const GroupShare& group : groups) {
    replicas += group.strategy.dp;
    if (with(group.strategy, 1) == with(groups.front().strategy, 1)) continue;
    return Refuse(fmt::format("group {} does {}, group {} {}: no program, expected groups that differ in their replicas alone",
                              groups.front().name, DescribeStrategy(groups.front().strategy), group.name,
                              DescribeStrategy(group.strategy)));
  }
  return with(groups.front().strategy, replicas);
}

/// Gradients are summed within groups and then between them, as PlanGroups() prices it, where groups have equally many replicas.
AlgorithmSpec SumsOf(const std::vector<GroupShare>& groups, const Strategy& all) {
  const int64_t within = groups.front().strategy.dp * all.cp;
  for (const GroupShare& group : groups) {
    if (group.strategy.dp * all.cp != within) return {};
  }
  if (within == 1 || all.data_sync != DataSync::kRing) return {};
  return {Algorithm::kHierarchical, static_cast<int32_t>(within)};
}

}  // namespace

Result<StepProgram> ProgramOf(const JobSpec& job, const ClusterSpec& cluster, const JobPlan& plan, ElementType type) {
  if (plan.groups.empty()) {
    const ProgramChoices choices = ChoicesOf(plan.strategy, plan.operators, plan.operations, cluster.gpus_per_node);
    return ExpandProgram(job, plan.strategy, type, choices);
  }
  std::vector<int64_t> layers;  // of one pipeline through all groups, whose stages follow one another
  for (const GroupShare& group : plan.groups) layers.insert(layers.end(), group.layers.begin(), group.layers.end());
  if (!layers.empty()) return ExpandProgram(job, plan.groups.front().strategy, type, {.layers = layers});
  WEFT_ASSIGN_OR_RETURN(const Strategy all, StrategyOfAll(plan.groups));
  std::vector<BatchShare> shares;
  for (const GroupShare& group : plan.groups) shares.push_back({.replicas = group.strategy.dp, .sequences = group.sequences});
  return ExpandProgram(job, all, type, {.sums = SumsOf(plan.groups, all), .shares = shares});
}

}  // namespace weft::planner
