// The plan's order of hosts as srun can take it: a host file with one line per task, for --distribution=arbitrary.
#pragma once

#include <string>

#include "common/result.h"

namespace weft::slurm {

/// The plan's variable: the job's hosts in the order of their ranks, with commas. Only there where Slurm's own order is not
/// the plan's.
inline constexpr char kHostOrder[] = "WEFT_HOST_ORDER";

/// What Slurm says about the job, as its variables have it; empty where one is not set.
struct SlurmJobShape {
  std::string nodes;           ///< SLURM_JOB_NODELIST
  std::string tasks_per_node;  ///< SLURM_NTASKS_PER_NODE
  std::string tasks;           ///< SLURM_NTASKS
};

/// The text of the host file. Tasks of a host follow each other, as in Slurm's block distribution.
/// Errors: kInvalidArgument where `order` is not an order of the job's hosts, kFailedPrecondition where the host file
/// could change more than the order: the file decides how many tasks start, so their number must be fixed by the job; and
/// scripts take the first host of Slurm's list for rank 0, so it must stay the first.
[[nodiscard]] Result<std::string> MakeHostFile(const std::string& order, const SlurmJobShape& job);

}  // namespace weft::slurm
