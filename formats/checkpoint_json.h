// The small files of a checkpoint: the manifest, which is written last and says what must be there; and where the training was.
// And the index by which Hugging Face finds a model's tensors in several files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace weft::formats {

struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

struct CheckpointManifest {
  static constexpr int kVersion = 1;
  int64_t step = 0;                      ///< steps done
  std::vector<CheckpointFile> files;     ///< of tensors, safetensors each
  std::map<std::string, uint64_t> sums;  ///< by tensor, over all files: runtime/checkpoint/tensor_io.h
  uint64_t training = 0;                 ///< FNV-1a of training.json
  friend bool operator==(const CheckpointManifest&, const CheckpointManifest&) = default;
};

/// Where the training was.
struct TrainingState {
  static constexpr int kVersion = 1;
  int64_t step = 0;  ///< steps done, of the optimizer as well
  // The data position: samples of a step follow from seed and step.
  uint64_t seed = 0, text_digest = 0;
  int64_t sequence = 0, global_batch = 0;
  // The learning rate's: a function of the step.
  double peak = 0, least = 0;
  int64_t warm_up = 0, decay = 0;
  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

std::string WriteManifest(const CheckpointManifest& manifest);
std::string WriteTrainingState(const TrainingState& state);
/// `file_of`: the file of each tensor.
std::string WriteHfIndex(const std::map<std::string, std::string>& file_of, int64_t bytes);

/// Read what those wrote, as hostile input: numbers in range, names of files that lead nowhere else. Errors: kInvalidArgument
/// naming `source`, key, value and what was expected; another version.
[[nodiscard]] Result<CheckpointManifest> ParseManifest(std::string_view text, std::string_view source);
[[nodiscard]] Result<TrainingState> ParseTrainingState(std::string_view text, std::string_view source);
/// The files that an index names, each once, ascending.
[[nodiscard]] Result<std::vector<std::string>> ParseHfIndex(std::string_view text, std::string_view source);

/// FNV-1a.
uint64_t TextDigest(std::string_view text);

}  // namespace weft::formats
