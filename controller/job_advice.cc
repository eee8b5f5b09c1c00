#include "controller/job_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/parse_units.h"
#include "controller/job_fabric.h"
#include "controller/job_table.h"
#include "formats/hf_config.h"
#include "planner/plan/price_given.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

/// Two digits of a rate: what links carry changes a little all the time.
std::string Rounded(BitsPerSecond rate) {
  if (!(rate.value() > 0)) return "-";
  const double unit = std::pow(10, std::floor(std::log10(rate.value())) - 1);
  return FormatRate(BitsPerSecond(std::round(rate.value() / unit) * unit));
}

std::string Describe(const planner::ClusterSpec& cluster) {
  std::string text = fmt::format("nodes send {}", Rounded(cluster.nic_rate));
  for (const planner::FabricTier& tier : cluster.tiers) {
    if (tier.out.value() > 0) text += fmt::format(", out of a {} of {} each {}", tier.name, tier.nodes, Rounded(tier.out));
  }
  return text;
}

}  // namespace

bool CanBeAdvised(const v1::JobSpec& spec, const v1::JobPlan& plan) {
  if (plan.origin() != "search" || !plan.has_strategy() || spec.has_given_strategy() || spec.allow_size() > 0) return false;
  return HostsOf(plan).size() > 1 && planner::ParseFramework(spec.framework()).has_value();
}

Result<Advised> AdviseJob(const AdviseRestart& question, const JobPlannerOptions& planner, const AdviceOptions& options,
                          const std::stop_token& stop) {
  const v1::JobSpec& spec = question.spec;
  planner::ClusterSpec cluster = planner.cluster;
  const std::vector<std::string> hosts = HostsOf(question.plan);
  cluster.nodes = static_cast<int64_t>(hosts.size());
  cluster.gpus_per_node = std::max<int64_t>(spec.ranks_per_host(), 1);
  const JobFabric fabric = LookAtFabric(hosts, question.view, cluster);
  Advised advised{.fabric = Describe(fabric.now), .advice = {}};
  if (advised.fabric == question.looked_at) return advised;
  WEFT_ASSIGN_OR_RETURN(const PlannedJob anew, PlanJob(spec, question.view, planner, stop));
  // Nothing found in time says nothing of this fabric: what was said of the last one stands, and the next change asks again.
  if (!anew.plan.has_strategy()) return Advised{.fabric = question.looked_at, .advice = {}};
  WEFT_ASSIGN_OR_RETURN(const planner::Strategy present, proto::StrategyFromProto(question.plan.strategy()));
  WEFT_ASSIGN_OR_RETURN(const planner::Strategy other, proto::StrategyFromProto(anew.plan.strategy()));
  if (present == other) return advised;
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec model, formats::ParseHfConfig(spec.model_config_json(), "model_config_json"));
  WEFT_ASSIGN_OR_RETURN(planner::JobSpec job, proto::JobSpecFromProto(spec, model));
  if (job.gpus == 0) job.gpus = cluster.TotalGpus();
  // Both by the same account, whatever they were predicted to take when each was chosen.
  WEFT_ASSIGN_OR_RETURN(const planner::GivenPrice now, planner::PriceGiven(job, fabric.now, spec.framework(), present));
  WEFT_ASSIGN_OR_RETURN(const planner::GivenPrice then, planner::PriceGiven(job, fabric.now, spec.framework(), other));
  const double ratio = then.plan.predicted.iteration / now.plan.predicted.iteration;
  if (!(ratio < 1 - options.gain) || !then.fits) return advised;
  // Restarted it would end later than it does now.
  if (question.left && options.restart + *question.left * ratio >= *question.left) return advised;
  const bool measured = question.iteration_s > 0;
  const double iteration = measured ? question.iteration_s : now.plan.predicted.iteration.count();
  v1::RestartAdvice advice;
  advice.set_strategy(planner::DescribeStrategy(other));
  advice.set_iteration_now_s(iteration);
  advice.set_iteration_then_s(iteration * ratio);
  advice.set_restart_s(options.restart.count());
  // t / then = (t + restart) / now.
  advice.set_pays_after_s(options.restart.count() * ratio / (1 - ratio));
  advice.set_fabric(advised.fabric);
  advice.set_measured(measured);
  advised.advice = std::move(advice);
  return advised;
}

}  // namespace weft::controller
