// `weft plan`: the fastest parallel configuration that fits, on a laptop, without a daemon.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "planner/planner.h"

namespace weft::cli {

/// The command line of `weft plan`, as written; RunPlan checks it.
struct PlanArguments {
  std::string model;               ///< preset or config.json
  std::string cluster;             ///< preset:nodes or a YAML file
  int64_t global_batch = 0;        ///< sequences per optimizer step
  int64_t sequence = 0;            ///< tokens per sequence
  int64_t gpus = 0;                ///< 0: all of the cluster
  std::string precision = "bf16";  ///< bf16 or fp32
  int top = 1;                     ///< how many plans to print
  std::string fix;                 ///< "dp=8,recompute=full"
  std::string output = "table";    ///< table or json
};

/// "dp=8,recompute=full,bucket_bytes=25MiB" as PlanOptions::fix. Errors: kInvalidArgument naming the part.
[[nodiscard]] Result<std::map<std::string, int64_t>> ParseFix(const std::string& text);

/// What `--output json` prints: the keys are a contract of the command line.
std::string PlanJson(const planner::PlanAnswer& answer, Seconds taken);
/// What `--output table` prints.
std::string PlanTable(const planner::PlanAnswer& answer, Seconds taken);

/// Plans, prints to stdout, and returns the exit status: 3 with the reasons on stderr where no plan exists.
int RunPlan(const PlanArguments& arguments);

}  // namespace weft::cli
