// What the writers of one target each share. Internal to formats/emit/.
#pragma once

#include <string>
#include <string_view>

#include "formats/emit/emit.h"

namespace weft::formats {

/// What one writer reads.
struct EmitInput {
  const planner::JobSpec& job;
  const planner::ClusterSpec& cluster;
  const planner::Strategy& strategy;
  std::span<const planner::StageOperators> operators = {};
};

/// "weft plan: llama3-70b on dgx-h100, 64 GPUs: dp=2 tp=8 …", one printable line for a comment.
std::string PlanSummary(const EmitInput& input);

/// What each module does under sharding=osdp, as comment lines; "" otherwise.
std::string OperatorComments(const EmitInput& input);

/// kInvalidArgument, "TARGET: …".
tl::unexpected<Error> CannotEmit(EmitTarget target, std::string_view what);

[[nodiscard]] Result<std::string> EmitTorchrun(const EmitInput& input);
[[nodiscard]] Result<std::string> EmitMegatron(const EmitInput& input);
[[nodiscard]] Result<std::string> EmitTorchtitan(const EmitInput& input);
[[nodiscard]] Result<std::string> EmitDeepSpeed(const EmitInput& input);
[[nodiscard]] Result<std::string> EmitNccl(const EmitInput& input);

}  // namespace weft::formats
