// What a job over NCCL puts into its buffers, so that every element of every result can be checked to the last bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/nccl/nccl_library.h"

namespace weft::collectives {

/// Bytes of an element.
size_t SizeOf(NcclType type);
/// "fp32", "bf16", ...; nullopt: none of them.
std::optional<NcclType> ParseNcclType(std::string_view text);
/// "sum", "prod", "max", "min", "avg"; nullopt: none of them.
std::optional<NcclOp> ParseNcclOp(std::string_view text);

/// After so many positions a rank's contributions repeat, so that large buffers are filled by copying. A prime: no chunk,
/// slice or line that went astray lies a multiple of it away.
inline constexpr size_t kContributionPeriod = 65521;

/// A small whole number that a rank contributes at a position of a call: 1 to 8, for products 1 or 2, so that
/// what a few ranks make of them is exact.
int Contribution(NcclOp op, int rank, uint64_t position, uint64_t call);

/// Whether what `ranks` contributions make is exact in `type` whatever the order, as NCCL computes it: averages of floats are sums
/// of contributions over `ranks`, integers' averages sums in the type itself.
bool IsExact(NcclOp op, NcclType type, size_t ranks);

/// `value` in the bits of `type`, in the lowest bytes; integers modulo their size. Requires: a float holds it exactly.
uint64_t Encode(NcclType type, double value);

/// What `op` makes of one contribution each of `ranks`. Integers' averages are cut towards zero.
double Reduced(NcclOp op, NcclType type, std::span<const int> contributions);

/// `count` elements of which `value(i)` says the number. Requires: in each run of `share` elements (all, where it is 0) the
/// numbers repeat after kContributionPeriod.
template <class Value>
std::vector<uint8_t> FillWith(NcclType type, size_t count, const Value& value, size_t share = 0) {
  const size_t size = SizeOf(type), run = share == 0 ? count : share;
  std::vector<uint8_t> bytes(count * size);
  for (size_t begin = 0; begin < count; begin += run) {
    const size_t length = std::min(run, count - begin), made = std::min(length, kContributionPeriod);
    uint8_t* const first = bytes.data() + begin * size;
    for (size_t i = 0; i < made; ++i) {
      const uint64_t bits = Encode(type, value(begin + i));
      for (size_t b = 0; b < size; ++b) first[i * size + b] = static_cast<uint8_t>(bits >> (8 * b));
    }
    for (size_t at = made; at < length; at += made) std::memcpy(first + at * size, first, std::min(made, length - at) * size);
  }
  return bytes;
}

}  // namespace weft::collectives
