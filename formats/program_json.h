// A step program (planner/tasks/step_program.h) as JSON: what `weft plan --program` writes and weft-train reads. Fields that have
// their default are left out.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "planner/planner.h"

namespace weft::formats {

/// Largest file of a program, in bytes: what ReadFile() takes.
inline constexpr size_t kMostProgramBytes = size_t{16} << 20;

/// One line per list, ending in a newline.
std::string WriteProgramJson(const planner::StepProgram& program);

/// Reads what WriteProgramJson() wrote, as hostile input. The program is checked: CheckProgram(). Errors: kInvalidArgument naming
/// `source`, key, value and what was expected; another version.
[[nodiscard]] Result<planner::StepProgram> ParseProgramJson(std::string_view text, std::string_view source);

/// The same from a file. Errors: as ReadFile and ParseProgramJson.
[[nodiscard]] Result<planner::StepProgram> ReadProgramJson(const std::string& path);

}  // namespace weft::formats
