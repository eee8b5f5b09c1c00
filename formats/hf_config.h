// Hugging Face `config.json`: gpt2, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, deepseek_v2, deepseek_v3,
// and this project's own "weft-cnn3d" (cnn3d_config.h). Keys that costs do not depend on are ignored, as the file holds
// many; those that are read must have the right type and a possible value. Multi-token prediction modules are left out.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "planner/workload/model_spec.h"

namespace weft::formats {

/// Reads the file at `path`. Errors: kNotFound or kFailedPrecondition when it cannot be read; kInvalidArgument naming
/// file, key, value and what was expected, or line and column of malformed JSON.
[[nodiscard]] Result<planner::ModelSpec> ReadHfConfig(const std::string& path);

/// The same from text; `source_name` stands for the file in messages. The model is named by `_name_or_path`, or else by
/// its model_type. Errors: kInvalidArgument.
[[nodiscard]] Result<planner::ModelSpec> ParseHfConfig(std::string_view text, std::string_view source_name);

/// MODEL of the command line: a preset's name (planner::FindModelPreset) or a config.json file.
/// Errors: as ReadHfConfig; kNotFound names the presets.
[[nodiscard]] Result<planner::ModelSpec> ResolveModel(const std::string& name);

/// A config.json from which ParseHfConfig reads the same spec. Requires: a spec that some family can say.
std::string WriteHfConfig(const planner::ModelSpec& model);

}  // namespace weft::formats
