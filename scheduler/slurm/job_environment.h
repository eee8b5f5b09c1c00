// A job as Slurm's prolog and epilog programs see it: in environment variables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "scheduler/slurm/job_options.h"

namespace weft::slurm {

struct HookJob {
  std::string id;
  std::string name;
  std::optional<uint32_t> user;    ///< on the hosts
  std::vector<std::string> hosts;  ///< in Slurm's order
  std::string model_json;          ///< empty: the job did not ask for Weft
  int64_t batch = 0;               ///< sequences per optimizer step, 0: not given
  int64_t sequence = 0;            ///< tokens per sequence, 0: not given
  StrategyValues strategy;         ///< of the user's own plan; empty: none
  std::string plan;                ///< the name of its file
  std::string framework;           ///< empty: not given
};

/// Value of a variable, nullptr if it is not set: getenv, or a test's table.
using GetVariable = std::function<const char*(const char* name)>;

/// Reads the job of PrologSlurmctld or EpilogSlurmctld. Errors: kInvalidArgument naming the variable.
[[nodiscard]] Result<HookJob> ReadHookJob(const GetVariable& get);

}  // namespace weft::slurm
