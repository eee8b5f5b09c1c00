// The options that Weft adds to sbatch, salloc and srun, and the checks of their values that run where the user can see
// the message. Free of Slurm's headers, so that the SPANK plugin, the prolog and the tests share them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace weft::slurm {

inline constexpr char kPluginName[] = "weft";
inline constexpr char kModelOption[] = "weft-model";
inline constexpr char kBatchOption[] = "weft-batch";
inline constexpr char kSequenceOption[] = "weft-seq";
inline constexpr char kPlanOption[] = "weft-plan";
inline constexpr char kFrameworkOption[] = "weft-framework";

/// The model's text travels with the job under this name (Slurm puts SPANK_ in front for prolog and epilog): the
/// submitting user has read the file, so the prolog opens no path that a user names and needs no shared file system.
inline constexpr char kModelTextVariable[] = "WEFT_MODEL_JSON";

/// The strategy of the plan travels so too, as "tp=8,pp=4,...": its file may be large, a strategy is not.
inline constexpr char kStrategyVariable[] = "WEFT_STRATEGY";

/// Largest model file in bytes; the text must fit into one environment variable (128 KiB on Linux).
inline constexpr size_t kMaxModelBytes = 64 * 1024;

/// Largest file of plans in bytes, and the largest strategy as text.
inline constexpr size_t kMaxPlanBytes = size_t{1} << 20;
inline constexpr size_t kMaxStrategyText = 4096;

/// Variables of a strategy and their values, as `weft plan --fix` names them.
using StrategyValues = std::vector<std::pair<std::string, std::string>>;

/// A positive count. Errors: kInvalidArgument naming option and text.
[[nodiscard]] Result<int64_t> ParseCount(std::string_view option, std::string_view text);

/// Text of the model file: a JSON object as far as its first and last characters tell.
/// Errors: kNotFound or the like when it cannot be read, kInvalidArgument when it is no such text or too long.
[[nodiscard]] Result<std::string> ReadModelFile(const std::string& path);

/// The strategy of the first plan in a file that `weft plan --output json` wrote, as kStrategyVariable has it. Which variables
/// there are, and what is legal, only the controller knows. Errors: as ReadModelFile, naming the key too.
[[nodiscard]] Result<std::string> ReadPlanFile(const std::string& path);
[[nodiscard]] Result<std::string> StrategyText(std::string_view json_text, const std::string& path);

/// What StrategyText wrote. Errors: kInvalidArgument naming the piece, as the text comes from a job's environment.
[[nodiscard]] Result<StrategyValues> ParseStrategyText(std::string_view text);

/// Letters, digits and ":._-", at most 63 of them; which names there are the controller knows. Errors: kInvalidArgument.
[[nodiscard]] Result<std::string> ParseFrameworkName(std::string_view text);

}  // namespace weft::slurm
