#include "controller/job_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "common/parse_units.h"
#include "controller/job_fabric.h"
#include "controller/job_launch.h"
#include "formats/hf_config.h"
#include "planner/plan/price_given.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

constexpr int kMostAllowed = 16;  // words
constexpr size_t kLongestAllowed = 32;
constexpr double kWorthAnother = 0.02;  // of an iteration: less is within what predictions err by, and what links carry changes
constexpr char kManaged[] = "paths, classes and windows follow what is measured of its flows";

double Gibibytes(Bytes amount) { return static_cast<double>(amount.count()) / 0x1p30; }

/// The job as the planner sees it, on the machines that it gets.
struct Question {
  planner::JobSpec job;
  planner::ClusterSpec cluster;
};

Result<Question> Ask(const v1::JobSpec& spec, const JobPlannerOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec model,
                        formats::ParseHfConfig(spec.model_config_json(), "model_config_json"));
  Question question{.job = {}, .cluster = options.cluster};
  WEFT_ASSIGN_OR_RETURN(question.job, proto::JobSpecFromProto(spec, model));
  if (spec.hosts_size() > 0) {
    question.cluster.nodes = spec.hosts_size();
    question.cluster.gpus_per_node = std::max<int64_t>(spec.ranks_per_host(), 1);
    if (question.job.gpus == 0) question.job.gpus = question.cluster.nodes * question.cluster.gpus_per_node;
  }
  return question;
}

/// Errors: kInvalidArgument for a word that is not known, or beside a program or a strategy of one's own.
Result<planner::TrainingChanges> Allowed(const v1::JobSpec& spec) {
  if (spec.allow_size() > kMostAllowed) {
    return Fail(Code::kInvalidArgument,
                fmt::format("job \"{}\": allow: {} words, expected at most {}", spec.job_id(), spec.allow_size(), kMostAllowed));
  }
  const auto named = planner::ParseFramework(spec.framework());
  const bool does = named && (*named == planner::Framework::kAny || planner::Describe(*named).changes_training);
  if (!spec.framework().empty() && !does) {
    return Fail(Code::kInvalidArgument,
                fmt::format("job \"{}\": allow with framework \"{}\": it does not do these exchanges, expected none, any or weft-train",
                            spec.job_id(), spec.framework()));
  }
  for (const std::string& word : spec.allow()) {
    if (word.size() <= kLongestAllowed && word.find(',') == word.npos) continue;
    return Fail(Code::kInvalidArgument,
                fmt::format("job \"{}\": allow: a word of {} characters, expected one of low_precision, local_steps, gossip",
                            spec.job_id(), word.size()));
  }
  return planner::ParseTrainingChanges(fmt::format("{}", fmt::join(spec.allow(), ",")));
}

/// The program whose space is searched; nullopt: nobody's that has one, which counts as data parallelism. Some are named for what
/// they start: torchrun any script, weft-replay what weft-train sends without a plan.
std::optional<planner::Framework> ProgramOf(const v1::JobSpec& spec) {
  const auto named = planner::ParseFramework(spec.framework());
  return named == planner::Framework::kWeftTrainDdp ? std::nullopt : named;
}

Result<planner::PlanOptions> OptionsOf(const v1::JobSpec& spec, const JobPlannerOptions& options, const Question& question) {
  planner::PlanOptions plan_options;
  plan_options.node_budget = options.node_budget;
  if (spec.allow_size() > 0) {
    WEFT_ASSIGN_OR_RETURN(plan_options.allow, Allowed(spec));
    plan_options.framework = planner::ParseFramework(spec.framework()).value_or(planner::Framework::kAny);
  } else if (const auto program = ProgramOf(spec)) {
    plan_options.framework = *program;
    // A plan's message has no words for operators, and no program's launch either.
    if (*program == planner::Framework::kAny) plan_options.fix["sharding"] = static_cast<int64_t>(planner::Sharding::kUniform);
  } else {
    plan_options.framework = planner::Framework::kWeftTrainDdp;
    // The batch system has decided how many ranks start; a plan for fewer would leave some without work.
    if (spec.hosts_size() > 0) plan_options.fix["dp"] = question.job.gpus;
  }
  return plan_options;
}

/// Of the best if nobody else sent and the best on what is left of links, the one to take, and why. Requires: plans in both.
planner::JobPlan TakeOne(const Question& question, const JobFabric& fabric, const planner::PlanAnswer& alone,
                         const planner::PlanAnswer& now, v1::JobPlan& out) {
  const planner::JobPlan &idle = alone.plans.front(), &left = now.plans.front();
  const std::string idle_time = FormatDuration(idle.predicted.iteration), left_time = FormatDuration(left.predicted.iteration);
  if (idle.strategy == left.strategy) {
    out.add_why(
        fmt::format("fabric: this strategy is the fastest on what is left of links, {}, and would be if nobody else sent, {}",
                    left_time, idle_time));
    return left;
  }
  const auto price = [&](const planner::ClusterSpec& cluster, const planner::Strategy& strategy) {
    return planner::PriceGiven(question.job, cluster, planner::FrameworkName(idle.framework), strategy);
  };
  const Result<planner::GivenPrice> there = price(fabric.now, idle.strategy), back = price(fabric.alone, left.strategy);
  const std::string alone_text =
      fmt::format("{}, the fastest if nobody else sent ({})", planner::DescribeStrategy(idle.strategy), idle_time);
  if (!there) {
    out.add_why(fmt::format("fabric: chosen for what is left of links: {} there, in place of {}", left_time, alone_text));
    return left;
  }
  const Seconds time = there->plan.predicted.iteration;
  const double more = time / left.predicted.iteration - 1;
  if (more < kWorthAnother) {
    out.add_why(fmt::format(
        "fabric: {}, is kept: on what is left of links it takes {}, and the fastest there, {}, only {:.1f} % less", alone_text,
        FormatDuration(time), planner::DescribeStrategy(left.strategy), 100 * (1 - left.predicted.iteration / time)));
    planner::JobPlan kept = idle;
    kept.predicted = there->plan.predicted;
    kept.operations = there->plan.operations;
    kept.lower_bound = left.lower_bound;
    kept.gap = kept.predicted.iteration / kept.lower_bound - 1;
    return kept;
  }
  out.add_why(fmt::format(
      "fabric: chosen for what is left of links: {} per iteration there, where {}, would take {}, {:.0f} % longer{}", left_time,
      alone_text, FormatDuration(time), 100 * more,
      back ? fmt::format("; with nobody else this one would take {}", FormatDuration(back->plan.predicted.iteration)) : ""));
  return left;
}

/// As planner::Plan(). Stopped before anything was found, it looks no further for what would fit.
Result<planner::PlanAnswer> PlanUntil(const std::stop_token& stop, const planner::JobSpec& job, const planner::ClusterSpec& cluster,
                                      const planner::PlanOptions& options) {
  planner::PlanAnswer late;
  late.complete = false;
  late.infeasible.emplace_back(
      "nothing was found in the time that a search has: the model's shape leaves too many strategies; give one of your own");
  if (stop.stop_requested()) return late;
  WEFT_ASSIGN_OR_RETURN(planner::PlanSearch search, planner::PlanSearch::Make(job, cluster, options));
  search.Work(stop);
  if (stop.stop_requested() && !search.Progress().best) return late;
  return search.Finish();
}

/// The best plan on the fabric between the job's hosts, into `planned`; what stands in its way, into its errors.
Status SearchOn(const Question& question, const JobFabric& fabric, const planner::PlanOptions& options, const std::stop_token& stop,
                PlannedJob& planned) {
  WEFT_ASSIGN_OR_RETURN(const planner::PlanAnswer answer, PlanUntil(stop, question.job, fabric.alone, options));
  if (answer.plans.empty()) {
    for (const std::string& reason : answer.infeasible) planned.errors.push_back("no strategy fits: " + reason);
    if (planned.errors.empty()) planned.errors.push_back("no strategy fits");
    return Ok();
  }
  for (const std::string& why : fabric.why) planned.plan.add_why(why);
  planner::JobPlan best = answer.plans.front();
  bool complete = answer.complete;
  if (fabric.loaded) {
    WEFT_ASSIGN_OR_RETURN(const planner::PlanAnswer now, PlanUntil(stop, question.job, fabric.now, options));
    complete &= now.complete;
    if (!now.plans.empty()) best = TakeOne(question, fabric, answer, now, planned.plan);
  }
  proto::ToProto(best, planned.plan);
  planned.plan.set_origin("search");
  if (!complete) planned.plan.add_why("the search ended at its budget or its time: a better strategy may exist");
  FillProgram({question.job, fabric.alone, best}, planned.plan);
  return Ok();
}

/// The strategy of the best plan, into `planned`; what stands in its way, into its errors.
Status Search(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options, const std::stop_token& stop,
              PlannedJob& planned) {
  WEFT_ASSIGN_OR_RETURN(Question question, Ask(spec, options));
  WEFT_ASSIGN_OR_RETURN(const planner::PlanOptions plan_options, OptionsOf(spec, options, question));
  JobFabric fabric{.alone = question.cluster, .now = question.cluster, .known = false, .loaded = false, .order = planned.order, .why = {}};
  if (ProgramOf(spec) && spec.allow_size() == 0 && !planned.order.empty()) {
    fabric = LookAtFabric(planned.order, view, question.cluster);
    planned.order = fabric.order;
  }
  if (question.job.gpus == 0) question.job.gpus = question.cluster.TotalGpus();
  return SearchOn(question, fabric, plan_options, stop, planned);
}

/// What the flows of a job with this strategy are managed by.
std::string TrafficOf(const v1::JobPlan& plan) {
  if (plan.has_operations()) return fmt::format("traffic: {}; until then what the plan's list of operations says", kManaged);
  if (SumsWholeGradients(plan.strategy())) return "traffic: until it is measured, taken for a ring all-reduce of the gradients";
  return fmt::format("traffic: {}; what a strategy beyond plain data parallelism sends is not predicted", kManaged);
}

/// What a price says, into the plan.
void AddPrice(const planner::GivenPrice& price, const std::string& framework, v1::JobPlan& plan) {
  proto::ToProto(price.plan, plan);
  plan.mutable_predicted()->set_usable_bytes(price.usable.count());
  plan.add_why(fmt::format("legal for the model, the batch, the GPUs{}; not searched: no bound and no runner-up",
                           price.framework_asked ? " and " + framework : "; no framework with rules of its own is named"));
  if (price.fits) return;
  plan.add_why(fmt::format("warning: memory: {:.1f} GiB on the fullest GPU, {:.1f} GiB are there: predicted not to fit; taken as "
                           "given", Gibibytes(price.plan.predicted.memory.total()), Gibibytes(price.usable)));
}

Status Price(const v1::JobSpec& spec, const JobPlannerOptions& options, PlannedJob& planned) {
  const std::string place = fmt::format("job \"{}\": ", spec.job_id());
  if (spec.model_config_json().empty()) {
    return Fail(Code::kInvalidArgument,
                place + "given strategy: without a model it cannot be checked, expected model_config_json too");
  }
  Result<planner::Strategy> strategy = proto::StrategyFromProto(spec.given_strategy());
  const auto& values = spec.given_strategy().values();
  const bool bucket = std::any_of(values.begin(), values.end(), [](const auto& value) { return value.name() == "bucket_bytes"; });
  if (strategy && !bucket) strategy->bucket_bytes = Bytes(0);  // the framework's own
  if (!strategy) return Fail(Code::kInvalidArgument, place + strategy.error().message());
  const Result<Question> question = Ask(spec, options);
  const Result<planner::GivenPrice> price =
      question ? planner::PriceGiven(question->job, question->cluster, spec.framework(), *strategy)
               : Result<planner::GivenPrice>(Fail(question.error()));
  v1::JobPlan& plan = planned.plan;
  if (!price && price.error().code() == Code::kFailedPrecondition) {
    return Fail(Code::kInvalidArgument, fmt::format("{}given strategy ({}): {}", place, spec.given_strategy().source(),
                                                    price.error().message()));
  }
  plan.set_origin("given");
  if (price) {
    AddPrice(*price, spec.framework(), plan);
    if (ProgramOf(spec).value_or(planner::Framework::kAny) != planner::Framework::kAny) {
      FillProgram({question->job, question->cluster, price->plan}, plan);
    }
  } else {
    if (!bucket) strategy->bucket_bytes = planner::Strategy().bucket_bytes;
    *plan.mutable_strategy() = proto::ToProto(*strategy);
    planned.errors.push_back("given strategy taken unchecked and without a price: " + price.error().message());
  }
  plan.add_why(TrafficOf(plan));
  return Ok();
}

/// What becomes of a job without a strategy, and how it gets one.
void SayManaged(const v1::JobSpec& spec, v1::JobPlan& plan) {
  plan.add_why(kManaged);
  if (spec.model_config_json().empty()) return plan.add_why("the job names no model that could be planned");
  plan.add_why(fmt::format("for a strategy of your own: weft plan MODEL --cluster CLUSTER --global-batch {} --seq {} --output "
                           "json > plan.json; weft submit JOB.yaml --plan plan.json", spec.global_batch(), spec.sequence()));
}

}  // namespace

bool SumsWholeGradients(const v1::Strategy& strategy) {
  const bool whole = strategy.gradient_wire().empty() || strategy.gradient_wire() == "whole";
  return std::max({strategy.tp(), strategy.pp(), strategy.cp(), strategy.ep(), strategy.local_steps()}) <= 1 &&
         strategy.zero_stage() == 0 && whole && strategy.data_sync() != "gossip";
}

Status DecideStrategy(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options,
                      const std::stop_token& stop, PlannedJob& planned) {
  if (spec.has_given_strategy() && spec.allow_size() > 0) {
    return Fail(Code::kInvalidArgument,
                fmt::format("job \"{}\": allow beside a given strategy, expected one of them: what is given is not searched",
                            spec.job_id()));
  }
  if (spec.has_given_strategy()) return Price(spec, options, planned);
  if (!spec.model_config_json().empty()) {
    if (const Status status = Search(spec, view, options, stop, planned); !status)
      planned.errors.push_back(status.error().message());
  }
  if (!planned.plan.has_strategy()) SayManaged(spec, planned.plan);
  return Ok();
}

}  // namespace weft::controller
