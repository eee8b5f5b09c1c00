// The options that Weft adds to sbatch, salloc and srun, and the checks of their values that run where the user can see
// the message. Free of Slurm's headers, so that the SPANK plugin, the prolog and the tests share them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace weft::slurm {

inline constexpr char kPluginName[] = "weft";
inline constexpr char kModelOption[] = "weft-model";
inline constexpr char kBatchOption[] = "weft-batch";
inline constexpr char kSequenceOption[] = "weft-seq";

/// The model's text travels with the job under this name (Slurm puts SPANK_ in front for prolog and epilog): the
/// submitting user has read the file, so the prolog opens no path that a user names and needs no shared file system.
inline constexpr char kModelTextVariable[] = "WEFT_MODEL_JSON";

/// Largest model file in bytes; the text must fit into one environment variable (128 KiB on Linux).
inline constexpr size_t kMaxModelBytes = 64 * 1024;

/// A positive count. Errors: kInvalidArgument naming option and text.
[[nodiscard]] Result<int64_t> ParseCount(std::string_view option, std::string_view text);

/// Text of the model file: a JSON object as far as its first and last characters tell.
/// Errors: kNotFound or the like when it cannot be read, kInvalidArgument when it is no such text or too long.
[[nodiscard]] Result<std::string> ReadModelFile(const std::string& path);

}  // namespace weft::slurm
