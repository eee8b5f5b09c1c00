// The tensors that the parameters of a part are, and which share of each a tensor rank has: what computes them, saves them and
// moves them reads it here.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/tasks/step_program.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline tasks {

/// Where a tensor of a block comes from: the rank's share of a tensor of the whole model. A product's outputs may be several
/// matrices, one below the other (queries, keys, values; gate and up), each of which is cut.
struct TensorLayout {
  const char* name = "";
  std::vector<int64_t> whole;        ///< sizes of the model's tensor: one or two, by_expert three
  int64_t cut = -1;                  ///< dimension that tensor ranks share; -1: all have it whole
  std::vector<int64_t> pieces = {};  ///< sizes along `cut` that are cut one by one; empty: all of it
  enum class Start : uint8_t { kZero, kOne, kNormal, kResidual, kRectified } start = Start::kNormal;
  bool by_expert = false;            ///< one matrix for each expert, along the first dimension: ranks share experts and `cut`
};

/// The tensors of a block, in the order in which they lie in its memory; none for a part without parameters. Those of a 3D CNN
/// differ by layer; a convolution's matrix is [outputs × inputs · kernel].
std::vector<TensorLayout> LayoutOf(ModelPart part, const ModelSpec& model, int64_t layer);

/// As what the model has the tensors of a block: those of kMlpUp and kMlpDown are some of kMlp's.
struct ModelTensors {
  ModelPart part = ModelPart::kEmbedding;
  int32_t first = 0;  ///< of the part's tensors
};
ModelTensors ModelTensorsOf(ModelPart part, const ModelSpec& model);

/// Whether a grid of tensor ranks cuts the part's tensors in both of their dimensions.
bool CutByGrid(ModelPart part);

/// Rows and columns of a tensor, one behind the other in a rank's memory.
struct TensorPiece {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

/// What a rank of a grid has of a tensor of the part, in the order of its memory (rank_grid.h): of a matrix one chunk of rows (of
/// each of the layout's pieces), and one of columns, its inputs; a vector's chunk is cut again, among all ranks that need it.
/// Requires: a grid, CutByGrid(part), 0 <= tensor < its ranks.
std::vector<TensorPiece> PiecesOnGrid(const RankGrid& grid, ModelPart part, const TensorLayout& layout, int64_t tensor);

}  // namespace weft::planner::tasks
