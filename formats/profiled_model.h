// A config.json with the account of `weft profile` beside the model's own keys:
//
//   {"model_type": "gpt2", …,
//    "weft_profile": {"version": 1, "source": "gpt.pt", "input": [1, 128], "element_bytes": 4,
//      "parameters": 124439808, "parameter_bytes": …, "forward_flops": …, "activation_bytes": …, "assumptions": ["…"],
//      "groups": [{"name": "h.#", "count": 12, "activation_bytes": …,
//                  "operators": [{"name": "attn.c_attn", "type": "linear", "parameters": …, "parameter_bytes": …,
//                                 "forward_flops": …, "output_bytes": …}]}]}}
//
// The model is planned from its own keys. ParseHfModel reads the account's number of parameters, which has to be theirs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/workload/model_spec.h"
#include "planner/workload/operator_list.h"

namespace weft::formats {

inline constexpr std::string_view kProfileKey = "weft_profile";

/// Requires: a spec that WriteHfConfig takes.
std::string WriteProfiledModel(const planner::ModelSpec& model, const planner::OperatorProfile& profile);

/// What `weft profile` says of it on stderr: sizes, then what is assumed; one line each.
std::vector<std::string> ProfileLines(const planner::ModelSpec& model, const planner::OperatorProfile& profile);

/// Writes `text` to `path`, or to stdout where that is empty. Errors: kUnavailable naming the path.
[[nodiscard]] Status WriteModelFile(const std::string& path, const std::string& text);

/// A shape such as "1x3x224x224": up to 8 sizes, each from 1 to 2²⁴, at most 2³¹ elements. Errors: kInvalidArgument, without the
/// option.
[[nodiscard]] Result<std::vector<int64_t>> ParseShape(std::string_view text);

/// What is wrong with the account in `config`, a file's object, if it has one: a line without the file's name.
std::optional<std::string> ProfileWarning(const nlohmann::json& config, const planner::ModelSpec& model);

}  // namespace weft::formats
