#include "planner/tasks/program_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace weft::planner::inline tasks {
namespace {

using TensorKey = std::tuple<int32_t, ModelPart, int32_t>;  // layer, part, index

/// Experts' matrices lie one below the other.
int64_t RowsOf(const TensorLayout& layout) { return layout.by_expert ? layout.whole[0] * layout.whole[1] : layout.whole[0]; }
int64_t ColumnsOf(const TensorLayout& layout) { return layout.whole.size() > 1 ? layout.whole.back() : 1; }

/// The model's tensors that a block is of: a tied head's is the embedding's.
ModelTensors TensorsOfBlock(const ParameterBlock& block, const ModelSpec& model) {
  return ModelTensorsOf(block.copy ? ModelPart::kEmbedding : block.part, model);
}

/// All tensors of the model that some rank has, in order.
std::map<TensorKey, StateTensor> TensorsOf(const StepProgram& program, const ModelSpec& model) {
  std::map<TensorKey, StateTensor> tensors;
  for (const RankClass& c : program.classes) {
    for (const ParameterBlock& block : c.blocks) {
      const auto [part, first] = TensorsOfBlock(block, model);
      const std::vector<TensorLayout> layouts = LayoutOf(block.copy ? part : block.part, model, block.layer);
      for (size_t i = 0; i < layouts.size(); ++i) {
        const auto index = first + static_cast<int32_t>(i);
        tensors[{block.layer, part, index}] = {
            .part = part, .layer = block.layer, .index = index, .rows = RowsOf(layouts[i]), .columns = ColumnsOf(layouts[i])};
      }
    }
  }
  return tensors;
}

/// One of so many ranks that share something.
struct Share {
  int64_t index = 0, ranks = 1;
};

/// The share of a matrix as matrices that lie one behind the other in memory; each is a box of it, row by row. `cut`: 0 of rows, in
/// pieces where there are some, 1 of columns.
std::vector<TensorBox> ShareOf(const TensorBox& all, int64_t cut, const std::vector<int64_t>& pieces, Share share) {
  if (cut < 0) return {all};
  if (cut == 1) {  // one piece: columns of several would not lie in one run
    TensorBox box = all;
    box.columns = all.columns / share.ranks;
    box.column = all.column + share.index * box.columns;
    return {box};
  }
  std::vector<TensorBox> boxes;
  int64_t row = all.row;
  for (const int64_t piece : pieces.empty() ? std::vector<int64_t>{all.rows} : pieces) {
    TensorBox box = all;
    box.rows = piece / share.ranks;
    box.row = row + share.index * box.rows;
    boxes.push_back(box);
    row += piece;
  }
  return boxes;
}

/// Of a rank's experts, one after the other.
std::vector<TensorBox> SharesOfExperts(const TensorLayout& layout, int32_t tensor, Share experts, Share each) {
  const int64_t rows = layout.whole[1], n = layout.whole[0] / experts.ranks;
  std::vector<TensorBox> boxes;
  for (int64_t expert = experts.index * n; expert < (experts.index + 1) * n; ++expert) {
    const TensorBox matrix{.tensor = tensor, .row = expert * rows, .rows = rows, .column = 0, .columns = layout.whole[2]};
    for (const TensorBox& box : ShareOf(matrix, layout.cut - 1, layout.pieces, each)) boxes.push_back(box);
  }
  return boxes;
}

class StateMaker {
 public:
  StateMaker(const StepProgram& program, const ModelSpec& model) : program_(program), model_(model) {
    for (const auto& [key, tensor] : TensorsOf(program, model)) {
      numbers_[key] = static_cast<int32_t>(state_.tensors.size());
      state_.tensors.push_back(tensor);
    }
  }

  Result<ProgramState> Make() {
    for (size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      state_.ranks.emplace_back();
      const RankClass& c = program_.classes[static_cast<size_t>(program_.ranks[rank].rank_class)];
      for (size_t u = 0; u < c.units.size(); ++u) WEFT_RETURN_IF_ERROR(AddUnit(rank, c, static_cast<int32_t>(u)));
    }
    return std::move(state_);
  }

 private:
  Status AddUnit(size_t rank, const RankClass& c, int32_t u) {
    const ParameterUnit& unit = c.units[static_cast<size_t>(u)];
    int64_t begin = 0, end = unit.elements;
    if (unit.shard >= 0) {
      const ProgramCommunicator& shard = program_.communicators[static_cast<size_t>(unit.shard)];
      const GroupPlace place = PlaceIn(shard, static_cast<int32_t>(rank));
      if (place.group < 0)
        return Fail(Code::kInvalidArgument, "a unit is sharded over a communicator that its rank is no member of");
      const auto n = static_cast<int64_t>(shard.groups[static_cast<size_t>(place.group)].size());
      begin = place.index * unit.elements / n;
      end = (place.index + 1) * unit.elements / n;
    }
    int64_t at = 0;  // in the unit
    for (int32_t b = unit.first_block; b < unit.first_block + unit.blocks; ++b) {
      const ParameterBlock& block = c.blocks[static_cast<size_t>(b)];
      const std::vector<TensorBox> matrices = MatricesOf(block, static_cast<int32_t>(rank));
      int64_t elements = 0;
      for (const TensorBox& matrix : matrices) elements += matrix.elements();
      if (elements != block.elements) {
        return Fail(Code::kInvalidArgument, fmt::format("program: {} of layer {} has {} elements, expected the model's {}",
                                                        PartName(block.part), block.layer, block.elements, elements));
      }
      for (const TensorBox& matrix : matrices) {
        const int64_t first = std::max(begin, at), last = std::min(end, at + matrix.elements());
        if (first < last) {
          const std::vector<HeldBox> boxes = BoxesOfRange(matrix, first - at, last - at, u, first - begin);
          state_.ranks[rank].insert(state_.ranks[rank].end(), boxes.begin(), boxes.end());
        }
        at += matrix.elements();
      }
    }
    return Ok();
  }

  std::vector<TensorBox> MatricesOf(const ParameterBlock& block, int32_t rank) const {
    const auto [part, first] = TensorsOfBlock(block, model_);
    const ModelPart own = block.copy ? part : block.part;
    const ExpertPlace place = ExpertPlaceOf(program_, rank);
    // A slice is what a tensor rank of so many more would have.
    const Share piece{int64_t{program_.ranks[static_cast<size_t>(rank)].tensor} * block.slices + block.slice,
                      program_.tensor * block.slices};
    const Share experts{place.expert, program_.expert_ranks}, each{place.tensor, program_.expert_tensor};
    std::vector<TensorBox> matrices;
    const std::vector<TensorLayout> layouts = LayoutOf(own, model_, block.layer);
    for (size_t i = 0; i < layouts.size(); ++i) {
      const TensorLayout& layout = layouts[i];
      const int32_t tensor = numbers_.at({block.layer, part, first + static_cast<int32_t>(i)});
      if (program_.grid.exists() && CutByGrid(own)) {
        for (const TensorPiece& p : PiecesOnGrid(program_.grid, own, layout, program_.ranks[static_cast<size_t>(rank)].tensor))
          matrices.push_back({.tensor = tensor, .row = p.row, .rows = p.rows, .column = p.column, .columns = p.columns});
        continue;
      }
      const TensorBox all{.tensor = tensor, .row = 0, .rows = RowsOf(layout), .column = 0, .columns = ColumnsOf(layout)};
      const std::vector<TensorBox> boxes = layout.by_expert ? SharesOfExperts(layout, tensor, experts, each)
                                                            : ShareOf(all, layout.cut, layout.pieces, piece);
      matrices.insert(matrices.end(), boxes.begin(), boxes.end());
    }
    return matrices;
  }

  const StepProgram& program_;
  const ModelSpec& model_;
  std::map<TensorKey, int32_t> numbers_;
  ProgramState state_;
};

/// Takes from `left` what `held` has of it, as shares that are owned; the rest of `held` is not.
void Take(const HeldBox& held, std::vector<TensorBox>* left, std::vector<StateShare>* shares, int64_t* owned) {
  std::vector<TensorBox> still, others = {held.box};
  for (const TensorBox& box : *left) {
    const std::optional<TensorBox> common = CommonBox(box, held.box);
    if (!common) {
      still.push_back(box);
      continue;
    }
    shares->push_back({.held = PartOfHeld(held, *common), .owned = true});
    *owned += common->elements();
    for (const TensorBox& rest : BoxWithout(box, *common)) still.push_back(rest);
    std::vector<TensorBox> fewer;
    for (const TensorBox& other : others) {
      for (const TensorBox& rest : BoxWithout(other, *common)) fewer.push_back(rest);
    }
    others = std::move(fewer);
  }
  for (const TensorBox& other : others) shares->push_back({.held = PartOfHeld(held, other), .owned = false});
  *left = std::move(still);
}

}  // namespace

Result<ProgramState> StateOf(const StepProgram& program, const ModelSpec& model) { return StateMaker(program, model).Make(); }

Result<std::vector<std::vector<StateShare>>> OwnersOf(const ProgramState& state) {
  const size_t n = state.ranks.size();
  std::vector<std::vector<std::pair<size_t, const HeldBox*>>> holders(state.tensors.size());
  for (size_t rank = 0; rank < n; ++rank) {
    for (const HeldBox& held : state.ranks[rank]) holders[static_cast<size_t>(held.box.tensor)].push_back({rank, &held});
  }
  std::vector<std::vector<StateShare>> shares(n);
  std::vector<int64_t> owned(n, 0);
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    const StateTensor& tensor = state.tensors[t];
    std::vector<TensorBox> left = {{.tensor = static_cast<int32_t>(t), .rows = tensor.rows, .columns = tensor.columns}};
    std::stable_sort(holders[t].begin(), holders[t].end(),
                     [&](const auto& a, const auto& b) { return owned[a.first] < owned[b.first]; });
    for (const auto& [rank, held] : holders[t]) Take(*held, &left, &shares[rank], &owned[rank]);
    if (!left.empty()) {
      return Fail(Code::kInvalidArgument, fmt::format("program: no rank has rows {} to {} of {} of layer {}", left[0].row,
                                                      left[0].row + left[0].rows - 1, PartName(tensor.part), tensor.layer));
    }
  }
  return shares;
}

}  // namespace weft::planner::tasks
