// A plan as the files and command lines that training frameworks take: what `weft plan --emit` and `--emit-dir` write. Only
// what the plan decides and what the model computes is written; data, learning rate and checkpoints are the user's. What a
// program cannot run is an error that says which part; the rules are those of planner/parallelism/framework.h.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/collectives/algorithm.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/framework.h"
#include "planner/parallelism/operator_sharding.h"
#include "planner/parallelism/strategy.h"
#include "planner/workload/job_spec.h"

namespace weft::formats {

enum class EmitTarget {
  kTorchrun,        ///< a shell line that starts one process per GPU; to be run once on every host
  kMegatron,        ///< arguments of Megatron-LM's pretrain_gpt.py, one option a line, values quoted for a shell
  kTorchtitan,      ///< TOML
  kDeepSpeed,       ///< JSON configuration
  kNccl,            ///< KEY=VALUE lines as /etc/nccl.conf or NCCL_CONF_FILE take them
  kEnvironment,     ///< KEY=VALUE lines that every rank needs besides
  kMegatronBridge,  ///< overrides of a recipe, one a line
  kAccelerate,      ///< YAML for `accelerate launch --config_file`
  kWeftTrain,       ///< arguments of weft-train, one option a line: formats/train_plan.h
};

/// What all writers read. Requires: a strategy that is legal for job and cluster; job.gpus set.
struct EmitRequest {
  const planner::JobSpec& job;
  const planner::ClusterSpec& cluster;
  const planner::Strategy& strategy;
  /// Whose files; one that a target does not belong to counts as the target's newest release.
  planner::Framework framework = planner::Framework::kAny;
  /// Of a strategy with sharding=osdp, what JobPlan::operators says.
  std::span<const planner::StageOperators> operators = {};
  /// How replicas sum gradients under weft-train: ProgramChoices.
  planner::AlgorithmSpec sums = {};
};

/// "torchrun", "megatron", ...
std::string_view EmitTargetName(EmitTarget target);
/// The target that writes a program's own configuration; nullopt for programs that take none.
std::optional<EmitTarget> EmitTargetOf(planner::Framework framework);

/// Names split by commas, in order. Errors: kInvalidArgument naming an unknown or repeated one and what was expected.
[[nodiscard]] Result<std::vector<EmitTarget>> ParseEmitTargets(std::string_view text);

/// The text for `target`, ending in a newline. Errors: kInvalidArgument for what the program cannot run:
/// "deepspeed: pp=4, expected 1: …".
[[nodiscard]] Result<std::string> Emit(EmitTarget target, const EmitRequest& request);

struct EmittedFile {
  std::string name;
  std::string content;
  bool executable = false;
};

/// Everything that starts the plan: the program's configuration, environment, NCCL's settings, what else the program must
/// read (config.json, a module with the model's sizes, a training script), and one script each for torchrun and Slurm that
/// start as they stand, on random data, and take the user's arguments behind. Errors: as Emit(), and for a framework without
/// files of its own.
[[nodiscard]] Result<std::vector<EmittedFile>> EmitFolder(const EmitRequest& request);

/// The names of all files that EmitFolder() may write.
std::span<const std::string_view> FolderFiles();

}  // namespace weft::formats
