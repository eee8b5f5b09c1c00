// The number formats of a training run's matrix products.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::planner::inline workload {

/// In order of width. kTf32 stores 32 bits and multiplies with 10 bits of mantissa.
enum class Precision { kFp32, kTf32, kFp16, kBf16, kFp8, kFp4 };
inline constexpr int kPrecisions = 6;

/// "fp32", "tf32", "fp16", "bf16", "fp8", "fp4".
std::string_view PrecisionName(Precision precision);
/// The inverse; nullopt for any other text.
std::optional<Precision> FindPrecision(std::string_view name);
/// All names, for messages.
std::string PrecisionNames();

/// Bytes of one stored parameter, activation or communicated element: 4 for fp32 and tf32, else 2. Runs in fp8 and fp4
/// multiply narrow copies, and keep and send 16-bit values unless a strategy says otherwise.
constexpr int StorageBytes(Precision precision) {
  return precision == Precision::kFp32 || precision == Precision::kTf32 ? 4 : 2;
}

}  // namespace weft::planner::workload
