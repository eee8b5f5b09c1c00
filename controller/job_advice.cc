#include "controller/job_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/launch_variable.h"
#include "common/parse_units.h"
#include "controller/job_fabric.h"
#include "controller/job_table.h"
#include "formats/hf_config.h"
#include "formats/train_plan.h"
#include "planner/plan/change_price.h"
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

/// What runs, what could, and the iterations of both.
struct Choice {
  const planner::JobSpec& job;
  const planner::ClusterSpec& now;
  const planner::Strategy& other;
  const PlannedJob& anew;
  double iteration_s = 0;
  bool measured = false;
  double ratio = 1;           ///< of the other's iteration to this one's
};

std::optional<v1::RestartAdvice> RestartOf(const AdviseRestart& question, const Choice& choice, const std::string& fabric,
                                           const AdviceOptions& options) {
  if (!(choice.ratio < 1 - options.gain)) return std::nullopt;
  // Restarted it would end later than it does now.
  if (question.left && options.restart + *question.left * choice.ratio >= *question.left) return std::nullopt;
  v1::RestartAdvice advice;
  advice.set_strategy(planner::DescribeStrategy(choice.other));
  advice.set_iteration_now_s(choice.iteration_s);
  advice.set_iteration_then_s(choice.iteration_s * choice.ratio);
  advice.set_restart_s(options.restart.count());
  // t / then = (t + restart) / now.
  advice.set_pays_after_s(options.restart.count() * choice.ratio / (1 - choice.ratio));
  advice.set_fabric(fabric);
  advice.set_measured(choice.measured);
  return advice;
}

/// The programs are made of the words that the ranks have and would get, so that what is priced is what they do.
Result<planner::ChangePrice> PriceWords(const v1::JobPlan& from, const v1::JobPlan& to, const Choice& choice) {
  const auto program = [&](const v1::JobPlan& plan) -> Result<planner::StepProgram> {
    const std::vector<std::string> words(plan.arguments().begin(), plan.arguments().end());
    WEFT_ASSIGN_OR_RETURN(const formats::TrainWords said, formats::ParseTrainArguments(words));
    return formats::ExpandTrainPlan(said.plan, choice.job, planner::ElementType::kFloat32);
  };
  WEFT_ASSIGN_OR_RETURN(const planner::StepProgram before, program(from));
  WEFT_ASSIGN_OR_RETURN(const planner::StepProgram after, program(to));
  return planner::PriceChange(choice.job.model, choice.now, before, after);
}

/// The change of ranks that listen, where it pays. Ranks stay on their hosts, so that one which needs another order is none.
std::optional<v1::StrategyChange> ChangeOf(const AdviseRestart& question, const Choice& choice, const std::string& fabric,
                                           const AdviceOptions& options) {
  const v1::JobPlan& plan = choice.anew.plan;
  const bool handed = plan.environment().contains(kArgumentsVariable);
  if (!question.listens || !handed || choice.anew.order != HostsOf(question.plan)) return std::nullopt;
  if (!(choice.ratio < 1 - options.change_gain)) return std::nullopt;
  const auto price = PriceWords(question.plan, plan, choice);
  if (!price) return std::nullopt;  // more ranks than are looked at, or words of another release
  const Seconds pause = options.change + price->moving;
  const Seconds pays_after = pause * (choice.ratio / (1 - choice.ratio));
  if (question.left ? pause + *question.left * choice.ratio >= *question.left : pays_after > kChangePaysWithin) return std::nullopt;
  v1::StrategyChange change;
  change.set_strategy(planner::DescribeStrategy(choice.other));
  change.set_iteration_now_s(choice.iteration_s);
  change.set_iteration_then_s(choice.iteration_s * choice.ratio);
  change.set_pause_s(pause.count());
  change.set_moved_bytes(price->moved.count());
  change.set_fabric(fabric);
  *change.mutable_plan() = plan;
  return change;
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
  // What probes have not shown yet, or no longer as connections are others, is no reason to do anything.
  if (!fabric.known) return Advised{.fabric = question.looked_at, .advice = {}, .change = {}};
  Advised advised{.fabric = Describe(fabric.now), .advice = {}, .change = {}};
  if (advised.fabric == question.looked_at) return advised;
  WEFT_ASSIGN_OR_RETURN(const PlannedJob anew, PlanJob(spec, question.view, planner, stop));
  // Nothing found in time says nothing of this fabric: what was said of the last one stands, and the next change asks again.
  if (!anew.plan.has_strategy()) return Advised{.fabric = question.looked_at, .advice = {}, .change = {}};
  WEFT_ASSIGN_OR_RETURN(const planner::Strategy present, proto::StrategyFromProto(question.plan.strategy()));
  WEFT_ASSIGN_OR_RETURN(const planner::Strategy other, proto::StrategyFromProto(anew.plan.strategy()));
  if (present == other) return advised;
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec model, formats::ParseHfConfig(spec.model_config_json(), "model_config_json"));
  WEFT_ASSIGN_OR_RETURN(planner::JobSpec job, proto::JobSpecFromProto(spec, model));
  if (job.gpus == 0) job.gpus = cluster.TotalGpus();
  // Both by the same account, whatever they were predicted to take when each was chosen.
  WEFT_ASSIGN_OR_RETURN(const planner::GivenPrice now, planner::PriceGiven(job, fabric.now, spec.framework(), present));
  WEFT_ASSIGN_OR_RETURN(const planner::GivenPrice then, planner::PriceGiven(job, fabric.now, spec.framework(), other));
  if (!then.fits) return advised;
  const bool measured = question.iteration_s > 0;
  const Choice choice{.job = job, .now = fabric.now, .other = other, .anew = anew,
                      .iteration_s = measured ? question.iteration_s : now.plan.predicted.iteration.count(), .measured = measured,
                      .ratio = then.plan.predicted.iteration / now.plan.predicted.iteration};
  advised.advice = RestartOf(question, choice, advised.fabric, options);
  advised.change = ChangeOf(question, choice, advised.fabric, options);
  return advised;
}

}  // namespace weft::controller
