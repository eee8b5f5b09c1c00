// Rectangles of a matrix, and where they lie in a run of memory: what a rank holds of a tensor, what it saves and what it sends.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace weft::planner::inline tasks {

/// Rows [row, row + rows) and columns [column, column + columns) of tensor `tensor` of a list.
struct TensorBox {
  int32_t tensor = 0;
  int64_t row = 0, rows = 0, column = 0, columns = 0;
  int64_t elements() const { return rows * columns; }
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

/// A box in a rank's memory: element (r, c) of the tensor is element offset + (r - row)·stride + c - column of what the rank
/// keeps of `unit`.
struct HeldBox {
  TensorBox box;
  int32_t unit = 0;
  int64_t offset = 0, stride = 0;
  friend bool operator==(const HeldBox&, const HeldBox&) = default;
};

/// What both have; nullopt for nothing. Complexity: O(1).
std::optional<TensorBox> CommonBox(const TensorBox& a, const TensorBox& b);

/// What `box` has besides `hole`: at most four boxes, none of which overlap.
std::vector<TensorBox> BoxWithout(const TensorBox& box, const TensorBox& hole);

/// The part of `held` that `box` is. Requires: it lies inside.
HeldBox PartOfHeld(const HeldBox& held, const TensorBox& box);

/// The elements [begin, end) of a matrix [rows × columns] that lies row by row, as at most three boxes in their order; the first
/// element of the range is element `offset` of `unit`. The matrix is the box at (row, column) of the tensor.
std::vector<HeldBox> BoxesOfRange(const TensorBox& matrix, int64_t begin, int64_t end, int32_t unit, int64_t offset);

}  // namespace weft::planner::tasks
