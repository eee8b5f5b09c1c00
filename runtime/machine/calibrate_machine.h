// weft-torch calibrate: measures this machine's processor and writes a list of constants.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace weft::runtime {

struct MachineOptions {
  int threads = 1;
  double seconds = 20;             ///< of all measurements, about
  std::vector<std::string> links;  ///< NAME=VALUE that `weft calibrate` has measured already
  std::string out;                 ///< file; empty: stdout
};

/// Constants outside of the range that predictions take are left out, with a line on stderr. Errors: MeasureMachine's; kUnavailable
/// for a file that cannot be written; kInvalidArgument for a link's constant without a value.
[[nodiscard]] Status CalibrateMachine(const MachineOptions& options);

}  // namespace weft::runtime
