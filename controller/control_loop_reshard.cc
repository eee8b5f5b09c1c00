// The loop's part in a strategy that somebody asks for in a running job: it is priced outside of the lock, and taken if the job is
// still what was priced.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "controller/control_loop.h"
#include "controller/job_change.h"
#include "planner/planner.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

constexpr double kHold = 600, kLongestHold = 30 * 24 * 3600.0;  // seconds

/// nullopt: back to what the job ran before.
Result<std::optional<planner::Strategy>> WantedOf(const v1::ReshardJobRequest& request) {
  if (request.back() == request.has_strategy())
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": expected a strategy, or back, and not both", request.job_id()));
  if (!(request.hold_s() >= 0) || request.hold_s() > kLongestHold) {
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": hold_s: {}, expected 0 to {:.0f}", request.job_id(), request.hold_s(),
                                                    kLongestHold));
  }
  if (request.back()) return std::optional<planner::Strategy>();
  Result<planner::Strategy> strategy = proto::StrategyFromProto(request.strategy());
  if (!strategy) {
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": {}", request.job_id(), strategy.error().message()));
  }
  const auto& values = request.strategy().values();
  if (std::ranges::none_of(values, [](const v1::StrategyValue& value) { return value.name() == "bucket_bytes"; }))
    strategy->bucket_bytes = Bytes(0);  // weft-train's own
  return std::optional(*std::move(strategy));
}

/// The plan that runs, with what it would be told, or is; without what lists of jobs leave out.
v1::JobPlan Shown(v1::JobPlan plan, const v1::StrategyChange& change) {
  *plan.mutable_change() = change;
  plan.mutable_change()->clear_plan();
  plan.mutable_change()->clear_before();
  return plan;
}

}  // namespace

Result<v1::JobPlan> ControlLoop::Reshard(const v1::ReshardJobRequest& request, const std::string& by) {
  WEFT_ASSIGN_OR_RETURN(const std::optional<planner::Strategy> wanted, WantedOf(request));
  const std::string& job_id = request.job_id();
  std::unique_lock lock(mutex_);
  WEFT_ASSIGN_OR_RETURN(const AskedJob asked, core_.AskOf(job_id, request.dry_run()));
  const JobPlannerOptions planner = PlannerNow();
  lock.unlock();
  WEFT_ASSIGN_OR_RETURN(v1::StrategyChange change, PriceAsked(asked, wanted, planner, options_.advice.change));
  change.set_asked_by(by);
  change.set_hold_s(request.hold_s() > 0 ? request.hold_s() : kHold);
  if (request.dry_run()) return Shown(asked.question.plan, change);
  lock.lock();
  WEFT_ASSIGN_OR_RETURN(const AskedJob now, core_.AskOf(job_id, false));
  const auto& words = asked.question.plan.arguments();
  if (!std::ranges::equal(words, now.question.plan.arguments())) {
    return Fail(Code::kAborted, fmt::format("job \"{}\": it went over to {} meanwhile, ask again", job_id,
                                            now.question.plan.strategy().text()));
  }
  Handle({.body = StrategyAsked{job_id, std::move(change)}});
  const v1::JobPlan told = core_.FindJob(job_id)->plan();
  return Shown(told, told.change());
}

}  // namespace weft::controller
