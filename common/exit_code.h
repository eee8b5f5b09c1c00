// Exit statuses of every program: a contract that scripts depend on.
#pragma once

#include "common/result.h"

namespace weft {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,
  kExitUsage = 2,       ///< the command line or an input file is wrong
  kExitInfeasible = 3,  ///< the question was answered: no plan exists
};

/// kExitUsage for errors that the caller mends by changing the call (invalid argument, missing file), else kExitFailed.
inline ExitCode ExitCodeOf(const Error& error) {
  return error.code() == Code::kInvalidArgument || error.code() == Code::kNotFound ? kExitUsage : kExitFailed;
}

}  // namespace weft
