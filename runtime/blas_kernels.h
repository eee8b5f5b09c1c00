#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::runtime {

/// What a processor can do of what OpenBLAS has kernels for.
struct VectorUnits {
  bool avx2 = false;    ///< AVX2 and FMA
  bool avx512 = false;  ///< F, CD, BW, DQ and VL, as Skylake-X has them
};

/// The kernels that OpenBLAS should be told to use (a value of OPENBLAS_CORETYPE), or nothing where its own choice stands.
/// An OpenBLAS older than the processor takes "Prescott", its least for x86-64: SSE3.
/// `chosen`: what it took (`openblas_get_corename`).
std::optional<std::string> BetterBlasKernels(std::string_view chosen, const VectorUnits& units);

/// Starts this program anew, once, with OPENBLAS_CORETYPE set, where OpenBLAS is loaded and does not know this processor. OpenBLAS reads
/// the variable when it is loaded, which is before main. Returns where there is nothing to change, where the variable is set already, or
/// where the program could not be started anew. Call it first in main: threads and locks do not outlive it.
void UseBestBlasKernels(char** argv);

}  // namespace weft::runtime
