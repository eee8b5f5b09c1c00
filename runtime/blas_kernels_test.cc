#include "runtime/blas_kernels.h"

#include <gtest/gtest.h>

namespace weft::runtime {
namespace {

TEST(BlasKernels, AnUnknownProcessorGetsTheKernelsItCanRun) {
  EXPECT_EQ(BetterBlasKernels("Prescott", {.avx2 = true, .avx512 = true}), "SkylakeX");
  EXPECT_EQ(BetterBlasKernels("Prescott", {.avx2 = true, .avx512 = false}), "Haswell");
}

TEST(BlasKernels, WhatOpenBlasKnowsStands) {
  EXPECT_EQ(BetterBlasKernels("SapphireRapids", {.avx2 = true, .avx512 = true}), std::nullopt);
  EXPECT_EQ(BetterBlasKernels("Zen", {.avx2 = true, .avx512 = false}), std::nullopt);
  EXPECT_EQ(BetterBlasKernels("Prescott", {.avx2 = false, .avx512 = false}), std::nullopt);
  EXPECT_EQ(BetterBlasKernels("", {.avx2 = true, .avx512 = true}), std::nullopt);
}

}  // namespace
}  // namespace weft::runtime
