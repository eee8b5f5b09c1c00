// `weft plan`: the fastest parallel configuration that fits, without any daemon.
#pragma once

#include <cstdint>
#include <string>

namespace weft::cli {

struct PlanCommandOptions {
  std::string model;              ///< config.json or preset
  std::string cluster;            ///< "dgx-a100:4" or a YAML file
  std::string calibration;        ///< file of constants that `weft calibrate` measured; empty: the cluster's, or those compiled in
  int64_t global_batch = 0;       ///< sequences per optimizer step
  int64_t sequence = 0;           ///< tokens
  int64_t gpus = 0;               ///< 0: all of the cluster
  std::string precision = "bf16";
  int top = 1;
  std::string fix;                ///< "tp=8,micro_batch=1,recompute=full"
  std::string allow;              ///< "low_precision,local_steps,gossip"
  std::string framework;          ///< "any", "megatron", …; empty: what `emit` needs, else the fastest of those known
  double risk = 0.05;             ///< of running out of memory
  std::string emit;               ///< "torchrun,megatron,…"
  std::string emit_dir;           ///< folder for the best plan's files
  int threads = 0;                ///< 0: one per core
  bool exhaustive = false;        ///< price every strategy
  double front = 0;               ///< > 0: also the front of time and memory, up to (1 + front) · best time
  std::string program;            ///< file for the best plan's step program, which weft-train executes
  std::string program_type = "fp32";  ///< of it: fp32, or fp64 for tests of equality
  std::string trace;              ///< file for the best plan's iteration, as a Chrome trace
  std::string output = "table";   ///< or "json"
};

/// Prints the plans. Returns the exit status: kExitInfeasible with the reasons when nothing fits.
int RunPlan(const PlanCommandOptions& options);

}  // namespace weft::cli
