#include "controller/job_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>

#include "common/launch_variable.h"
#include "common/parse_units.h"
#include "controller/job_collectives.h"
#include "controller/job_hosts.h"
#include "controller/job_launch.h"
#include "controller/job_strategy.h"
#include "netplugin/abi/collective_table.h"

namespace weft::controller {
namespace {

constexpr int64_t kMostRanksOnFabric = 64;  // of which all pairs are looked at within a hook's patience
constexpr size_t kMostHostName = 255, kMostNamed = 16;
constexpr size_t kMaxOrderText = 4096;  // half of what an agent hands to a hook

bool ValidText(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// What the planner's work and the plan's size follow.
Status CheckSizes(const v1::JobSpec& spec) {
  const int64_t ranks = spec.hosts_size() * std::max<int64_t>(spec.ranks_per_host(), 1);
  const std::tuple<const char*, int64_t, int64_t> sizes[] = {
      {"hosts", spec.hosts_size(), kMostJobHosts},
      {"hosts x ranks_per_host", ranks, kMostJobRanks},
      {"model_config_json: bytes", static_cast<int64_t>(spec.model_config_json().size()), kMostModelBytes}};
  for (const auto& [name, value, most] : sizes) {
    if (value <= most) continue;
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": {}: {}, expected at most {}", spec.job_id(), name, value, most));
  }
  return Ok();
}

/// When the job should have ended.
Status CheckEnd(const v1::JobSpec& spec) {
  constexpr double kLongestDeadline = 1e9;
  if (!(spec.deadline_s() >= 0) || spec.deadline_s() > kLongestDeadline) {
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": deadline_s: {}, expected 0 to {:.0f}", spec.job_id(),
                                                    spec.deadline_s(), kLongestDeadline));
  }
  if (spec.deadline_s() > 0 && (spec.iterations() == 0 || !AsksForHosts(spec))) {
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": deadline_s: expected only with iterations, and with min_gpus or max_gpus",
                                                    spec.job_id()));
  }
  return Ok();
}

/// Whose ranks take another strategy while they run.
Status CheckReshard(const v1::JobSpec& spec) {
  if (!spec.reshard()) return Ok();
  if (planner::ParseFramework(spec.framework()) != planner::Framework::kWeftTrain) {
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": reshard with framework \"{}\", expected weft-train: no other program "
                                                    "changes its strategy while it runs", spec.job_id(), spec.framework()));
  }
  if (!spec.has_given_strategy() && spec.allow_size() == 0) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": reshard beside a given strategy or allow, expected one of them: only a "
                                                  "strategy that was searched is changed", spec.job_id()));
}

Status CheckSpec(const v1::JobSpec& spec) {
  if (spec.job_id().empty() || spec.job_id().size() > 63 || !ValidText(spec.job_id())) {
    return Fail(Code::kInvalidArgument,
                fmt::format("job_id: \"{}\": expected 1 to 63 printable characters", spec.job_id()));
  }
  const std::pair<const char*, int64_t> numbers[] = {{"global_batch", spec.global_batch()},
                                                     {"sequence", spec.sequence()},
                                                     {"gpus", spec.gpus()},
                                                     {"min_gpus", spec.min_gpus()},
                                                     {"max_gpus", spec.max_gpus()},
                                                     {"iterations", spec.iterations()},
                                                     {"ranks_per_host", spec.ranks_per_host()}};
  for (const auto& [name, value] : numbers) {
    if (value < 0 || value > int64_t{1} << 40) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("job \"{}\": {}: {} is out of range, expected 0 or more", spec.job_id(), name, value));
    }
  }
  if (spec.ranks_per_host() > 1024) {
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": ranks_per_host: {}, expected at most 1024",
                                                    spec.job_id(), spec.ranks_per_host()));
  }
  if (spec.framework().size() > 63 || !ValidText(spec.framework())) {
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": framework: {} characters, expected at most 63 printable ones",
                                                    spec.job_id(), spec.framework().size()));
  }
  WEFT_RETURN_IF_ERROR(CheckReshard(spec));
  WEFT_RETURN_IF_ERROR(CheckEnd(spec));
  WEFT_RETURN_IF_ERROR(CheckSizes(spec));
  std::set<std::string> seen;
  for (const std::string& host : spec.hosts()) {
    if (host.empty() || host.size() > kMostHostName || !ValidText(host) || !seen.insert(host).second) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("job \"{}\": hosts: \"{}\" is empty, named twice or longer than {} characters", spec.job_id(),
                              host.substr(0, kMostHostName), kMostHostName));
    }
  }
  return Ok();
}

/// What a job runs on, as far as its launch goes.
struct Runner {
  bool named = false;       ///< something that is known
  bool own = false;         ///< weft-train without a plan, or a replay of it: the bucket of a plan is theirs
  bool nccl = false;        ///< a program over NCCL
};

Runner RunnerOf(const std::string& framework) {
  const auto known = planner::ParseFramework(framework);
  const bool own = framework == "weft-train-ddp" || framework == "weft-replay";
  const bool any = framework.empty() || framework == "any";
  return {.named = known.has_value() || own || any || framework == "torchrun",
          .own = own || any,
          .nccl = framework == "torchrun" || (known.has_value() && !own && !any && known != planner::Framework::kWeftTrain)};
}

void FillLaunch(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options,
                v1::JobPlan& plan) {
  auto& environment = *plan.mutable_environment();
  environment["NCCL_NET_PLUGIN"] = "weft";
  environment["WEFT_JOB_ID"] = spec.job_id();
  environment["WEFT_RUN_DIR"] = options.run_dir;
  if (spec.reshard()) environment[kReshardVariable] = "on";
  std::vector<std::string> missing;
  for (const std::string& host : spec.hosts()) {
    if (!view.connected.contains(host)) missing.push_back(host);
  }
  // With NCCL_NET set, a rank that cannot load the plugin fails the job; without it, NCCL falls back by itself.
  if (spec.hosts_size() > 0 && missing.empty()) {
    environment["NCCL_NET"] = "Weft";
  } else {
    const size_t more = missing.size() - std::min(missing.size(), kMostNamed);
    missing.resize(missing.size() - more);
    plan.add_why(missing.empty() ? std::string("NCCL_NET is not set: the job's hosts are not known")
                                 : fmt::format("NCCL_NET is not set: no agent on {}{}", fmt::join(missing, ", "),
                                               more > 0 ? fmt::format(" and {} more", more) : ""));
  }
  const Runner runner = RunnerOf(spec.framework());
  if (spec.framework() == "torchrun") SayLauncher(plan);
  if (!runner.named) {
    plan.add_why(fmt::format("framework \"{}\" is not known, expected weft-train, weft-train-ddp, weft-replay, torchrun, "
                             "megatron, torchtitan or deepspeed: no launch arguments and no collectives for it", spec.framework()));
  }
  if (runner.own && plan.strategy().bucket_bytes() > 0 && SumsWholeGradients(plan.strategy())) {
    plan.add_arguments("--bucket");
    plan.add_arguments(FormatBytes(Bytes(plan.strategy().bucket_bytes())));
  }
}

/// What the slowest of the job's hosts can send, if probes have shown all of them.
std::optional<BitsPerSecond> NodeRate(const v1::JobSpec& spec, const PlacementView& view) {
  std::optional<BitsPerSecond> least;
  for (const std::string& host : spec.hosts()) {
    const auto rate = view.rate.find(host);
    if (rate == view.rate.end()) return std::nullopt;
    least = least ? std::min(*least, rate->second) : rate->second;
  }
  return least;
}

/// Who sums the gradients: GPUs, CPUs or switches.
void FillReduction(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options, v1::JobPlan& plan) {
  const ReductionOptions& site = options.reduction;
  if (spec.hosts_size() < 2 || (site.switches.trees <= 0 && !(site.cpu_sum.value() > 0))) return;
  if (plan.has_strategy() && !SumsWholeGradients(plan.strategy())) {
    return plan.add_why("place of sums: not decided, the strategy splits or shards what is summed");
  }
  const int64_t gradients = plan.predicted().gradient_bytes();
  if (gradients <= 0) return plan.add_why("place of sums: not decided, what the job sums is not known");
  ReductionJob job;
  job.hosts = spec.hosts_size();
  job.ranks_per_host = static_cast<int32_t>(std::max<int64_t>(spec.ranks_per_host(), 1));
  job.nccl = RunnerOf(spec.framework()).nccl;
  job.gradients = Bytes(gradients);
  job.cluster = options.cluster;
  job.node_rate = NodeRate(spec, view);
  job.trees_held = static_cast<int32_t>(view.tree_jobs.size() - view.tree_jobs.count(spec.job_id()));
  const Result<ReductionDecision> decision = DecideReduction(job, site);
  if (!decision) return plan.add_why("place of sums: not decided: " + decision.error().message());
  for (const std::string& why : decision->why) plan.add_why(why);
  if (decision->has_switches) (*plan.mutable_environment())[kTreeVariable] = std::string(decision->tree ? "1" : "0");
}

/// The table of the communicator over all ranks, in the plan and in the launch environment.
void FillCollectives(const v1::JobSpec& spec, const std::vector<std::string>& ordered, const PlacementView& view,
                     const JobPlannerOptions& options, v1::JobPlan& plan) {
  const bool own = spec.framework() == "weft-train-ddp";
  if (spec.hosts_size() < 2 || (!own && !RunnerOf(spec.framework()).nccl)) return;
  CollectiveJob job{.ranks = spec.hosts_size() * std::max<int64_t>(spec.ranks_per_host(), 1), .nodes = spec.hosts_size(),
                    .own_runtime = own, .cluster = options.cluster, .node_rate = NodeRate(spec, view)};
  std::optional<RankFabric> fabric;
  if (own && job.ranks <= kMostRanksOnFabric) {
    Result<RankFabric> placed = PlaceRanks(view.topology, ordered, job.ranks / job.nodes, options.cluster);
    if (placed) fabric = std::move(*placed);
    else plan.add_why("levels of collectives: chosen on equal links: " + placed.error().message());
  }
  if (fabric) job.fabric = &*fabric;
  auto choices = ChooseCollectives(job);
  if (!choices && job.fabric != nullptr) {  // a dead link, or islands that no probe has joined yet
    plan.add_why("levels of collectives: chosen on equal links: " + choices.error().message());
    job.fabric = nullptr;
    choices = ChooseCollectives(job);
  }
  if (!choices) return plan.add_why("no collective table: " + choices.error().message());
  if (choices->empty()) return plan.add_why("no collective table: the library's own choices are within 10 % of the best");
  const Result<std::string> text = CollectiveTableText(*choices);
  if (!text) return plan.add_why("no collective table: " + text.error().message());
  for (const v1::CollectiveChoice& choice : *choices) *plan.add_collectives() = choice;
  (*plan.mutable_environment())[abi::kCollectivesVariable] = *text;
}

/// What the launcher is told of the order, if it is not the one that was given.
void FillOrder(const std::vector<std::string>& order, const v1::JobSpec& spec, const PlacementView& view, v1::JobPlan& plan) {
  const std::vector<std::string> given(spec.hosts().begin(), spec.hosts().end());
  if (order == given) return;
  plan.add_why(order == OrderHosts(given, view) ? "ranks are ordered so that the ring crosses between leaves least often"
                                                : "ranks are ordered so that those of one part of the fabric follow each other");
  // For the hooks: a batch system has an order of its own, which holds where this is not said.
  const std::string text = fmt::format("{}", fmt::join(order, ","));
  if (text.size() <= kMaxOrderText) {
    (*plan.mutable_environment())["WEFT_HOST_ORDER"] = text;
  } else {
    plan.add_why("the order of ranks is too long for the launch environment: the batch system's own holds");
  }
}

}  // namespace

void FillJobLaunch(const std::vector<std::string>& order, const v1::JobSpec& spec, const PlacementView& view,
                   const JobPlannerOptions& options, v1::JobPlan& plan) {
  for (const std::string& host : order) {
    for (int64_t i = 0; i < std::max<int64_t>(spec.ranks_per_host(), 1); ++i) plan.add_rank_hosts(host);
  }
  FillLaunch(spec, view, options, plan);
  FillReduction(spec, view, options, plan);
  FillCollectives(spec, order, view, options, plan);
  FillOrder(order, spec, view, plan);
  FillHandover(plan);
}

Result<PlannedJob> PlanJob(const v1::JobSpec& asked, const PlacementView& view, const JobPlannerOptions& options,
                           const std::stop_token& stop) {
  WEFT_RETURN_IF_ERROR(CheckSpec(asked));
  PlannedJob planned{.plan = {}, .spec = asked, .order = {}, .errors = {}};
  if (AsksForHosts(asked)) {
    WEFT_ASSIGN_OR_RETURN(planned, GiveHosts(asked, view, options, stop));
  } else {
    planned.order = OrderHosts({asked.hosts().begin(), asked.hosts().end()}, view);
    WEFT_RETURN_IF_ERROR(DecideStrategy(asked, view, options, stop, planned));
  }
  FillJobLaunch(planned.order, planned.spec, view, options, planned.plan);
  return planned;
}

}  // namespace weft::controller
