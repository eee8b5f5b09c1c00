// What of the training lasts on this rank, as plain memory: what is saved, read and moved. No torch here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "planner/planner.h"
#include "planner/tasks/program_state.h"

namespace weft::runtime {

/// Parameters and the two moments of AdamW lie alike (planner/tasks/program_state.h).
inline constexpr size_t kStateParts = 3;
/// What a part is called behind a tensor's name: "", ".exp_avg", ".exp_avg_sq".
constexpr std::string_view StatePartSuffix(size_t part) { return part == 0 ? "" : part == 1 ? ".exp_avg" : ".exp_avg_sq"; }

/// What this rank keeps of a unit: runs of `elements`, in the order of planner::HeldBox::offset.
struct UnitState {
  std::array<void*, kStateParts> parts{};
  int64_t elements = 0;
};

/// Of all units. The memory stays where it is as long as the executor, and is to be touched between steps only.
struct RankState {
  planner::ElementType type = planner::ElementType::kFloat32;
  std::vector<UnitState> units;
};

/// Copies a box from a rank's memory into a dense one, [rows × columns], and back. Requires: a box of the rank.
void PackBox(const RankState& state, size_t part, const planner::HeldBox& held, std::byte* dense);
void UnpackBox(const RankState& state, size_t part, const planner::HeldBox& held, const std::byte* dense);

}  // namespace weft::runtime
