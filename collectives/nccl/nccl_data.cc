#include "collectives/nccl/nccl_data.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace weft::collectives {
namespace {

constexpr std::pair<std::string_view, NcclType> kTypes[] = {
    {"int8", NcclType::kInt8},     {"uint8", NcclType::kUint8}, {"int32", NcclType::kInt32}, {"uint32", NcclType::kUint32},
    {"int64", NcclType::kInt64},   {"uint64", NcclType::kUint64}, {"fp16", NcclType::kFloat16}, {"fp32", NcclType::kFloat32},
    {"fp64", NcclType::kFloat64}, {"bf16", NcclType::kBfloat16}};
constexpr std::pair<std::string_view, NcclOp> kOps[] = {{"sum", NcclOp::kSum},
                                                        {"prod", NcclOp::kProd},
                                                        {"max", NcclOp::kMax},
                                                        {"min", NcclOp::kMin},
                                                        {"avg", NcclOp::kAvg}};

template <class Table>
auto Find(const Table& table, std::string_view text) {
  const auto found = std::find_if(std::begin(table), std::end(table), [&](const auto& entry) { return entry.first == text; });
  return found == std::end(table) ? std::nullopt : std::optional(found->second);
}

/// A number that half precision holds exactly, not denormal.
uint64_t HalfBits(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // 0.5 <= fraction < 1
  const auto mantissa = static_cast<uint64_t>(std::llround((fraction * 2 - 1) * 1024));
  return (value < 0 ? 0x8000u : 0u) | static_cast<uint64_t>(exponent - 1 + 15) << 10 | mantissa;
}

bool IsInteger(NcclType type) { return static_cast<int>(type) <= static_cast<int>(NcclType::kUint64); }

}  // namespace

size_t SizeOf(NcclType type) {
  constexpr std::array<size_t, 10> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[static_cast<size_t>(type)];
}

std::optional<NcclType> ParseNcclType(std::string_view text) { return Find(kTypes, text); }
std::optional<NcclOp> ParseNcclOp(std::string_view text) { return Find(kOps, text); }

int Contribution(NcclOp op, int rank, uint64_t position, uint64_t call) {
  uint64_t x = position % kContributionPeriod * 0x9E3779B97F4A7C15u;
  x ^= (static_cast<uint64_t>(rank) + 1) * 0xC2B2AE3D27D4EB4Fu ^ call * 0x165667B19E3779F9u;
  x ^= x >> 29;
  const auto value = static_cast<int>((x * 0xBF58476D1CE4E5B9u) >> 61);
  return 1 + (op == NcclOp::kProd ? value & 1 : value);
}

bool IsExact(NcclOp op, NcclType type, size_t ranks) {
  constexpr std::array<size_t, 10> kBits = {7, 8, 31, 32, 63, 64, 11, 24, 53, 8};  // of a whole number that it holds
  constexpr std::array<size_t, 10> kMostTwos = {62, 62, 62, 62, 62, 62, 15, 127, 1023, 127};  // 2^n that it holds; integers: modulo
  const auto index = static_cast<size_t>(type);
  const size_t bits = kBits[index];
  const bool fits = bits >= 53 || ranks * 8 <= (size_t{1} << bits) - (IsInteger(type) ? 1 : 0);
  switch (op) {
    case NcclOp::kSum: return IsInteger(type) || fits;
    case NcclOp::kAvg: return fits && (IsInteger(type) || std::has_single_bit(ranks));
    case NcclOp::kProd: return ranks <= kMostTwos[index];
    case NcclOp::kMax:
    case NcclOp::kMin: break;
  }
  return true;
}

uint64_t Encode(NcclType type, double value) {
  switch (type) {
    case NcclType::kFloat16: return HalfBits(value);
    case NcclType::kBfloat16: return std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16;
    case NcclType::kFloat32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    case NcclType::kFloat64: return std::bit_cast<uint64_t>(value);
    default: return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
}

double Reduced(NcclOp op, NcclType type, std::span<const int> contributions) {
  double result = contributions.front();
  for (const int value : contributions.subspan(1)) {
    switch (op) {
      case NcclOp::kSum:
      case NcclOp::kAvg: result += value; break;
      case NcclOp::kProd: result *= value; break;
      case NcclOp::kMax: result = std::max(result, static_cast<double>(value)); break;
      case NcclOp::kMin: result = std::min(result, static_cast<double>(value)); break;
    }
  }
  if (op != NcclOp::kAvg) return result;
  result /= static_cast<double>(contributions.size());
  return IsInteger(type) ? std::trunc(result) : result;
}

}  // namespace weft::collectives
