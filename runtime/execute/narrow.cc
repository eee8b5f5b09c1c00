#include "runtime/execute/narrow.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace weft::runtime {
namespace {

using planner::WireType;

constexpr size_t kScaled = 128;  // values that share a scale
constexpr float kLargest = 448;  // of e4m3
constexpr int kMantissa = 3, kBias = 7, kLeastExponent = 1 - kBias;

uint16_t ToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Requires: |value| ≤ kLargest. Ties to even. No number stays none.
uint8_t ToFloat8(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7f;
  const float size = std::fabs(value);
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), kLeastExponent);
  // In units of the last place; the rounded one may have the next exponent.
  const auto places = static_cast<int>(std::nearbyint(std::ldexp(size, kMantissa - exponent)));
  const int code = ((exponent - kLeastExponent) << kMantissa) + places;  // subnormal: exponent field 0, no leading one
  return static_cast<uint8_t>(sign | std::min(code, 0x7e));
}

float FromFloat8(uint8_t byte) {
  if ((byte & 0x7f) == 0x7f) return std::nanf("");
  const int field = (byte & 0x7f) >> kMantissa, places = byte & ((1 << kMantissa) - 1);
  const int exponent = std::max(field - kBias, kLeastExponent);
  const float size = std::ldexp(static_cast<float>(places + (field > 0 ? 1 << kMantissa : 0)), exponent - kMantissa);
  return (byte & 0x80) != 0 ? -size : size;
}

template <typename T>
void NarrowScaled(std::span<const T> values, std::byte* out) {
  for (size_t begin = 0; begin < values.size(); begin += kScaled) {
    const std::span<const T> block = values.subspan(begin, std::min(kScaled, values.size() - begin));
    float largest = 0;
    for (const T value : block) largest = std::max(largest, std::fabs(static_cast<float>(value)));
    // Not so small that it would be none: a block of nearly nothing becomes zeros.
    const float scale =
        largest > 0 && std::isfinite(largest) ? std::max(largest / kLargest, std::numeric_limits<float>::min()) : 1;
    std::memcpy(out, &scale, sizeof(scale));
    out += sizeof(scale);
    for (const T value : block) {
      const float scaled = static_cast<float>(value) / scale;
      *out++ = std::byte(ToFloat8(std::isfinite(scaled) ? std::clamp(scaled, -kLargest, kLargest) : std::nanf("")));
    }
  }
}

template <typename T>
void WidenScaled(const std::byte* in, std::span<T> values) {
  for (size_t begin = 0; begin < values.size(); begin += kScaled) {
    float scale = 0;
    std::memcpy(&scale, in, sizeof(scale));
    in += sizeof(scale);
    for (T& value : values.subspan(begin, std::min(kScaled, values.size() - begin))) {
      value = static_cast<T>(FromFloat8(std::to_integer<uint8_t>(*in++)) * scale);
    }
  }
}

}  // namespace

template <typename T>
void Narrow(WireType wire, std::span<const T> values, std::byte* out) {
  if (wire == WireType::kFloat8) return NarrowScaled(values, out);
  for (const T value : values) {
    const uint16_t bits = ToBfloat16(static_cast<float>(value));
    std::memcpy(out, &bits, sizeof(bits));
    out += sizeof(bits);
  }
}

template <typename T>
void Widen(WireType wire, const std::byte* in, std::span<T> values) {
  if (wire == WireType::kFloat8) return WidenScaled(in, values);
  for (T& value : values) {
    uint16_t bits = 0;
    std::memcpy(&bits, in, sizeof(bits));
    in += sizeof(bits);
    value = static_cast<T>(FromBfloat16(bits));
  }
}

template void Narrow<float>(WireType, std::span<const float>, std::byte*);
template void Narrow<double>(WireType, std::span<const double>, std::byte*);
template void Widen<float>(WireType, const std::byte*, std::span<float>);
template void Widen<double>(WireType, const std::byte*, std::span<double>);

}  // namespace weft::runtime
