// The programs of one run, one after the other: a line for each with the step at which it begins and its file, as
//
//   # step  program
//   0       dp4.json
//   50      tp2-pp2.json
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace weft::formats {

struct PlannedProgram {
  int64_t step = 0;
  std::string path;  ///< as it stands there
  friend bool operator==(const PlannedProgram&, const PlannedProgram&) = default;
};

inline constexpr size_t kMostPlannedPrograms = 1000;

/// Steps rise, from 0. Errors: kInvalidArgument naming `source`, line and what was expected.
[[nodiscard]] Result<std::vector<PlannedProgram>> ParsePlanSequence(std::string_view text, std::string_view source);

}  // namespace weft::formats
