// The hooks' two calls of the controller. The only file of the hooks that sees gRPC.
#pragma once

#include <string>

#include "common/result.h"
#include "scheduler/slurm/hook_config.h"
#include "scheduler/slurm/job_environment.h"

namespace weft::slurm {

/// Submits the job and returns what became of it, for the log: "planned: dp=…", "managed with its own strategy: …". A job
/// that the controller still knows by this id (requeued by Slurm) is released first. Errors: the controller's; kUnavailable,
/// kDeadlineExceeded within config.timeout.
[[nodiscard]] Result<std::string> SubmitJob(const HookConfig& config, const HookJob& job);

/// Idempotent. Errors: as above.
[[nodiscard]] Status ReleaseJob(const HookConfig& config, const std::string& job_id);

}  // namespace weft::slurm
