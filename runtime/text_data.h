// The text that weft-train learns from: bytes of real files, and which of them make up the batch of a step. The batch
// depends on (seed, step, position in the global batch) only, never on the number of ranks, so that one process and
// many train on the same samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/workload/model_spec.h"

namespace weft::runtime {

/// Which samples of a step's global batch: [first, first + count), each `sequence` (SampleBytes()) + 1 bytes (inputs and,
/// shifted by one, targets).
struct SampleRange {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first = 0;
  int64_t count = 0;
  int64_t sequence = 0;
};

/// Bytes that a model reads of a sample; the one behind them it is to predict. Those of the sequence, or of a 3D CNN one for each
/// number of its volumes.
int64_t SampleBytes(const planner::ModelSpec& model, int64_t sequence);

/// A text in memory. Immutable after loading. Threads: any.
class TextData {
 public:
  /// The file `path`, or the regular files right inside the directory `path` in order of name, concatenated. Symbolic
  /// links inside a directory are passed over: they would bring the same text twice.
  /// Errors: kNotFound when nothing is there, kInvalidArgument for no bytes or more than 1 GiB, else the system's.
  [[nodiscard]] static Result<TextData> Load(const std::string& path);

  explicit TextData(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}

  std::span<const uint8_t> bytes() const { return bytes_; }
  /// FNV-1a of the text: ranks that were given different texts are told apart by it.
  uint64_t Digest() const;

  /// [count × (sequence + 1)], row-major. Requires: more than `sequence` bytes of text.
  std::vector<uint8_t> Samples(const SampleRange& range) const;

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace weft::runtime
