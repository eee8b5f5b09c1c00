// `weft profile`: a model's operators with FLOPs, parameters and bytes, as a MODEL file that `weft plan` takes. A config.json and a
// preset are counted here; a TorchScript file is run by weft-torch, beside this program, which has LibTorch.
#pragma once

#include <cstdint>
#include <string>

namespace weft::cli {

struct ProfileCommandOptions {
  std::string model;               ///< TorchScript, config.json or preset
  int64_t batch = 1;               ///< of the example input, and of the account
  int64_t sequence = 0;            ///< tokens; 0: 128, or what the model's input is
  std::string input;               ///< TorchScript: shape of real numbers in place of tokens
  std::string precision = "fp32";  ///< of a config.json's bytes
  std::string out;                 ///< file; empty: stdout
};

/// Returns the exit status; the reason of a failure is one line on stderr.
int RunProfile(const ProfileCommandOptions& options);

}  // namespace weft::cli
