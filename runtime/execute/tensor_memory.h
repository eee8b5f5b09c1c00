// What the tensors of this process take, counted by LibTorch's allocator. LibTorch stays behind this header.
#pragma once

#include "common/units.h"

namespace weft::runtime {

/// Counts all tensors that are made from now on. Once per process, before the first of them.
void CountTensorMemory();

/// Bytes that tensors asked for: those of now, and the most since ResetTensorPeak(). Threads: any.
struct TensorMemory {
  Bytes now, peak;
};
TensorMemory MemoryOfTensors();
void ResetTensorPeak();

}  // namespace weft::runtime
