#include "runtime/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <random>
#include <set>

#include "formats/safetensors.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_job.h"
#include "runtime/state/testing/world.h"

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;
using planner::ElementType;
using planner::ModelSpec;
using planner::Strategy;
using ::testing::HasSubstr;
using testing::Memory;
using testing::OnRanks;
using testing::ProgramOf;
using testing::SmallGpt;
using testing::SmallLlama;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string name = (fs::temp_directory_path() / "weft-checkpoint-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  static formats::TrainingState Where(int64_t step) {
    return {.step = step, .seed = 1, .text_digest = 2, .sequence = 4, .global_batch = 12, .peak = 0.001};
  }

  /// Saves the state that Fill() makes, under a strategy; what rank 0 was told.
  Status Save(const ModelSpec& model, const Strategy& strategy, int64_t step, SaveOptions options = {},
              const std::function<void(int, Memory&)>& before = {}) {
    options.folder = folder_;
    const planner::ProgramState state = planner::StateOf(ProgramOf(model, strategy), model).value();
    const auto shares = planner::OwnersOf(state).value();
    return Together(static_cast<int>(state.ranks.size()), [&](int rank, collectives::Bootstrap* bootstrap) -> Status {
      Memory memory(state, static_cast<size_t>(rank), ElementType::kFloat64);
      memory.Fill();
      if (before) before(rank, memory);
      const auto saved = SaveCheckpoint(
          {.model = model, .state = state, .shares = shares, .place = rank, .bootstrap = bootstrap, .first = rank == 0}, options,
          Where(step), memory.view());
      return saved ? Ok() : Status(Fail(saved.error()));
    });
  }

  /// Loads under a strategy and counts what is not as Fill() makes it.
  Status Load(const ModelSpec& model, const Strategy& strategy, const std::string& path, ElementType type = ElementType::kFloat64,
              bool model_alone = false) {
    const planner::ProgramState state = planner::StateOf(ProgramOf(model, strategy), model).value();
    const auto shares = planner::OwnersOf(state).value();
    return Together(static_cast<int>(state.ranks.size()), [&](int rank, collectives::Bootstrap* bootstrap) -> Status {
      Memory memory(state, static_cast<size_t>(rank), type);
      const CheckpointJob job{
          .model = model, .state = state, .shares = shares, .place = rank, .bootstrap = bootstrap, .first = rank == 0};
      if (model_alone) {
        WEFT_RETURN_IF_ERROR(LoadModel(job, path, memory.view()));
      } else {
        WEFT_ASSIGN_OR_RETURN(const formats::TrainingState where, LoadCheckpoint(job, path, memory.view()));
        step_ = where.step;
      }
      const int64_t wrong = memory.Wrong(model_alone ? 1 : kStateParts);
      return wrong == 0 ? Ok() : Status(Fail(Code::kInternal, fmt::format("{} elements are wrong", wrong)));
    });
  }

  /// All ranks fail or none does; rank 0's outcome.
  static Status Together(int world, const std::function<Status(int, collectives::Bootstrap*)>& body) {
    std::vector<Status> outcomes(static_cast<size_t>(world));
    OnRanks(world,
            [&](int rank, collectives::Bootstrap* bootstrap) { outcomes[static_cast<size_t>(rank)] = body(rank, bootstrap); });
    for (const Status& outcome : outcomes) EXPECT_EQ(outcome.has_value(), outcomes[0].has_value());
    return outcomes[0];
  }

  std::string PathOf(int64_t step) const { return folder_ + "/" + StepFolder(step); }

  std::string folder_;
  std::atomic<int64_t> step_{-1};
};

void ExpectOk(const Status& status) { EXPECT_TRUE(status) << status.error().message(); }

const std::vector<Strategy>& Strategies() {
  static const std::vector<Strategy> all = {{.dp = 1},
                                            {.dp = 3, .zero_stage = 1},
                                            {.dp = 2, .zero_stage = 3},
                                            {.dp = 2, .tp = 2, .zero_stage = 2},
                                            {.tp = 4},
                                            {.dp = 2, .tp = 2, .pp = 2, .zero_stage = 1},
                                            {.dp = 1, .pp = 4}};
  return all;
}

TEST_F(CheckpointTest, OfAnyStrategyIsReadUnderAnyOther) {
  for (const ModelSpec& model : {SmallGpt(), SmallLlama()}) {
    int64_t step = 0;
    for (const Strategy& saved : Strategies()) {
      ExpectOk(Save(model, saved, ++step, {.keep = 100}));
      for (const Strategy& loaded : Strategies()) {
        ExpectOk(Load(model, loaded, folder_));
        EXPECT_EQ(step_, step);
      }
    }
    fs::remove_all(folder_);
  }
}

// Files do not depend on who has written them.
TEST_F(CheckpointTest, OfTwoStrategiesAreTheSameBytes) {
  ExpectOk(Save(SmallLlama(), Strategies()[0], 1));
  ExpectOk(Save(SmallLlama(), Strategies()[5], 2));
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "config.json"}) {
    std::ifstream a(PathOf(1) + "/" + name, std::ios::binary), b(PathOf(2) + "/" + name, std::ios::binary);
    const std::string first((std::istreambuf_iterator<char>(a)), {}), second((std::istreambuf_iterator<char>(b)), {});
    EXPECT_FALSE(first.empty()) << name;
    EXPECT_EQ(first, second) << name;
  }
}

TEST_F(CheckpointTest, InManyFilesHasAnIndex) {
  ExpectOk(Save(SmallGpt(), {.dp = 2, .tp = 2}, 7, {.file = Bytes(4096)}));
  EXPECT_TRUE(fs::exists(PathOf(7) + "/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(PathOf(7) + "/model.safetensors"));
  ExpectOk(Load(SmallGpt(), {.pp = 2}, PathOf(7)));
  ExpectOk(Load(SmallGpt(), {.dp = 2, .zero_stage = 3}, PathOf(7), ElementType::kFloat64, /*model_alone=*/true));
}

TEST_F(CheckpointTest, IsReadInAnotherPrecision) {
  ExpectOk(Save(SmallGpt(), {.tp = 2}, 7));
  ExpectOk(Load(SmallGpt(), {.pp = 2}, folder_, ElementType::kFloat32));
}

TEST_F(CheckpointTest, KeepsTheLastOnes) {
  for (int64_t step = 1; step <= 5; ++step) ExpectOk(Save(SmallGpt(), {.dp = 2}, step, {.keep = 2}));
  EXPECT_THAT(StepsIn(folder_).value(), ::testing::ElementsAre(4, 5));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

// What a killed run leaves half-written is no checkpoint, and goes with the next one.
TEST_F(CheckpointTest, PassesOverWhatWasNotFinished) {
  ExpectOk(Save(SmallGpt(), {.dp = 2}, 1));
  fs::copy(PathOf(1), StepFolderInWriting(folder_, 2));
  fs::remove(StepFolderInWriting(folder_, 2) + "/manifest.json");
  ExpectOk(Load(SmallGpt(), {.tp = 2}, folder_));
  EXPECT_EQ(step_, 1);
  ExpectOk(Save(SmallGpt(), {.dp = 2}, 3));
  EXPECT_FALSE(fs::exists(StepFolderInWriting(folder_, 2)));
}

TEST_F(CheckpointTest, OfAStateThatIsNoNumberIsNotWritten) {
  ExpectOk(Save(SmallGpt(), {.dp = 2, .tp = 2}, 1));
  const Status saved = Save(SmallGpt(), {.dp = 2, .tp = 2}, 2, {}, [](int, Memory& memory) {
    static_cast<double*>(memory.view().units[0].parts[1])[0] = std::numeric_limits<double>::quiet_NaN();
  });
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code(), Code::kDataLoss);
  EXPECT_THAT(saved.error().message(), HasSubstr("checkpoint of step 2"));
  EXPECT_THAT(saved.error().message(), HasSubstr("no finite number"));
  EXPECT_THAT(StepsIn(folder_).value(), ::testing::ElementsAre(1));
  EXPECT_FALSE(fs::exists(StepFolderInWriting(folder_, 2)));
  ExpectOk(Load(SmallGpt(), {.dp = 1}, folder_));
}

TEST_F(CheckpointTest, OfAnotherModelIsRefused) {
  ExpectOk(Save(SmallGpt(), {.dp = 1}, 1));
  ModelSpec other = SmallGpt();
  other.ffn_hidden = 16;
  EXPECT_THAT(Load(other, {.tp = 2}, folder_).error().message(),
              HasSubstr("h.0.mlp.c_fc.weight is [8 × 12], expected the model's [8 × 16]"));
  other = SmallGpt();
  other.layers = 3;
  EXPECT_THAT(Load(other, {.tp = 2}, folder_).error().message(), HasSubstr("is none of the model's 3 layers"));
  other.layers = 5;
  EXPECT_THAT(Load(other, {.tp = 2}, folder_).error().message(), HasSubstr("no tensor h.4"));
  EXPECT_THAT(Load(SmallLlama(), {.tp = 2}, folder_).error().message(), HasSubstr("no tensor model.embed_tokens.weight"));
  EXPECT_EQ(Load(SmallGpt(), {.dp = 1}, folder_ + "/nowhere").error().code(), Code::kNotFound);
}

// Whatever happened to a file: the state as it was, or one clear line.
TEST_F(CheckpointTest, ThatWasDamagedIsReadRightOrRefused) {
  ExpectOk(Save(SmallGpt(), {.tp = 2}, 1));
  const std::vector<std::string> names = {"model.safetensors", "optimizer.safetensors", "training.json", "manifest.json"};
  std::mt19937_64 random(5);
  int refused = 0;
  for (int round = 0; round < 120; ++round) {
    const std::string path = PathOf(1) + "/" + names[static_cast<size_t>(round) % names.size()];
    std::string whole;
    {
      std::ifstream in(path, std::ios::binary);
      whole.assign((std::istreambuf_iterator<char>(in)), {});
    }
    std::string damaged = whole;
    const size_t at = random() % (round % 3 == 0 ? std::min<size_t>(whole.size(), 4000) : whole.size());
    switch (random() % 4) {
      case 0:
        damaged.resize(at);
        break;
      case 1:
        damaged += std::string(1 + random() % 9, 'x');
        break;
      default:
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        break;
    }
    std::ofstream(path, std::ios::binary) << damaged;
    const Status loaded = Load(SmallGpt(), {.dp = 1}, folder_);
    std::ofstream(path, std::ios::binary) << whole;
    if (loaded) continue;
    ++refused;
    EXPECT_NE(loaded.error().code(), Code::kInternal) << loaded.error().message();
    EXPECT_EQ(loaded.error().message().find('\n'), std::string::npos);
  }
  EXPECT_GT(refused, 100);  // a flipped bit in a space or a name of the JSON's free keys may mean nothing
  ExpectOk(Load(SmallGpt(), {.dp = 1}, folder_));
}

TEST_F(CheckpointTest, OptionsFitTogether) {
  EXPECT_TRUE(CheckCheckpointOptions({}));
  EXPECT_TRUE(CheckCheckpointOptions({.folder = "a", .every = 5, .resume = "latest"}));
  for (const CheckpointOptions& wrong :
       {CheckpointOptions{.folder = "a"}, CheckpointOptions{.every = 3}, CheckpointOptions{.folder = "a", .every = -1},
        CheckpointOptions{.folder = "a", .every = 1, .keep = 0}, CheckpointOptions{.resume = "latest"},
        CheckpointOptions{.resume = "a", .load = "b"}}) {
    const Status status = CheckCheckpointOptions(wrong);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(status.error().message(), HasSubstr("--"));
  }
}

}  // namespace
}  // namespace weft::runtime
