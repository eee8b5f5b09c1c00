#include "controller/planned_traffic.h"

#include "planner/plan/model_profile.h"
#include "proto/operation_codec.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

constexpr int64_t kMostRanks = 1 << 16;

}  // namespace

HostTraffic PlannedTraffic(const v1::JobPlan& plan) {
  if (!plan.has_operations() || !plan.has_strategy()) return {};
  const Result<planner::Strategy> strategy = proto::StrategyFromProto(plan.strategy());
  if (!strategy || planner::GpuCount(*strategy) > kMostRanks || planner::GpuCount(*strategy) != plan.rank_hosts_size()) return {};
  const Result<planner::OperationList> list = proto::OperationListFromProto(plan.operations());
  if (!list || list->stages != strategy->pp) return {};
  HostTraffic sent;
  const planner::IterationTraffic traffic = planner::ListTraffic(*list, *strategy, 1);
  for (const auto* pairs : {&traffic.passes, &traffic.once}) {
    for (const planner::PairBytes& pair : *pairs) {
      const std::string &from = plan.rank_hosts(pair.from), &to = plan.rank_hosts(pair.to);
      if (from != to) sent[{from, to}] += static_cast<double>(pair.bytes.count());
    }
  }
  return sent;
}

}  // namespace weft::controller
