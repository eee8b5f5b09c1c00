// Gradients in fewer bits on their way: bf16, or fp8 with scales. No torch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "planner/planner.h"

namespace weft::runtime {

/// Writes `values` as planner::NarrowBytes(wire, values.size()) bytes to `out`. bf16: the nearest, ties to even, of the value in
/// single precision. fp8 (e4m3): for every 128 values one float by which they are divided, so that the largest is 448, then a byte
/// each. Requires: wire is not kWhole. T: float or double.
template <typename T>
void Narrow(planner::WireType wire, std::span<const T> values, std::byte* out);

/// The values that Narrow() wrote.
template <typename T>
void Widen(planner::WireType wire, const std::byte* in, std::span<T> values);

}  // namespace weft::runtime
