#include "controller/job_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/launch_variable.h"
#include "common/parse_units.h"
#include "controller/job_launch.h"
#include "controller/job_table.h"
#include "formats/hf_config.h"
#include "formats/train_plan.h"
#include "planner/plan/change_price.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

std::string Rounded(BitsPerSecond rate) {
  if (!(rate.value() > 0)) return "-";
  const double unit = std::pow(10, std::floor(std::log10(rate.value())) - 1);
  return FormatRate(BitsPerSecond(std::round(rate.value() / unit) * unit));
}

double Gibibytes(Bytes amount) { return static_cast<double>(amount.count()) / 0x1p30; }

/// With the strategy of pair.then. Errors: kInvalidArgument for one without a program, or longer than an agent hands on.
Result<v1::JobPlan> PlanOf(const AdviseRestart& question, const planner::ClusterSpec& now, const StrategyPair& pair,
                           const JobPlannerOptions& planner) {
  const planner::JobPlan& priced = pair.then.plan;
  const planner::ProgramChoices choices =
      planner::ChoicesOf(priced.strategy, priced.operators, priced.operations, now.gpus_per_node);
  if (const auto why = planner::WhyNoProgram(pair.job, priced.strategy, choices))
    return Fail(Code::kInvalidArgument, fmt::format("weft-train has no program for it: {}", *why));
  v1::JobPlan plan;
  proto::ToProto(priced, plan);
  plan.mutable_predicted()->set_usable_bytes(pair.then.usable.count());
  plan.set_origin("asked");
  FillProgram({pair.job, now, priced}, plan);
  FillJobLaunch(HostsOf(question.plan), question.spec, question.view, planner, plan);
  if (plan.environment().contains(kArgumentsVariable)) return plan;
  return Fail(Code::kInvalidArgument, plan.why().empty() ? "no launch arguments" : *plan.why().rbegin());
}

/// What speaks against a priced strategy. Errors: kInvalidArgument.
Status CheckWanted(const AdviseRestart& question, const StrategyPair& pair) {
  const planner::GivenPrice& then = pair.then;
  if (pair.now.plan.strategy == then.plan.strategy) {
    return Fail(Code::kInvalidArgument, fmt::format("its ranks run as {} already", question.plan.strategy().text()));
  }
  if (then.fits) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("memory: {:.1f} GiB on the fullest GPU, {:.1f} GiB are there: predicted not to fit",
                                                  Gibibytes(then.plan.predicted.memory.total()), Gibibytes(then.usable)));
}

Result<v1::StrategyChange> Price(const AskedJob& asked, const std::optional<planner::Strategy>& wanted,
                                 const JobPlannerOptions& planner, Seconds cost) {
  if (!wanted && !asked.before)
    return Fail(Code::kInvalidArgument, "nothing to go back to: its strategy was not changed while it ran");
  const JobFabric fabric = FabricOf(asked.question, planner);
  planner::Strategy strategy;
  if (wanted) {
    strategy = *wanted;
  } else {
    WEFT_ASSIGN_OR_RETURN(strategy, proto::StrategyFromProto(asked.before->strategy()));
  }
  WEFT_ASSIGN_OR_RETURN(const StrategyPair pair, PricePair(asked.question, fabric.now, strategy));
  WEFT_RETURN_IF_ERROR(CheckWanted(asked.question, pair));
  v1::JobPlan plan;
  if (wanted) {
    WEFT_ASSIGN_OR_RETURN(plan, PlanOf(asked.question, fabric.now, pair, planner));
  } else {
    plan = *asked.before;
  }
  WEFT_ASSIGN_OR_RETURN(v1::StrategyChange change, ChangeTo(asked.question, pair, fabric.now, plan, cost));
  if (!fabric.known) change.set_fabric(change.fabric() + " (as configured: probes have not joined the job's hosts)");
  return change;
}

}  // namespace

std::string DescribeFabric(const planner::ClusterSpec& cluster) {
  std::string text = fmt::format("nodes send {}", Rounded(cluster.nic_rate));
  for (const planner::FabricTier& tier : cluster.tiers) {
    if (tier.out.value() > 0) text += fmt::format(", out of a {} of {} each {}", tier.name, tier.nodes, Rounded(tier.out));
  }
  return text;
}

JobFabric FabricOf(const AdviseRestart& question, const JobPlannerOptions& planner) {
  planner::ClusterSpec cluster = planner.cluster;
  const std::vector<std::string> hosts = HostsOf(question.plan);
  cluster.nodes = static_cast<int64_t>(hosts.size());
  cluster.gpus_per_node = std::max<int64_t>(question.spec.ranks_per_host(), 1);
  return LookAtFabric(hosts, question.view, cluster);
}

Result<StrategyPair> PricePair(const AdviseRestart& question, const planner::ClusterSpec& now, const planner::Strategy& other) {
  const v1::JobSpec& spec = question.spec;
  WEFT_ASSIGN_OR_RETURN(const planner::Strategy present, proto::StrategyFromProto(question.plan.strategy()));
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec model, formats::ParseHfConfig(spec.model_config_json(), "model_config_json"));
  StrategyPair pair;
  WEFT_ASSIGN_OR_RETURN(pair.job, proto::JobSpecFromProto(spec, model));
  if (pair.job.gpus == 0) pair.job.gpus = now.TotalGpus();
  WEFT_ASSIGN_OR_RETURN(pair.now, planner::PriceGiven(pair.job, now, spec.framework(), present));
  WEFT_ASSIGN_OR_RETURN(pair.then, planner::PriceGiven(pair.job, now, spec.framework(), other));
  const Seconds predicted = pair.now.plan.predicted.iteration;
  pair.measured = question.iteration_s > 0;
  pair.iteration_now_s = pair.measured ? question.iteration_s : predicted.count();
  pair.iteration_then_s = pair.iteration_now_s * (pair.then.plan.predicted.iteration / predicted);
  return pair;
}

Result<v1::StrategyChange> ChangeTo(const AdviseRestart& question, const StrategyPair& pair, const planner::ClusterSpec& now,
                                    const v1::JobPlan& to, Seconds cost) {
  const auto program = [&](const v1::JobPlan& plan) -> Result<planner::StepProgram> {
    const std::vector<std::string> words(plan.arguments().begin(), plan.arguments().end());
    WEFT_ASSIGN_OR_RETURN(const formats::TrainWords said, formats::ParseTrainArguments(words));
    return formats::ExpandTrainPlan(said.plan, pair.job, planner::ElementType::kFloat32);
  };
  WEFT_ASSIGN_OR_RETURN(const planner::StepProgram before, program(question.plan));
  WEFT_ASSIGN_OR_RETURN(const planner::StepProgram after, program(to));
  WEFT_ASSIGN_OR_RETURN(const planner::ChangePrice price, planner::PriceChange(pair.job.model, now, before, after));
  v1::StrategyChange change;
  change.set_strategy(planner::DescribeStrategy(pair.then.plan.strategy));
  change.set_iteration_now_s(pair.iteration_now_s);
  change.set_iteration_then_s(pair.iteration_then_s);
  change.set_pause_s((cost + price.moving).count());
  change.set_moved_bytes(price.moved.count());
  change.set_fabric(DescribeFabric(now));
  *change.mutable_plan() = to;
  return change;
}

Result<v1::StrategyChange> PriceAsked(const AskedJob& asked, const std::optional<planner::Strategy>& wanted,
                                      const JobPlannerOptions& planner, Seconds cost) {
  Result<v1::StrategyChange> change = Price(asked, wanted, planner, cost);
  if (change) return change;
  return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": {}", asked.question.spec.job_id(), change.error().message()));
}

}  // namespace weft::controller
