// A plan as the files and command lines that training frameworks take: what `weft plan --emit` prints. Only what the plan
// decides is written; data, learning rate and checkpoints are the user's. A strategy that the framework cannot run is an
// error that says which part.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/cluster/cluster_spec.h"
#include "planner/parallelism/operator_sharding.h"
#include "planner/parallelism/strategy.h"
#include "planner/workload/job_spec.h"

namespace weft::formats {

enum class EmitTarget {
  kTorchrun,    ///< a shell line that starts one process per GPU; to be run once on every host
  kMegatron,    ///< arguments of Megatron-LM's pretrain_gpt.py, one option a line
  kTorchtitan,  ///< TOML of torchtitan 0.2
  kDeepSpeed,   ///< JSON configuration of DeepSpeed
  kNccl,        ///< KEY=VALUE lines as /etc/nccl.conf or NCCL_CONF_FILE take them
};

/// "torchrun", "megatron", "torchtitan", "deepspeed", "nccl".
std::string_view EmitTargetName(EmitTarget target);

/// Names split by commas, in order. Errors: kInvalidArgument naming an unknown or repeated one and what was expected.
[[nodiscard]] Result<std::vector<EmitTarget>> ParseEmitTargets(std::string_view text);

/// The text for `target`, ending in a newline. Requires: a strategy that is legal for job and cluster.
/// `operators`: of a strategy with sharding=osdp, what JobPlan::operators says; torchrun and torchtitan list it by module
/// for FSDP2, and say what FSDP2 lacks. Errors: kInvalidArgument for what the target cannot run: "deepspeed: schedule
/// zb-v, expected 1f1b".
[[nodiscard]] Result<std::string> Emit(EmitTarget target, const planner::JobSpec& job, const planner::ClusterSpec& cluster,
                                       const planner::Strategy& strategy,
                                       std::span<const planner::StageOperators> operators = {});

}  // namespace weft::formats
