#include "planner/workload/precision.h"

#include <array>

namespace weft::planner::inline workload {
namespace {

constexpr std::array<std::string_view, kPrecisions> kNames = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};

}  // namespace

std::string_view PrecisionName(Precision precision) { return kNames[static_cast<size_t>(precision)]; }

std::optional<Precision> FindPrecision(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Precision>(i);
  }
  return std::nullopt;
}

std::string PrecisionNames() {
  std::string names;
  for (const std::string_view name : kNames) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace weft::planner::workload
