#include "controller/job_advice.h"

#include <string>
#include <utility>
#include <vector>

#include "common/launch_variable.h"
#include "controller/job_change.h"
#include "controller/job_table.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

std::optional<v1::RestartAdvice> RestartOf(const AdviseRestart& question, const StrategyPair& pair, const std::string& fabric,
                                           const AdviceOptions& options) {
  const double ratio = pair.iteration_then_s / pair.iteration_now_s;
  if (!(ratio < 1 - options.gain)) return std::nullopt;
  // Restarted it would end later than it does now.
  if (question.left && options.restart + *question.left * ratio >= *question.left) return std::nullopt;
  v1::RestartAdvice advice;
  advice.set_strategy(planner::DescribeStrategy(pair.then.plan.strategy));
  advice.set_iteration_now_s(pair.iteration_now_s);
  advice.set_iteration_then_s(pair.iteration_then_s);
  advice.set_restart_s(options.restart.count());
  // t / then = (t + restart) / now.
  advice.set_pays_after_s(options.restart.count() * ratio / (1 - ratio));
  advice.set_fabric(fabric);
  advice.set_measured(pair.measured);
  return advice;
}

/// The change of ranks that listen, where it pays. Ranks stay on their hosts, so that one which needs another order is none.
std::optional<v1::StrategyChange> ChangeOf(const AdviseRestart& question, const StrategyPair& pair, const planner::ClusterSpec& now,
                                           const PlannedJob& anew, const AdviceOptions& options) {
  const bool handed = anew.plan.environment().contains(kArgumentsVariable);
  if (!question.listens || !handed || anew.order != HostsOf(question.plan)) return std::nullopt;
  const double ratio = pair.iteration_then_s / pair.iteration_now_s;
  if (!(ratio < 1 - options.change_gain)) return std::nullopt;
  Result<v1::StrategyChange> change = ChangeTo(question, pair, now, anew.plan, options.change);
  if (!change) return std::nullopt;  // more ranks than are looked at, or words of another release
  const Seconds pause(change->pause_s()), pays_after = pause * (ratio / (1 - ratio));
  if (question.left ? pause + *question.left * ratio >= *question.left : pays_after > kChangePaysWithin) return std::nullopt;
  return *std::move(change);
}

}  // namespace

bool CanBeAdvised(const v1::JobSpec& spec, const v1::JobPlan& plan) {
  const bool ours = plan.origin() == "search" || plan.origin() == "asked";
  if (!ours || !plan.has_strategy() || spec.has_given_strategy() || spec.allow_size() > 0) return false;
  return HostsOf(plan).size() > 1 && planner::ParseFramework(spec.framework()).has_value();
}

Result<Advised> AdviseJob(const AdviseRestart& question, const JobPlannerOptions& planner, const AdviceOptions& options,
                          const std::stop_token& stop) {
  const v1::JobSpec& spec = question.spec;
  const JobFabric fabric = FabricOf(question, planner);
  // What probes have not shown yet, or no longer as connections are others, is no reason to do anything.
  if (!fabric.known) return Advised{.fabric = question.looked_at, .advice = {}, .change = {}};
  Advised advised{.fabric = DescribeFabric(fabric.now), .advice = {}, .change = {}};
  if (advised.fabric == question.looked_at) return advised;
  WEFT_ASSIGN_OR_RETURN(const PlannedJob anew, PlanJob(spec, question.view, planner, stop));
  // Nothing found in time says nothing of this fabric: what was said of the last one stands, and the next change asks again.
  if (!anew.plan.has_strategy()) return Advised{.fabric = question.looked_at, .advice = {}, .change = {}};
  WEFT_ASSIGN_OR_RETURN(const planner::Strategy present, proto::StrategyFromProto(question.plan.strategy()));
  WEFT_ASSIGN_OR_RETURN(const planner::Strategy other, proto::StrategyFromProto(anew.plan.strategy()));
  if (present == other) return advised;
  WEFT_ASSIGN_OR_RETURN(const StrategyPair pair, PricePair(question, fabric.now, other));
  if (!pair.then.fits) return advised;
  advised.advice = RestartOf(question, pair, advised.fabric, options);
  advised.change = ChangeOf(question, pair, fabric.now, anew, options);
  return advised;
}

}  // namespace weft::controller
