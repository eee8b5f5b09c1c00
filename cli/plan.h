// `weft plan`: the fastest parallel configuration that fits, without any daemon.
#pragma once

#include <cstdint>
#include <string>

namespace weft::cli {

struct PlanCommandOptions {
  std::string model;              ///< config.json or preset
  std::string cluster;            ///< "dgx-a100:4" or a YAML file
  int64_t global_batch = 0;       ///< sequences per optimizer step
  int64_t sequence = 0;           ///< tokens
  int64_t gpus = 0;               ///< 0: at most all of the cluster
  std::string precision = "bf16";
  int top = 1;
  std::string fix;                ///< "dp=8,micro_batch=1"
  std::string output = "table";   ///< or "json"
};

/// Prints the plans. Returns the exit status: kExitInfeasible with the reasons when nothing fits.
int RunPlan(const PlanCommandOptions& options);

}  // namespace weft::cli
