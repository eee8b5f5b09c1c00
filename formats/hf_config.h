// Hugging Face `config.json`: gpt2, llama, mistral, qwen2, qwen3, phi3, gemma2, gemma3, the text of qwen2_vl and qwen2_5_vl;
// mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gpt_oss, llama4; bert, roberta, vit, diffusers' DiT; and this
// project's own "weft-cnn3d" (cnn3d_config.h). Every key is used, or is known not to matter, or is named in a warning. Those that
// are read must have the right type and a possible value. Of files with several towers the text model is read; multi-token
// prediction modules are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/workload/model_spec.h"

namespace weft::formats {

/// A model, and what its file says that the model does not.
struct HfModel {
  planner::ModelSpec model;
  std::vector<std::string> unused;    ///< keys neither used nor known not to matter, with their place: "rope_scaling.x"
  std::vector<std::string> warnings;  ///< one line each, beginning with the file: the unused keys, and what is left out or
                                      ///< planned otherwise than the file says
};

/// Reads the file at `path`. Errors: kNotFound or kFailedPrecondition when it cannot be read; kInvalidArgument naming
/// file, key, value and what was expected, or line and column of malformed JSON.
[[nodiscard]] Result<HfModel> ReadHfModel(const std::string& path);

/// The same from text; `source_name` stands for the file in messages. The model is named by `_name_or_path`, or else by
/// its model_type. Errors: kInvalidArgument.
[[nodiscard]] Result<HfModel> ParseHfModel(std::string_view text, std::string_view source_name);

/// MODEL of the command line: a preset's name (planner::FindModelPreset) or a config.json file.
/// Errors: as ReadHfModel; kNotFound names the presets.
[[nodiscard]] Result<HfModel> ResolveHfModel(const std::string& name);

/// The same three for callers that have nobody to warn.
[[nodiscard]] Result<planner::ModelSpec> ReadHfConfig(const std::string& path);
[[nodiscard]] Result<planner::ModelSpec> ParseHfConfig(std::string_view text, std::string_view source_name);
[[nodiscard]] Result<planner::ModelSpec> ResolveModel(const std::string& name);

/// A warning where sequences are longer than rotary positions were made for (max_position_embeddings), with the scaling that
/// is needed. Learned positions end there, which the planner refuses.
std::optional<std::string> PositionsWarning(const planner::ModelSpec& model, int64_t sequence);

/// A config.json from which ParseHfModel reads the same spec. Requires: a spec that some family can say.
std::string WriteHfConfig(const planner::ModelSpec& model);

}  // namespace weft::formats
