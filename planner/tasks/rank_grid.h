// Tensor ranks that stand in a grid and multiply matrices together: q x q (2D, SUMMA), z layers of q x q (2.5D), or q x q x q (3D).
//
// Flat, rank = (layer·q + row)·q + column: the micro-batch's sequences are cut over layers and rows, columns of activations over
// the grid's columns; of a matrix a rank has inputs of its row and outputs of its column, in each layer the same.
//
// A cube, rank = (l·q + i)·q + j, has two ways to cut activations. The residual stream has sequences by (i, j), columns by l; heads
// and inner columns of the MLP have sequences by (i, l), columns by j. A product leads from one to the other.
#pragma once

#include <cstdint>

namespace weft::planner::inline tasks {

struct RankGrid {
  int64_t side = 1;   ///< q; 1: no grid, tensor ranks cut matrices in one dimension
  int64_t depth = 1;  ///< z of a flat grid
  bool cube = false;

  bool exists() const { return side > 1; }
  int64_t ranks() const { return side * side * (cube ? side : depth); }
  /// Pieces that the sequences of a micro-batch are cut in.
  int64_t batches() const { return side * (cube ? side : depth); }
  /// Pieces of a matrix, and of a vector beside it, no two of which are the same.
  int64_t pieces() const { return side * side * (cube ? side : 1); }
  friend bool operator==(const RankGrid&, const RankGrid&) = default;
};

/// What a rank has of the residual stream: which piece of the sequences, and of the columns.
struct StreamPlace {
  int64_t batch = 0, column = 0;
};
/// Requires: a grid, 0 <= tensor < its ranks.
constexpr StreamPlace StreamPlaceOf(const RankGrid& grid, int64_t tensor) {
  const int64_t q = grid.side;
  return grid.cube ? StreamPlace{tensor % (q * q), tensor / (q * q)} : StreamPlace{tensor / q, tensor % q};
}

}  // namespace weft::planner::tasks
