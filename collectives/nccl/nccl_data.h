// What a job over NCCL puts into its buffers, so that every element of every result can be checked to the last bit.
#pragma once

#include <cstdint>
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

/// A small whole number that a rank contributes at a position of a call: 1 to 8, for products 1 or 2, so that what up to 8
/// ranks make of them is exact in every type, whatever the order.
int Contribution(NcclOp op, int rank, uint64_t position, uint64_t call);

/// `value` in the bits of `type`, in the lowest bytes; integers modulo their size. Requires: a float holds it exactly.
uint64_t Encode(NcclType type, double value);

/// What `op` makes of one contribution each of `ranks`. Integers' averages are cut towards zero.
double Reduced(NcclOp op, NcclType type, std::span<const int> contributions);

/// `count` elements of which `value(i)` says the number.
template <class Value>
std::vector<uint8_t> FillWith(NcclType type, size_t count, const Value& value) {
  const size_t size = SizeOf(type);
  std::vector<uint8_t> bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = Encode(type, value(i));
    for (size_t b = 0; b < size; ++b) bytes[i * size + b] = static_cast<uint8_t>(bits >> (8 * b));
  }
  return bytes;
}

}  // namespace weft::collectives
