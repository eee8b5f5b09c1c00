#include "planner/tasks/tensor_box.h"

#include <algorithm>

namespace weft::planner::inline tasks {

std::optional<TensorBox> CommonBox(const TensorBox& a, const TensorBox& b) {
  if (a.tensor != b.tensor) return std::nullopt;
  const int64_t row = std::max(a.row, b.row), column = std::max(a.column, b.column);
  const int64_t rows = std::min(a.row + a.rows, b.row + b.rows) - row;
  const int64_t columns = std::min(a.column + a.columns, b.column + b.columns) - column;
  if (rows <= 0 || columns <= 0) return std::nullopt;
  return TensorBox{.tensor = a.tensor, .row = row, .rows = rows, .column = column, .columns = columns};
}

std::vector<TensorBox> BoxWithout(const TensorBox& box, const TensorBox& hole) {
  const std::optional<TensorBox> gone = CommonBox(box, hole);
  if (!gone) return {box};
  std::vector<TensorBox> rest;
  const auto add = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    if (rows > 0 && columns > 0)
      rest.push_back({.tensor = box.tensor, .row = row, .rows = rows, .column = column, .columns = columns});
  };
  const int64_t below = gone->row + gone->rows, right = gone->column + gone->columns;
  add(box.row, gone->row - box.row, box.column, box.columns);
  add(gone->row, gone->rows, box.column, gone->column - box.column);
  add(gone->row, gone->rows, right, box.column + box.columns - right);
  add(below, box.row + box.rows - below, box.column, box.columns);
  return rest;
}

HeldBox PartOfHeld(const HeldBox& held, const TensorBox& box) {
  HeldBox part = held;
  part.box = box;
  part.offset += (box.row - held.box.row) * held.stride + box.column - held.box.column;
  return part;
}

std::vector<HeldBox> BoxesOfRange(const TensorBox& matrix, int64_t begin, int64_t end, int32_t unit, int64_t offset) {
  std::vector<HeldBox> boxes;
  const int64_t width = matrix.columns;
  while (begin < end) {
    const int64_t row = begin / width, column = begin % width;
    const bool whole_rows = column == 0 && end - begin >= width;
    const int64_t rows = whole_rows ? (end - begin) / width : 1;
    const int64_t columns = whole_rows ? width : std::min(width - column, end - begin);
    boxes.push_back({.box = {.tensor = matrix.tensor,
                             .row = matrix.row + row,
                             .rows = rows,
                             .column = matrix.column + column,
                             .columns = columns},
                     .unit = unit,
                     .offset = offset,
                     .stride = columns});
    begin += rows * columns;
    offset += rows * columns;
  }
  return boxes;
}

}  // namespace weft::planner::tasks
