#include "controller/job_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "common/parse_units.h"
#include "controller/job_collectives.h"
#include "formats/hf_config.h"
#include "netplugin/abi/collective_table.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

constexpr int64_t kMostRanksOnFabric = 64;  // of which all pairs are looked at within a hook's patience
constexpr size_t kMaxOrderText = 4096;  // half of what an agent hands to a hook

bool ValidText(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

Status CheckSpec(const v1::JobSpec& spec) {
  if (spec.job_id().empty() || spec.job_id().size() > 63 || !ValidText(spec.job_id())) {
    return Fail(Code::kInvalidArgument,
                fmt::format("job_id: \"{}\": expected 1 to 63 printable characters", spec.job_id()));
  }
  const std::pair<const char*, int64_t> numbers[] = {{"global_batch", spec.global_batch()},
                                                     {"sequence", spec.sequence()},
                                                     {"gpus", spec.gpus()},
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
  std::set<std::string> seen;
  for (const std::string& host : spec.hosts()) {
    if (host.empty() || !ValidText(host) || !seen.insert(host).second) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("job \"{}\": hosts: \"{}\" is empty or named twice", spec.job_id(), host));
    }
  }
  return Ok();
}

/// The strategy of the best plan, into `planned`; what stands in its way, into its errors.
Status PlanStrategy(const v1::JobSpec& spec, const JobPlannerOptions& options, PlannedJob& planned) {
  WEFT_ASSIGN_OR_RETURN(const planner::ModelSpec model,
                        formats::ParseHfConfig(spec.model_config_json(), "model_config_json"));
  WEFT_ASSIGN_OR_RETURN(planner::JobSpec job, proto::JobSpecFromProto(spec, model));
  planner::ClusterSpec cluster = options.cluster;
  const int64_t per_node = std::max<int64_t>(spec.ranks_per_host(), 1);
  if (spec.hosts_size() > 0) {
    cluster.nodes = spec.hosts_size();
    cluster.gpus_per_node = per_node;
    if (job.gpus == 0) job.gpus = cluster.nodes * per_node;
  }
  planner::PlanOptions plan_options;
  plan_options.node_budget = options.node_budget;
  // The launch arguments below are weft-train's: it splits the batch and nothing else.
  plan_options.framework = planner::Framework::kWeftTrain;
  // The batch system has decided how many ranks start; a plan for fewer would leave some without work.
  if (spec.hosts_size() > 0) plan_options.fix["dp"] = job.gpus;
  WEFT_ASSIGN_OR_RETURN(const planner::PlanAnswer answer, planner::Plan(job, cluster, plan_options));
  if (answer.plans.empty()) {
    for (const std::string& reason : answer.infeasible) planned.errors.push_back("no strategy fits: " + reason);
    if (planned.errors.empty()) planned.errors.push_back("no strategy fits");
    return Ok();
  }
  proto::ToProto(answer.plans.front(), planned.plan);
  if (!answer.complete) planned.plan.add_why("the search ended at its budget: a better strategy may exist");
  return Ok();
}

bool UsesNccl(const std::string& framework) {
  return framework == "torchrun" || framework == "megatron" || framework == "torchtitan" || framework == "deepspeed";
}

void FillLaunch(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options,
                v1::JobPlan& plan) {
  auto& environment = *plan.mutable_environment();
  environment["NCCL_NET_PLUGIN"] = "weft";
  environment["WEFT_JOB_ID"] = spec.job_id();
  environment["WEFT_RUN_DIR"] = options.run_dir;
  std::vector<std::string> missing;
  for (const std::string& host : spec.hosts()) {
    if (!view.connected.contains(host)) missing.push_back(host);
  }
  // With NCCL_NET set, a rank that cannot load the plugin fails the job; without it, NCCL falls back by itself.
  if (spec.hosts_size() > 0 && missing.empty()) {
    environment["NCCL_NET"] = "Weft";
  } else {
    plan.add_why(missing.empty() ? std::string("NCCL_NET is not set: the job's hosts are not known")
                                 : fmt::format("NCCL_NET is not set: no agent on {}", fmt::join(missing, ", ")));
  }
  // Other frameworks have their own names for it: weft plan --emit writes these.
  const bool ours = spec.framework().empty() || spec.framework() == "weft-train" || spec.framework() == "weft-replay";
  if (!ours && !UsesNccl(spec.framework())) {
    plan.add_why(fmt::format("framework \"{}\" is not known, expected weft-train, weft-replay, torchrun, megatron, torchtitan "
                             "or deepspeed: no launch arguments and no collectives for it", spec.framework()));
  }
  if (ours && plan.strategy().bucket_bytes() > 0) {
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
  const int64_t gradients = plan.predicted().gradient_bytes();
  if (gradients <= 0) return plan.add_why("place of sums: not decided, what the job sums is not known");
  ReductionJob job;
  job.hosts = spec.hosts_size();
  job.ranks_per_host = static_cast<int32_t>(std::max<int64_t>(spec.ranks_per_host(), 1));
  job.nccl = UsesNccl(spec.framework());
  job.gradients = Bytes(gradients);
  job.cluster = options.cluster;
  job.node_rate = NodeRate(spec, view).value_or(options.cluster.nic_rate);
  job.trees_held = static_cast<int32_t>(view.tree_jobs.size() - view.tree_jobs.count(spec.job_id()));
  const Result<ReductionDecision> decision = DecideReduction(job, site);
  if (!decision) return plan.add_why("place of sums: not decided: " + decision.error().message());
  for (const std::string& why : decision->why) plan.add_why(why);
  if (decision->has_switches) (*plan.mutable_environment())[kTreeVariable] = decision->tree ? "1" : "0";
}

/// The table of the communicator over all ranks, in the plan and in the launch environment.
void FillCollectives(const v1::JobSpec& spec, const std::vector<std::string>& ordered, const PlacementView& view,
                     const JobPlannerOptions& options, v1::JobPlan& plan) {
  const bool own = spec.framework() == "weft-train";
  if (spec.hosts_size() < 2 || (!own && !UsesNccl(spec.framework()))) return;
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

}  // namespace

Result<PlannedJob> PlanJob(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckSpec(spec));
  PlannedJob planned;
  if (!spec.model_config_json().empty()) {
    if (const Status status = PlanStrategy(spec, options, planned); !status) {
      planned.errors.push_back(status.error().message());
    }
  }
  const std::vector<std::string> given(spec.hosts().begin(), spec.hosts().end());
  const std::vector<std::string> ordered = OrderHosts(given, view);
  for (const std::string& host : ordered) {
    for (int64_t i = 0; i < std::max<int64_t>(spec.ranks_per_host(), 1); ++i) planned.plan.add_rank_hosts(host);
  }
  FillLaunch(spec, view, options, planned.plan);
  FillReduction(spec, view, options, planned.plan);
  FillCollectives(spec, ordered, view, options, planned.plan);
  if (ordered != given) {
    planned.plan.add_why("ranks are ordered so that the ring crosses between leaves least often");
    // For the hooks: a batch system has an order of its own, which holds where this is not said.
    const std::string order = fmt::format("{}", fmt::join(ordered, ","));
    if (order.size() <= kMaxOrderText) {
      (*planned.plan.mutable_environment())["WEFT_HOST_ORDER"] = order;
    } else {
      planned.plan.add_why("the order of ranks is too long for the launch environment: the batch system's own holds");
    }
  }
  return planned;
}

}  // namespace weft::controller
