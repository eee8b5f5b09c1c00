#include "planner/tasks/state_change.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "planner/parallelism/program/expand.h"
#include "planner/tasks/assignment.h"

namespace weft::planner::inline tasks {
namespace {

using ::testing::HasSubstr;

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

ProgramState StateUnder(Strategy strategy) {
  const JobSpec job{.name = "job",
                    .model = Llama(),
                    .global_batch = 12,
                    .sequence = 4,
                    .precision = Precision::kFp32,
                    .gpus = GpuCount(strategy)};
  strategy.bucket_bytes = Bytes(256);
  const Result<StepProgram> program = ExpandProgram(job, strategy, ElementType::kFloat32);
  EXPECT_TRUE(program) << program.error().message();
  return StateOf(*program, Llama()).value();
}

/// Elements, as (tensor, row, column), that boxes cover.
using Elements = std::set<std::tuple<int32_t, int64_t, int64_t>>;
void Add(const TensorBox& box, Elements* elements) {
  for (int64_t r = box.row; r < box.row + box.rows; ++r) {
    for (int64_t c = box.column; c < box.column + box.columns; ++c) EXPECT_TRUE(elements->insert({box.tensor, r, c}).second);
  }
}

Elements ElementsOf(const ProgramState& state, int32_t place) {
  Elements elements;
  if (place < 0) return elements;
  for (const HeldBox& held : state.ranks[static_cast<size_t>(place)]) Add(held.box, &elements);
  return elements;
}

int64_t Lacking(const Elements& need, const Elements& have) {
  return std::count_if(need.begin(), need.end(), [&](const auto& e) { return !have.contains(e); });
}

/// The least number of elements over all ways to give the places of `to` to ranks.
int64_t LeastOfAll(const ProgramState& from, const Places& places, const ProgramState& to) {
  std::vector<std::vector<int64_t>> lacking;  // [rank][place]
  for (const int32_t place : places) {
    const Elements have = ElementsOf(from, place);
    lacking.emplace_back();
    for (size_t p = 0; p < to.ranks.size(); ++p) lacking.back().push_back(Lacking(ElementsOf(to, static_cast<int32_t>(p)), have));
  }
  std::vector<size_t> ranks(places.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  int64_t least = std::numeric_limits<int64_t>::max();
  do {
    int64_t sum = 0;
    for (size_t p = 0; p < to.ranks.size(); ++p) sum += lacking[ranks[p]][p];
    least = std::min(least, sum);
  } while (std::next_permutation(ranks.begin(), ranks.end()));
  return least;
}

Places InOrder(size_t ranks, size_t places) {
  Places order(ranks, -1);
  std::iota(order.begin(), order.begin() + static_cast<ptrdiff_t>(places), 0);
  return order;
}

void ExpectRight(const ProgramState& from, const Places& places, const ProgramState& to) {
  const Result<StateChange> change = PlanStateChange(from, places, to);
  ASSERT_TRUE(change) << change.error().message();
  std::vector<Elements> filled(places.size());
  int64_t sent = 0;
  std::set<std::pair<int32_t, int32_t>> talking;
  for (const StateMove& move : change->moves) {
    EXPECT_EQ(move.from.box, move.to.box);
    Add(move.to.box, &filled[static_cast<size_t>(move.receiver)]);
    if (move.sender == move.receiver) continue;
    sent += move.to.box.elements();
    talking.insert(std::minmax(move.sender, move.receiver));
  }
  for (size_t rank = 0; rank < places.size(); ++rank) {
    EXPECT_EQ(filled[rank], ElementsOf(to, change->places[rank]));
    for (const StateMove& move : change->moves) {
      if (move.sender != static_cast<int32_t>(rank)) continue;
      const auto& held = from.ranks[static_cast<size_t>(places[rank])];
      EXPECT_TRUE(std::any_of(held.begin(), held.end(), [&](const HeldBox& h) {
        return CommonBox(h.box, move.from.box) == move.from.box && PartOfHeld(h, move.from.box) == move.from;
      }));
    }
  }
  EXPECT_EQ(sent, change->sent);
  EXPECT_EQ(sent, LeastOfAll(from, places, to));
  std::set<std::tuple<int32_t, int32_t>> busy;  // round, rank
  std::set<std::pair<int32_t, int32_t>> paired;
  for (const StateRound& pair : change->pairs) {
    EXPECT_TRUE(busy.insert({pair.round, pair.first}).second && busy.insert({pair.round, pair.second}).second);
    paired.insert({pair.first, pair.second});
  }
  EXPECT_EQ(paired, talking);
}

TEST(StateChange, SendsWhatIsMissingOnceAndNoMoreThanTheBestChoiceOfPlacesNeeds) {
  const std::vector<Strategy> four = {{.dp = 2, .tp = 2, .zero_stage = 1},
                                      {.dp = 2, .pp = 2},
                                      {.tp = 4},
                                      {.dp = 4, .zero_stage = 3},
                                      {.tp = 2, .pp = 2},
                                      {.pp = 4},
                                      {.dp = 4}};
  for (size_t k = 0; k < four.size(); ++k) {
    for (const size_t away : {1u, 3u}) ExpectRight(StateUnder(four[k]), {2, 0, 3, 1}, StateUnder(four[(k + away) % four.size()]));
  }
}

TEST(StateChange, LetsRanksJoinAndLeave) {
  const ProgramState four = StateUnder({.dp = 2, .tp = 2, .zero_stage = 1}),
                     six = StateUnder({.dp = 3, .tp = 2, .zero_stage = 2}), three = StateUnder({.dp = 3, .zero_stage = 3});
  ExpectRight(four, InOrder(6, 4), six);
  ExpectRight(six, InOrder(6, 6), three);
  ExpectRight(three, {-1, 2, -1, 0, 1, -1}, four);
}

TEST(StateChange, ToTheSameProgramMovesNothing) {
  for (const Strategy& s : {Strategy{.dp = 4, .zero_stage = 1}, Strategy{.tp = 2, .pp = 2}, Strategy{.dp = 4}}) {
    const StateChange change = PlanStateChange(StateUnder(s), {3, 2, 1, 0}, StateUnder(s)).value();
    EXPECT_EQ(change.sent, 0);
    EXPECT_TRUE(change.pairs.empty());
  }
}

// Whole replicas: from two to four each of the two sends to one of the new.
TEST(StateChange, SpreadsTheSendersOfWhatSeveralHave) {
  const StateChange change = PlanStateChange(StateUnder({.dp = 2}), {0, 1, -1, -1}, StateUnder({.dp = 4})).value();
  std::vector<int64_t> sent(4, 0);
  for (const StateMove& move : change.moves) {
    if (move.sender != move.receiver) sent[static_cast<size_t>(move.sender)] += move.from.box.elements();
  }
  EXPECT_EQ(sent[0] + sent[1], 2 * ParameterCount(Llama()));
  EXPECT_NEAR(static_cast<double>(sent[0]), static_cast<double>(sent[1]), 0.1 * static_cast<double>(sent[0]));
}

// From one order of stages to the other the least is nothing at all; by their own numbers ranks swap their stages.
TEST(StateChange, RanksTakeThePlacesOfTheirOwnNumbersWhereTheyAreToldTo) {
  const ProgramState stages = StateUnder({.pp = 2});
  EXPECT_EQ(PlanStateChange(stages, {1, 0}, stages)->sent, 0);
  const StateChange change = PlanStateChange(stages, {1, 0}, stages, PlaceChoice::kOwnNumber).value();
  EXPECT_EQ(change.places, (Places{0, 1}));
  EXPECT_EQ(change.sent, ParameterCount(Llama()));
}

TEST(StateChange, RefusesWhatCannotBe) {
  const ProgramState two = StateUnder({.dp = 2}), four = StateUnder({.dp = 4});
  EXPECT_THAT(PlanStateChange(two, {0, 1}, four).error().message(), HasSubstr("for 4 ranks, expected at most 2"));
  ProgramState less = StateUnder({.pp = 2});
  less.ranks[1].clear();
  EXPECT_THAT(PlanStateChange(less, {0, 1}, two).error().message(), HasSubstr("no rank has row"));
  less.tensors.pop_back();
  EXPECT_THAT(PlanStateChange(less, {0, 1}, two).error().message(), HasSubstr("two models"));
}

TEST(LargestAssignment, IsAsGoodAsTheBestOfAllPermutations) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    const size_t rows = 1 + random() % 5, columns = rows + random() % 3;
    std::vector<std::vector<int64_t>> gain(rows, std::vector<int64_t>(columns));
    for (auto& row : gain) {
      for (int64_t& value : row) value = static_cast<int64_t>(random() % 9) - 2;
    }
    const auto sum = [&](const auto& column_of) {
      int64_t total = 0;
      for (size_t r = 0; r < rows; ++r) total += gain[r][static_cast<size_t>(column_of[r])];
      return total;
    };
    std::vector<int32_t> order(columns);
    std::iota(order.begin(), order.end(), 0);
    int64_t best = std::numeric_limits<int64_t>::min();
    do best = std::max(best, sum(order));
    while (std::next_permutation(order.begin(), order.end()));
    const std::vector<int32_t> chosen = LargestAssignment(gain);
    EXPECT_EQ(std::set<int32_t>(chosen.begin(), chosen.end()).size(), rows);
    EXPECT_EQ(sum(chosen), best);
  }
}

}  // namespace
}  // namespace weft::planner::tasks
