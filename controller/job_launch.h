// How a planned job is started under its framework: the arguments, files and environment that `weft plan --emit-dir` writes
// (formats/emit/), in the plan and in the launch environment, so that a batch script has them too:
//
//   srun python pretrain_gpt.py $WEFT_ARGUMENTS --data-path ...
//   printf '%b' "$WEFT_FILE_DEEPSPEED_JSON" > deepspeed.json
//
// And what neither arguments nor environment can enforce, in words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/planner.h"
#include "proto/job.pb.h"

namespace weft::controller {

/// And the file's name in capitals: its text, with "\n" for line ends and "\\" for "\", as `printf %b` takes it.
inline constexpr char kFilePrefix[] = "WEFT_FILE_";

/// What a strategy is launched by.
struct LaunchRequest {
  const planner::JobSpec& job;        ///< gpus set
  const planner::ClusterSpec& cluster;
  const planner::JobPlan& plan;       ///< its framework and strategy
};

/// Arguments, files and the program's variables, into `plan`; in its reasons what is enforced by them and what is not. A framework without
/// files (`any`, weft-train-ddp) gets a reason only where one helps.
void FillProgram(const LaunchRequest& request, v1::JobPlan& plan);

/// What a launcher that starts any script enforces of a plan, and what it does not.
void SayLauncher(v1::JobPlan& plan);

/// Arguments and files of `plan` into its environment, as far as an agent can hand it on to a batch system's hook; what does not fit, or
/// cannot be said there, is named in its reasons. The last to be called: it leaves room for all else.
void FillHandover(v1::JobPlan& plan);

/// The words of a shell line: parted by blanks, double quotes taken off.
std::vector<std::string> ShellWords(std::string_view text);

}  // namespace weft::controller
