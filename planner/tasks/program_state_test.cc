#include "planner/tasks/program_state.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "planner/parallelism/program/expand.h"

namespace weft::planner::inline tasks {
namespace {

using ::testing::HasSubstr;

ModelSpec Gpt() {
  return {.name = "gpt",
          .architecture = Architecture::kGpt2,
          .layers = 4,
          .hidden = 8,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 2,
          .ffn_hidden = 12,
          .vocab = 16,
          .max_positions = 6};
}

ModelSpec Llama() {
  return {.name = "llama",
          .architecture = Architecture::kLlama,
          .layers = 4,
          .hidden = 8,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 2,
          .ffn_hidden = 12,
          .vocab = 16,
          .max_positions = 6,
          .gated_mlp = true,
          .tied_embeddings = false,
          .attention_bias = false,
          .mlp_bias = false,
          .learned_positions = false,
          .rms_norm = true,
          .numerics = {.activation = Activation::kSilu}};
}

StepProgram ProgramOf(const ModelSpec& model, Strategy strategy, const ProgramChoices& choices = {}) {
  const JobSpec job{.name = "job",
                    .model = model,
                    .global_batch = 12,
                    .sequence = 4,
                    .precision = Precision::kFp32,
                    .gpus = GpuCount(strategy)};
  strategy.bucket_bytes = Bytes(256);
  Result<StepProgram> program = ExpandProgram(job, strategy, ElementType::kFloat32, choices);
  EXPECT_TRUE(program) << program.error().message();
  return program.value_or(StepProgram{});
}

std::vector<Strategy> Strategies() {
  return {{.dp = 1},
          {.dp = 3, .zero_stage = 1},
          {.dp = 2, .zero_stage = 3},
          {.dp = 2, .tp = 2, .zero_stage = 2},
          {.tp = 4},
          {.dp = 3, .tp = 2, .pp = 2, .zero_stage = 1},
          {.dp = 1, .pp = 4},
          {.dp = 4, .zero_stage = 3, .shard_group = 2},
          {.dp = 4, .zero_stage = 1, .shard_group = 2}};
}

/// Elements of a unit that a rank keeps.
int64_t Kept(const StepProgram& program, size_t rank, const ParameterUnit& unit) {
  if (unit.shard < 0) return unit.elements;
  const ProgramCommunicator& shard = program.communicators[static_cast<size_t>(unit.shard)];
  const GroupPlace place = PlaceIn(shard, static_cast<int32_t>(rank));
  const auto n = static_cast<int64_t>(shard.groups[0].size());
  return (place.index + 1) * unit.elements / n - place.index * unit.elements / n;
}

void ExpectFilledOnce(const StepProgram& program, const ModelSpec& model) {
  const Result<ProgramState> state = StateOf(program, model);
  ASSERT_TRUE(state) << state.error().message();
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const RankClass& c = program.classes[static_cast<size_t>(program.ranks[rank].rank_class)];
    std::vector<std::vector<int>> filled;
    for (const ParameterUnit& unit : c.units) filled.emplace_back(static_cast<size_t>(Kept(program, rank, unit)), 0);
    for (const HeldBox& held : state->ranks[rank]) {
      const StateTensor& tensor = state->tensors[static_cast<size_t>(held.box.tensor)];
      ASSERT_LE(held.box.row + held.box.rows, tensor.rows);
      ASSERT_LE(held.box.column + held.box.columns, tensor.columns);
      for (int64_t r = 0; r < held.box.rows; ++r) {
        for (int64_t k = 0; k < held.box.columns; ++k)
          ++filled[static_cast<size_t>(held.unit)].at(static_cast<size_t>(held.offset + r * held.stride + k));
      }
    }
    for (const auto& unit : filled) EXPECT_THAT(unit, ::testing::Each(1)) << program.strategy;
  }
}

TEST(ProgramState, FillsWhatEachRankKeepsExactlyOnce) {
  for (const ModelSpec& model : {Gpt(), Llama()}) {
    for (const Strategy& strategy : Strategies()) ExpectFilledOnce(ProgramOf(model, strategy), model);
  }
}

// Attention in two slices on each of two tensor ranks, both gathered for each pass: slice 1 of rank 0 is the second of four pieces,
// rows 2 and 3 of 8 queries, keys and values each. The MLP's first slice of two is sharded, the second one kept.
TEST(ProgramState, KnowsSlicesAsPiecesOfTheModelsTensors) {
  const std::vector<StageOperators> operators = {
      {.runs = {{.layers = 4, .attention = {.slices = 2, .sharded = 2}, .mlp = {.slices = 2, .sharded = 1, .kept = true}}},
       .head = true}};
  const StepProgram program =
      ProgramOf(Gpt(), {.dp = 2, .tp = 2, .zero_stage = 3, .sharding = Sharding::kOperator}, {.operators = operators});
  ExpectFilledOnce(program, Gpt());
  const ProgramState state = StateOf(program, Gpt()).value();
  EXPECT_EQ(state.tensors, StateOf(ProgramOf(Gpt(), {.dp = 1}), Gpt())->tensors);
  ASSERT_TRUE(OwnersOf(state));
  const RankClass& c = program.classes[0];
  std::set<int64_t> rows;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    if (program.ranks[rank].tensor != 0) continue;
    for (const HeldBox& held : state.ranks[rank]) {
      const StateTensor& tensor = state.tensors[static_cast<size_t>(held.box.tensor)];
      const ParameterBlock& first = c.blocks[static_cast<size_t>(c.units[static_cast<size_t>(held.unit)].first_block)];
      if (tensor.part != ModelPart::kQkv || tensor.layer != 0 || tensor.index != 0 || first.slice != 1) continue;
      for (int64_t row = held.box.row; row < held.box.row + held.box.rows; ++row) rows.insert(row);
    }
  }
  EXPECT_THAT(rows, ::testing::ElementsAre(2, 3, 10, 11, 18, 19));
}

TEST(ProgramState, HasTheSameTensorsUnderEveryStrategy) {
  const std::vector<StateTensor> alone = StateOf(ProgramOf(Gpt(), {.dp = 1}), Gpt())->tensors;
  for (const Strategy& strategy : Strategies()) EXPECT_EQ(StateOf(ProgramOf(Gpt(), strategy), Gpt())->tensors, alone);
  int64_t elements = 0;
  for (const StateTensor& tensor : alone) elements += tensor.elements();
  EXPECT_EQ(elements, ParameterCount(Gpt()));
}

// Two tensor ranks of a [2h × 8] product of queries, keys and values, 8 rows each: rank 1 has rows 4-7 of each.
TEST(ProgramState, CutsQueriesKeysAndValuesOneByOne) {
  const ProgramState state = StateOf(ProgramOf(Gpt(), {.tp = 2}), Gpt()).value();
  std::vector<int64_t> rows;
  for (const HeldBox& held : state.ranks[1]) {
    const StateTensor& tensor = state.tensors[static_cast<size_t>(held.box.tensor)];
    if (tensor.part != ModelPart::kQkv || tensor.layer != 0 || tensor.index != 0) continue;
    rows.push_back(held.box.row);
    EXPECT_EQ(held.box.rows, 4);
    EXPECT_EQ(held.box.columns, 8);
  }
  EXPECT_THAT(rows, ::testing::ElementsAre(4, 12, 20));
}

std::vector<Strategy> Grids() {
  return {{.tp = 4, .micro_batch = 2, .tensor_mode = TensorMode::k2D},
          {.dp = 2, .tp = 4, .micro_batch = 2, .zero_stage = 3, .tensor_mode = TensorMode::k2D},
          {.tp = 8, .micro_batch = 4, .tensor_mode = TensorMode::k25D, .tensor_depth = 2},
          {.tp = 8, .pp = 2, .micro_batch = 4, .tensor_mode = TensorMode::k3D}};
}

TEST(ProgramState, OfAGridIsEveryTensorOnce) {
  ModelSpec gpt = Gpt(), llama = Llama();
  gpt.ffn_hidden = llama.ffn_hidden = 16;  // a cube of side 2 cuts in 8
  for (const ModelSpec& model : {gpt, llama}) {
    const std::vector<StateTensor> alone = StateOf(ProgramOf(model, {.dp = 1}), model)->tensors;
    for (const Strategy& strategy : Grids()) {
      const StepProgram program = ProgramOf(model, strategy);
      ExpectFilledOnce(program, model);
      const ProgramState state = StateOf(program, model).value();
      EXPECT_EQ(state.tensors, alone);
      EXPECT_TRUE(OwnersOf(state)) << program.strategy;
    }
  }
}

// Queries, keys and values are [24 × 8], 8 rows each. Of a grid of 2 × 2 the rank in row 1, column 0, the third, has the first four
// rows of each and columns 4-7, and of the bias's pieces of these 12 rows the second six: two of the keys, four of the values. Of a
// cube the rank l = 1, i = 1, j = 0, the seventh, has columns 4-7 too, and of the 12 rows the second six.
TEST(ProgramState, CutsMatricesByRowsAndColumnsOfAGrid) {
  ModelSpec model = Gpt();
  model.ffn_hidden = 16;
  using Boxes = std::vector<std::vector<int64_t>>;
  const auto boxes = [&](const Strategy& strategy, size_t rank, int32_t index) {
    const ProgramState state = StateOf(ProgramOf(model, strategy), model).value();
    Boxes found;
    for (const HeldBox& held : state.ranks[rank]) {
      const StateTensor& tensor = state.tensors[static_cast<size_t>(held.box.tensor)];
      if (tensor.part != ModelPart::kQkv || tensor.layer != 0 || tensor.index != index) continue;
      found.push_back({held.box.row, held.box.rows, held.box.column, held.box.columns});
    }
    return found;
  };
  EXPECT_EQ(boxes(Grids()[0], 2, 0), (Boxes{{0, 4, 4, 4}, {8, 4, 4, 4}, {16, 4, 4, 4}}));
  EXPECT_EQ(boxes(Grids()[0], 2, 1), (Boxes{{10, 2, 0, 1}, {16, 4, 0, 1}}));
  EXPECT_EQ(boxes(Grids()[3], 6, 0), (Boxes{{10, 2, 4, 4}, {16, 4, 4, 4}}));
  // Of the bias the fourth of four parts, three rows.
  EXPECT_EQ(boxes(Grids()[3], 6, 1), (Boxes{{17, 3, 0, 1}}));
}

TEST(ProgramState, GivesEveryElementOneOwnerAndSpreadsThem) {
  for (const Strategy& strategy : Strategies()) {
    const ProgramState state = StateOf(ProgramOf(Llama(), strategy), Llama()).value();
    const auto shares = OwnersOf(state).value();
    std::vector<std::vector<int>> owners;
    for (const StateTensor& tensor : state.tensors) owners.emplace_back(static_cast<size_t>(tensor.elements()), 0);
    int64_t most = 0, all = 0;
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      int64_t held = 0, owned = 0, of_shares = 0;
      for (const HeldBox& box : state.ranks[rank]) held += box.box.elements();
      for (const StateShare& share : shares[rank]) {
        const TensorBox& box = share.held.box;
        of_shares += box.elements();
        if (!share.owned) continue;
        owned += box.elements();
        for (int64_t r = box.row; r < box.row + box.rows; ++r) {
          for (int64_t c = box.column; c < box.column + box.columns; ++c) {
            ++owners[static_cast<size_t>(box.tensor)].at(
                static_cast<size_t>(r * state.tensors[static_cast<size_t>(box.tensor)].columns + c));
          }
        }
      }
      EXPECT_EQ(held, of_shares);
      most = std::max(most, owned), all += owned;
    }
    for (const auto& tensor : owners) EXPECT_THAT(tensor, ::testing::Each(1));
    // No rank has more than its mean by more than stages' unequal sizes (tables on the first and last) and one tensor.
    EXPECT_LE(most, 2 * all / static_cast<int64_t>(shares.size()) + 300);
  }
}

TEST(ProgramState, RefusesAProgramOfAnotherModel) {
  ModelSpec wider = Gpt();
  wider.ffn_hidden = 16;
  const Result<ProgramState> state = StateOf(ProgramOf(Gpt(), {.tp = 2}), wider);
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(state.error().message(), HasSubstr("mlp"));
}

TEST(ProgramState, NamesWhatNoRankHas) {
  ProgramState state = StateOf(ProgramOf(Gpt(), {.pp = 2}), Gpt()).value();
  state.ranks[1].clear();
  const auto shares = OwnersOf(state);
  ASSERT_FALSE(shares);
  EXPECT_THAT(shares.error().message(), HasSubstr("no rank has rows"));
}

}  // namespace
}  // namespace weft::planner::tasks
