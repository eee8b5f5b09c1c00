#include "formats/emit/emit.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/emit/writers.h"
#include "formats/one_line.h"
#include "planner/parallelism/partition.h"

namespace weft::formats {
namespace {

using planner::Framework;

struct Writer {
  EmitTarget target;
  std::string_view name;
  Result<std::string> (*write)(const EmitRequest& request);
  Framework newest, older;  ///< the program whose files these are; kAny: nobody's
};
constexpr Writer kWriters[] = {
    {EmitTarget::kTorchrun, "torchrun", EmitTorchrun, Framework::kAny, Framework::kAny},
    {EmitTarget::kMegatron, "megatron", EmitMegatron, Framework::kMegatron, Framework::kMegatron015},
    {EmitTarget::kTorchtitan, "torchtitan", EmitTorchtitan, Framework::kTorchtitan, Framework::kTorchtitan020},
    {EmitTarget::kDeepSpeed, "deepspeed", EmitDeepSpeed, Framework::kDeepspeed, Framework::kDeepspeed018},
    {EmitTarget::kNccl, "nccl", EmitNccl, Framework::kAny, Framework::kAny},
    {EmitTarget::kEnvironment, "environment", EmitEnvironment, Framework::kAny, Framework::kAny},
    {EmitTarget::kMegatronBridge, "megatron-bridge", EmitMegatronBridge, Framework::kMegatronBridge,
     Framework::kMegatronBridge04},
    {EmitTarget::kAccelerate, "accelerate", EmitAccelerate, Framework::kAccelerate, Framework::kAccelerate110},
    {EmitTarget::kWeftTrain, "weft-train", EmitWeftTrain, Framework::kWeftTrain, Framework::kWeftTrain},
};

std::string TargetNames() {
  std::string names;
  for (const Writer& writer : kWriters) names += fmt::format("{}{}", names.empty() ? "" : ", ", writer.name);
  return names;
}

}  // namespace

std::string_view EmitTargetName(EmitTarget target) { return kWriters[static_cast<size_t>(target)].name; }

Result<std::vector<EmitTarget>> ParseEmitTargets(std::string_view text) {
  std::vector<EmitTarget> targets;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    more = comma != std::string_view::npos;
    const std::string_view name = text.substr(0, comma);
    if (more) text.remove_prefix(comma + 1);
    const auto* found = std::find_if(std::begin(kWriters), std::end(kWriters),
                                     [&](const Writer& writer) { return writer.name == name; });
    if (found == std::end(kWriters)) {
      return Fail(Code::kInvalidArgument, fmt::format("emit target \"{}\", expected some of {}, split by commas",
                                                      OneLine(name, 40), TargetNames()));
    }
    if (std::find(targets.begin(), targets.end(), found->target) != targets.end()) {
      return Fail(Code::kInvalidArgument, fmt::format("emit target \"{}\": named twice", name));
    }
    targets.push_back(found->target);
  }
  return targets;
}

std::string PlanSummary(const EmitRequest& request) {
  const planner::Strategy& s = request.strategy;
  std::string text = fmt::format("weft plan: {} on {}, {} GPUs: dp={} tp={} pp={}", request.job.model.name,
                                 request.cluster.name, planner::GpuCount(s), s.dp, s.tp, s.pp);
  if (s.cp > 1) text += fmt::format(" cp={}", s.cp);
  if (s.ep > 1) text += fmt::format(" ep={}", s.ep);
  if (s.vpp > 1) text += fmt::format(" vpp={}", s.vpp);
  return OneLine(text + fmt::format(" micro_batch={} zero_stage={}{}", s.micro_batch, s.zero_stage,
                                     s.sharding == planner::Sharding::kOperator ? " sharding=osdp" : ""), 300);
}

namespace {

/// "reshard_after_forward=True", or what comes nearest to it.
std::string ModulePolicy(const planner::OperatorDecision& d) {
  if (d.slices > 1) {
    return fmt::format("reshard_after_forward=True  # planned: {} of {} slices; FSDP2 has no slices, so more is sharded",
                       d.sharded, d.slices);
  }
  if (d.sharded > 0) return "reshard_after_forward=True";
  return d.kept ? "reshard_after_forward=False" : "mesh with 1 shard: replicated";
}

}  // namespace

std::string OperatorComments(const EmitRequest& request) {
  if (request.operators.empty()) return "";
  const planner::Strategy& s = request.strategy;
  const planner::OperatorCount count = planner::CountOperators(request.operators);
  std::string text = fmt::format(
      "# Sharding per operator: fully_shard() of FSDP2 on each module as follows, then on the root; {} replicated, {} kept,\n"
      "# {} sharded, {} in slices. No option of a configuration file says this: it goes where the model is parallelised.\n",
      count.replicated, count.kept, count.sharded, count.split);
  int64_t stage_number = 0;
  for (const planner::StageOperators& stage : request.operators) {
    // With chunks a stage's layers do not lie together: they are counted, not named.
    int64_t layer = s.vpp > 1 ? 0 : planner::StageBegin(request.job.model.layers, s.pp, stage_number);
    if (s.pp > 1) text += fmt::format("# stage {}{}\n", stage_number, s.vpp > 1 ? ", its layers counted from 0" : "");
    ++stage_number;
    if (stage.embedding) text += "#   tok_embeddings: reshard_after_forward=True\n";
    for (const planner::OperatorRun& run : stage.runs) {
      const std::string layers = run.layers > 1 ? fmt::format("{}-{}", layer, layer + run.layers - 1) : fmt::format("{}", layer);
      text += fmt::format("#   layers.{}.attention: {}\n#   layers.{}.{}: {}\n", layers, ModulePolicy(run.attention), layers,
                          run.moe ? "moe.experts" : "feed_forward", ModulePolicy(run.mlp));
      layer += run.layers;
    }
    if (stage.head) {
      text += fmt::format("#   output: {}\n",
                          ModulePolicy({.slices = stage.head_slices, .sharded = stage.head_slices, .kept = false}));
    }
  }
  return text;
}

tl::unexpected<Error> CannotEmit(EmitTarget target, std::string_view what) {
  return Fail(Code::kInvalidArgument, fmt::format("{}: {}", EmitTargetName(target), what));
}

std::optional<EmitTarget> EmitTargetOf(Framework framework) {
  for (const Writer& writer : kWriters) {
    if (writer.newest != Framework::kAny && (writer.newest == framework || writer.older == framework)) return writer.target;
  }
  return std::nullopt;
}

Framework FrameworkOf(EmitTarget target, const EmitRequest& request) {
  const Writer& writer = kWriters[static_cast<size_t>(target)];
  return request.framework == writer.older ? writer.older : writer.newest;
}

Result<std::string> Emit(EmitTarget target, const EmitRequest& request) {
  const Framework framework = FrameworkOf(target, request);
  const planner::Strategy& s = request.strategy;
  // torchrun starts a script, which is told nothing of it.
  const bool told = target != EmitTarget::kTorchrun && planner::Describe(request.framework).changes_training;
  if (!told && (planner::ChangesTraining(s) || s.data_sync == planner::DataSync::kSwitch)) {
    return CannotEmit(target, fmt::format("gradient_wire={} local_steps={} data_sync={}: no program's file says these, plan without --allow",
                                          planner::GradientWireName(s.gradient_wire), s.local_steps, planner::DataSyncName(s.data_sync)));
  }
  if (framework != Framework::kAny) {
    const auto why = planner::WhyCannotRun(framework, {request.job, request.cluster, request.strategy});
    if (why) return CannotEmit(target, *why);
  }
  return kWriters[static_cast<size_t>(target)].write(request);
}

}  // namespace weft::formats
