// What the writers of one target each share. Internal to formats/emit/.
#pragma once

#include <string>
#include <string_view>

#include "formats/emit/emit.h"

namespace weft::formats {

/// "weft plan: llama3-70b on dgx-h100, 64 GPUs: dp=2 tp=8 …", one printable line for a comment.
std::string PlanSummary(const EmitRequest& request);

/// What each module does under sharding=osdp, as comment lines; "" otherwise.
std::string OperatorComments(const EmitRequest& request);

/// kInvalidArgument, "TARGET: …".
tl::unexpected<Error> CannotEmit(EmitTarget target, std::string_view what);

/// The release whose files `target` writes: the request's framework if the target is its own, else the newest.
planner::Framework FrameworkOf(EmitTarget target, const EmitRequest& request);

[[nodiscard]] Result<std::string> EmitTorchrun(const EmitRequest& request);
[[nodiscard]] Result<std::string> EmitMegatron(const EmitRequest& request);
[[nodiscard]] Result<std::string> EmitTorchtitan(const EmitRequest& request);
[[nodiscard]] Result<std::string> EmitDeepSpeed(const EmitRequest& request);
[[nodiscard]] Result<std::string> EmitNccl(const EmitRequest& request);
[[nodiscard]] Result<std::string> EmitEnvironment(const EmitRequest& request);
[[nodiscard]] Result<std::string> EmitMegatronBridge(const EmitRequest& request);
[[nodiscard]] Result<std::string> EmitAccelerate(const EmitRequest& request);
[[nodiscard]] Result<std::string> EmitWeftTrain(const EmitRequest& request);

/// "Et*7|t*8|t*7L": decoder layers of every chunk, with embedding and loss; chunks go round the stages.
std::string MegatronLayout(const planner::ModelSpec& model, const planner::Strategy& strategy);

/// torchtitan's Python module that registers the model's sizes and numerics as flavor "weft" of its family.
std::string TorchtitanFlavor(const EmitRequest& request);

}  // namespace weft::formats
