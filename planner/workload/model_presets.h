// Models by name: those whose papers publish measurements. Sources in the .cc file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/workload/model_spec.h"

namespace weft::planner::inline workload {

/// "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3-175b", "llama3-8b", "llama3-70b", "llama3-405b", "mixtral-8x7b",
/// "mixtral-8x22b", "deepseek-v3", "megatron-1.7b" … "megatron-1008b"; nullopt if unknown.
std::optional<ModelSpec> FindModelPreset(std::string_view name);
/// The names that FindModelPreset knows, for messages: "gpt2, gpt2-medium, …".
std::string ModelPresetNames();

}  // namespace weft::planner::workload
