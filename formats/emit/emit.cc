#include "formats/emit/emit.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/emit/writers.h"
#include "formats/one_line.h"

namespace weft::formats {
namespace {

struct Writer {
  EmitTarget target;
  std::string_view name;
  Result<std::string> (*write)(const EmitInput& input);
};
constexpr Writer kWriters[] = {
    {EmitTarget::kTorchrun, "torchrun", EmitTorchrun},    {EmitTarget::kMegatron, "megatron", EmitMegatron},
    {EmitTarget::kTorchtitan, "torchtitan", EmitTorchtitan}, {EmitTarget::kDeepSpeed, "deepspeed", EmitDeepSpeed},
    {EmitTarget::kNccl, "nccl", EmitNccl},
};

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
      return Fail(Code::kInvalidArgument, fmt::format("emit target \"{}\", expected some of torchrun, megatron, torchtitan, "
                                                      "deepspeed, nccl, split by commas", OneLine(name, 40)));
    }
    if (std::find(targets.begin(), targets.end(), found->target) != targets.end()) {
      return Fail(Code::kInvalidArgument, fmt::format("emit target \"{}\": named twice", name));
    }
    targets.push_back(found->target);
  }
  return targets;
}

std::string PlanSummary(const EmitInput& input) {
  const planner::Strategy& s = input.strategy;
  std::string text = fmt::format("weft plan: {} on {}, {} GPUs: dp={} tp={} pp={}", input.job.model.name,
                                 input.cluster.name, planner::GpuCount(s), s.dp, s.tp, s.pp);
  if (s.cp > 1) text += fmt::format(" cp={}", s.cp);
  if (s.ep > 1) text += fmt::format(" ep={}", s.ep);
  if (s.vpp > 1) text += fmt::format(" vpp={}", s.vpp);
  return OneLine(text + fmt::format(" micro_batch={} zero_stage={}", s.micro_batch, s.zero_stage), 300);
}

tl::unexpected<Error> CannotEmit(EmitTarget target, std::string_view what) {
  return Fail(Code::kInvalidArgument, fmt::format("{}: {}", EmitTargetName(target), what));
}

Result<std::string> Emit(EmitTarget target, const planner::JobSpec& job, const planner::ClusterSpec& cluster,
                         const planner::Strategy& strategy) {
  return kWriters[static_cast<size_t>(target)].write({.job = job, .cluster = cluster, .strategy = strategy});
}

}  // namespace weft::formats
