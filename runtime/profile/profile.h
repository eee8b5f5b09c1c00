// weft-torch profile: a TorchScript file as a MODEL that `weft plan` takes.
#pragma once

#include <string>

#include "common/result.h"

namespace weft::runtime {

struct ProfileOptions {
  std::string file;       ///< TorchScript
  int64_t batch = 1;      ///< of an example of tokens
  int64_t sequence = 128;
  std::string input;      ///< in their place the shape of an example of real numbers, "1x3x224x224"
  std::string out;        ///< file to write; empty: stdout
};

/// Errors: TraceTorchScript's and Recognise's; kInvalidArgument naming an option; kUnavailable for a file that cannot be written.
[[nodiscard]] Status Profile(const ProfileOptions& options);

}  // namespace weft::runtime
