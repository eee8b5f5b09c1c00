// The assignment problem: each row gets a column of its own, so that the sum of what they gain is largest.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::planner::inline tasks {

/// The column of each row. `gain`: [rows × columns], as many columns as rows or more, values of at most 2⁶² / rows.
/// Complexity: O(rows² · columns). Source: Kuhn 1955, "The Hungarian method for the assignment problem", by shortest augmenting
/// paths (Jonker and Volgenant 1987).
std::vector<int32_t> LargestAssignment(const std::vector<std::vector<int64_t>>& gain);

}  // namespace weft::planner::tasks
