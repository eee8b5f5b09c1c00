// The folder of a run's checkpoints: one folder per checkpoint, "step-00000050", which appears under that name only once all of
// it is on the disk. What is being written has a name that begins with a dot.
//
//   model.safetensors            parameters, whole tensors under Hugging Face's names; several files and their index where it is
//   large optimizer.safetensors        AdamW's moments: the same names, with .exp_avg and .exp_avg_sq training.json, config.json
//   where the training was; the model manifest.json                written last: the files, their sizes, a sum of every tensor
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace weft::runtime {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kTrainingFile = "training.json";
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

/// "step-00000050".
std::string StepFolder(int64_t step);
/// Steps of the checkpoints in `folder`, ascending; none where it is missing. Errors: the system's.
[[nodiscard]] Result<std::vector<int64_t>> StepsIn(const std::string& folder);

/// The checkpoint that `path` means: itself if it has a manifest, else the last one in it. Errors: kNotFound naming the path.
[[nodiscard]] Result<std::string> FindCheckpoint(const std::string& path);

/// Makes `folder` where it is missing, removes what an earlier run left half-written in it, and makes the folder in which
/// the checkpoint of `step` is written; its path. Errors: the system's, with the path.
[[nodiscard]] Result<std::string> BeginStepFolder(const std::string& folder, int64_t step);

/// The path of that folder.
std::string StepFolderInWriting(const std::string& folder, int64_t step);

/// Makes a file of `bytes` whose first are `begin`, on the disk as far as room goes. Errors: the system's: kResourceExhausted
/// when the disk is full.
[[nodiscard]] Status MakeFile(const std::string& path, std::string_view begin, int64_t bytes);

/// A whole file, on the disk when it returns, and there in whole or not at all. Errors: the system's.
[[nodiscard]] Status WriteDurably(const std::string& path, std::string_view text);

/// Gives the folder of BeginStepFolder() its name, and removes all checkpoints but the last `keep`. Errors: the system's;
/// one of the same step is not replaced.
[[nodiscard]] Status CommitStepFolder(const std::string& folder, int64_t step, int64_t keep);

/// Removes what BeginStepFolder() made; errors are not told: there is one already.
void DropStepFolder(const std::string& folder, int64_t step);

}  // namespace weft::runtime
