// A strategy that a user gives: the variables of planner/parallelism/variables.h in a map of YAML, or a plan out of what
// `weft plan --output json` printed. Both are read as hostile input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "formats/yaml_fields.h"
#include "planner/planner.h"

namespace weft::formats {

struct GivenStrategy {
  planner::Strategy strategy;
  std::string source;       ///< one short line for people: "plan.json, plan 0"
};

/// Largest file of plans, in bytes.
inline constexpr size_t kMostPlanBytes = size_t{1} << 20;
/// Largest index of a plan in it.
inline constexpr int64_t kMostPlanIndex = 9999;

/// The strategy of plan `index` in the file at `path`. Errors: as ReadFile and ParsePlanJson.
[[nodiscard]] Result<GivenStrategy> ReadPlanJson(const std::string& path, int64_t index);

/// The same from text. Errors: kInvalidArgument naming `source`, key, value and what was expected: malformed JSON, more than
/// kMostPlanBytes, no such plan, a plan with a strategy for each group of machines, an unknown variable or value.
[[nodiscard]] Result<planner::Strategy> ParsePlanJson(std::string_view text, std::string_view source, int64_t index);

/// The map at `key` of a YAML file; what it does not name has its default. Errors: kInvalidArgument as "SOURCE:LINE: key …".
[[nodiscard]] Result<planner::Strategy> ReadStrategyMap(const YamlValue& map, std::string_view source, std::string_view key);

}  // namespace weft::formats
