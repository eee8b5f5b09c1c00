// What a collective does with elements: NCCL's types and reductions, on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/nccl/kernels/release.h"

namespace weft::nccl_test {

/// Of one type and operation. Results are those of NCCL's kernels where these are exact; 8- and 16-bit floats are reduced in
/// single precision and rounded to nearest even after each step.
class Reduction {
 public:
  /// `op` and `argument` as NCCL hands them to the device. Requires: a type that NCCL knows.
  Reduction(ncclDevRedOp_t op, ncclDataType_t type, uint64_t argument);
  /// Copies bytes.
  Reduction() : Reduction(ncclDevSum, ncclInt8, 0) {}

  size_t size() const { return size_; }  ///< bytes of an element

  /// `into[i]` = `into[i]` op `from[i]`, for `bytes` bytes. Neither needs an alignment.
  void Combine(char* into, const char* from, size_t bytes) const { combine_(argument_, into, from, bytes); }
  /// What is done to each rank's own input before it is reduced; nothing for most operations.
  void Prepare(char* data, size_t bytes) const {
    if (prepare_ != nullptr) prepare_(argument_, data, bytes);
  }
  /// What is done to the result.
  void Finish(char* data, size_t bytes) const {
    if (finish_ != nullptr) finish_(argument_, data, bytes);
  }

 private:
  size_t size_;
  uint64_t argument_;
  void (*combine_)(uint64_t, char*, const char*, size_t) = nullptr;
  void (*prepare_)(uint64_t, char*, size_t) = nullptr;
  void (*finish_)(uint64_t, char*, size_t) = nullptr;
};

}  // namespace weft::nccl_test
