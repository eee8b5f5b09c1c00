// What the stand-in for the CUDA runtime asks of the library that runs NCCL's kernels.
#pragma once

#include <cstddef>

extern "C" {
/// Runs a kernel of `blocks` blocks with its packed arguments, and returns when all blocks have ended. A collective ends only
/// when the other ranks take part, so each stream calls it from a thread of its own.
[[gnu::visibility("default")]] void weft_run_nccl_kernel(unsigned blocks, const void* arguments, size_t bytes);
}
