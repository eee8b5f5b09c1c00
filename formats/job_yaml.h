// JOB.yaml of `weft submit`:
//
//   version: 1
//   name: pretrain
//   model: config.json         # a Hugging Face config.json, relative to this file, or a preset's name
//   global_batch: 64           # sequences per optimizer step
//   sequence: 1024             # tokens per sequence
//   precision: bf16            # optional: fp32, tf32, fp16, bf16, fp8, fp4
//   hosts: [h1, h2]            # optional, in order
//   ranks_per_host: 1          # optional
//   gpus: 2                    # optional: hosts × ranks_per_host, or all of the cluster
//   min_gpus: 8                # optional, in place of hosts and gpus: the controller chooses hosts that no job has
//   max_gpus: 32               # optional, likewise
//   iterations: 10000          # optional: optimizer steps until the job ends
//   deadline: 2h               # optional: when it should have ended, from its submission; only with iterations and those two
//   framework: megatron        # optional
//   reshard: "on"              # optional: its ranks take another strategy while they run; only with weft-train
//   allow: [low_precision]     # optional: exchanges that change what is trained; only without a framework, or with any
//   measured_compute: 250ms    # optional: one iteration with communication off
//   strategy: {tp: 8, pp: 4}   # optional: the user's own; or
//   plan: plan.json            # what `weft plan --output json` printed, relative to this file
//   plan_index: 0              # optional: which of its plans
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "formats/given_strategy.h"
#include "formats/yaml_fields.h"
#include "planner/workload/job_spec.h"

namespace weft::formats {

struct JobFile {
  planner::JobSpec job;
  std::string model_config_json;   ///< of the model, as read or written from the preset
  std::vector<std::string> hosts;
  int64_t ranks_per_host = 1;
  int64_t min_gpus = 0, max_gpus = 0;      ///< 0: not said; either: the controller chooses the hosts
  int64_t iterations = 0;                  ///< 0: not said
  Seconds deadline{0};                     ///< from the submission; 0: none
  std::string framework;
  bool reshard = false;            ///< its ranks take another strategy while they run
  std::vector<std::string> allow;  ///< words of ParseTrainingChanges()
  std::optional<GivenStrategy> strategy;   ///< of the key "strategy"
  std::string plan;                ///< path of the file of the key "plan", not read yet; empty: none
  int64_t plan_index = 0;
  std::vector<std::string> warnings;   ///< one line each, about the model: HfModel::warnings and PositionsWarning()
};

/// Errors: kNotFound for a missing file (the job's or its model's); kInvalidArgument naming file, line, key, value and
/// what was expected.
[[nodiscard]] Result<JobFile> ReadJobYaml(const std::string& path);

/// The same from text; the model's path is relative to `folder`.
[[nodiscard]] Result<JobFile> ParseJobYaml(std::string_view text, std::string_view source_name,
                                           const std::string& folder);

/// The strategy that the job's user gives, of either key; nullopt if neither is there. Errors: as ReadPlanJson.
[[nodiscard]] Result<std::optional<GivenStrategy>> StrategyOf(const JobFile& file);

/// The words of the key "allow", rejected where ParseTrainingChanges() does not know them, or `framework` is a program: none that is
/// known exchanges so.
std::vector<std::string> ReadAllow(YamlFields& fields, std::string_view framework);

/// "bf16", "fp32" … (planner/workload/precision.h). Errors: kInvalidArgument naming all.
[[nodiscard]] Result<planner::Precision> ParsePrecision(std::string_view text);

}  // namespace weft::formats
