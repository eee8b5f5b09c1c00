#include "runtime/state/unit_state.h"

#include <cstring>

#include "common/check.h"

namespace weft::runtime {
namespace {

/// Calls row(address, bytes) for each row of a box.
template <typename Row>
void ForRows(const RankState& state, size_t part, const planner::HeldBox& held, Row row) {
  const UnitState& unit = state.units[static_cast<size_t>(held.unit)];
  const int64_t element = planner::BytesOf(state.type);
  WEFT_CHECK(held.offset >= 0 && held.offset + (held.box.rows - 1) * held.stride + held.box.columns <= unit.elements,
             "a box outside of its unit");
  auto* at = static_cast<std::byte*>(unit.parts[part]) + held.offset * element;
  for (int64_t r = 0; r < held.box.rows; ++r, at += held.stride * element)
    row(at, static_cast<size_t>(held.box.columns * element));
}

}  // namespace

void PackBox(const RankState& state, size_t part, const planner::HeldBox& held, std::byte* dense) {
  ForRows(state, part, held, [&](std::byte* at, size_t bytes) {
    std::memcpy(dense, at, bytes);
    dense += bytes;
  });
}

void UnpackBox(const RankState& state, size_t part, const planner::HeldBox& held, const std::byte* dense) {
  ForRows(state, part, held, [&](std::byte* at, size_t bytes) {
    std::memcpy(at, dense, bytes);
    dense += bytes;
  });
}

}  // namespace weft::runtime
