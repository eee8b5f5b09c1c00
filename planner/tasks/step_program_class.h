// Of CheckProgram: the list of one class of ranks, instruction by instruction.
#pragma once

#include <cstddef>

#include "common/result.h"
#include "planner/tasks/step_program.h"

namespace weft::planner::inline tasks {

/// Whether the class's units cover its blocks, values are written once and before they are read, shapes fit, and every part has its
/// parameters. Requires: sizes, ranks and communicators of the program were checked. Errors: kInvalidArgument naming class and
/// instruction. Complexity: linear in its list.
[[nodiscard]] Status CheckClass(const StepProgram& program, size_t index);

}  // namespace weft::planner::tasks
