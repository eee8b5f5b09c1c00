// The words of a plan of weft-train: what they say, back again, and what is refused of hostile ones.
#include "formats/train_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/parallelism/program/testing/small_models.h"

namespace weft::formats {
namespace {

using planner::Strategy;
using testing::ElementsAre;
using testing::HasSubstr;

planner::JobSpec Job(planner::ModelSpec model = planner::SmallLlama()) {
  return {.name = "j", .model = std::move(model), .global_batch = 24, .sequence = 32, .precision = planner::Precision::kFp32, .gpus = 8};
}

/// What the words of a plan are read as.
Result<planner::StepProgram> Back(const std::vector<std::string>& words, const planner::JobSpec& job) {
  TrainPlanText text;
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    if (words[i] == "--strategy") text.strategy = words[i + 1];
    if (words[i] == "--sums") text.sums = words[i + 1];
    if (words[i] == "--operators") text.operators = words[i + 1];
    if (words[i] == "--program-digest") text.digest = words[i + 1];
  }
  return ExpandTrainPlan(text, job, planner::ElementType::kFloat32);
}

TEST(TrainPlan, WordsSayTheStrategy) {
  const auto words = TrainArguments(Job(), {.dp = 2, .tp = 2, .pp = 2}, {});
  ASSERT_TRUE(words) << words.error().message();
  EXPECT_THAT(*words, ElementsAre("--strategy", "dp=2,tp=2,pp=2", "--seq", "32", "--global-batch", "24", "--program-digest",
                                  testing::MatchesRegex("[0-9a-f]{16}")));
  EXPECT_EQ(Back(*words, Job()).value(),
            planner::ExpandProgram(Job(), {.dp = 2, .tp = 2, .pp = 2}, planner::ElementType::kFloat32).value());
}

// What a controller hands over is what ranks read.
TEST(TrainPlan, WordsAreReadAsTheyWereWritten) {
  const auto words = TrainArguments(Job(), {.dp = 2, .tp = 2, .pp = 2}, {});
  const auto read = ParseTrainArguments(*words);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->plan.strategy, "dp=2,tp=2,pp=2");
  EXPECT_EQ(read->plan.digest, words->back());
  EXPECT_EQ(read->sequence, 32);
  EXPECT_EQ(read->global_batch, 24);
  const auto refused = [](std::vector<std::string> given, const char* why) {
    const auto bad = ParseTrainArguments(given);
    ASSERT_FALSE(bad.has_value()) << why;
    EXPECT_EQ(bad.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(bad.error().message(), HasSubstr(why));
  };
  refused({}, "--seq \"\": expected");
  refused({"--seq", "32", "--global-batch", "8"}, "--strategy");
  refused({"--seq", "32", "--seq", "32"}, "each flag once");
  refused({"--seq"}, "and its value");
  refused({"--seq", "-1", "--strategy", "dp=1", "--global-batch", "8"}, "--seq \"-1\"");
  refused({"--checkpoint", "/etc"}, "word \"--checkpoint\"");
  refused({"--strategy", std::string(kMostStrategyText + 1, 'a')}, "1 to 4096 characters");
  refused({"--program-digest", std::string(65, 'a')}, "1 to 64 characters");
}

// Every variable, by its own names.
TEST(TrainPlan, StrategiesComeBack) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    Strategy s;
    for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
      const int64_t most = std::min<int64_t>(variable.most, variable.least + 12);
      if (random() % 3 == 0) variable.set(s, variable.least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - variable.least + 1)));
    }
    s.bucket_bytes = Bytes(1 + static_cast<int64_t>(random() % 100'000'000));
    const auto back = ParseStrategyText(WriteStrategyText(s));
    ASSERT_TRUE(back) << WriteStrategyText(s) << ": " << back.error().message();
    ASSERT_EQ(*back, s) << WriteStrategyText(s);
  }
}

TEST(TrainPlan, OperatorsComeBack) {
  const std::vector<planner::StageOperators> stages = {
      {.runs = {{.layers = 2, .attention = {1, 1, false}, .mlp = {1, 0, true}}, {.layers = 1, .attention = {4, 1, false}, .mlp = {4, 4, true}}},
       .embedding = true},
      {.runs = {{.layers = 3}}, .head = true, .head_slices = 4}};
  EXPECT_EQ(WriteOperatorsText(stages), "e+2:s:k+1:4r1:4k4/3:r:r+h4");
  EXPECT_EQ(ParseOperatorsText("e+2:s:k+1:4r1:4k4/3:r:r+h4").value(), stages);
}

TEST(TrainPlan, ProgramsComeBackWithTheirChoices) {
  const std::vector<planner::StageOperators> stages = {
      {.runs = {{.layers = 3, .attention = {1, 1, false}, .mlp = {4, 3, true}}}, .embedding = true},
      {.runs = {{.layers = 2, .mlp = {1, 0, true}}, {.layers = 1, .attention = {4, 4, false}, .mlp = {4, 4, false}}}, .head = true, .head_slices = 2}};
  const Strategy decides{.dp = 4, .pp = 2, .zero_stage = 3, .sharding = planner::Sharding::kOperator};
  const std::pair<Strategy, planner::ProgramChoices> plans[] = {
      {decides, {.operators = stages}},
      {{.dp = 8, .data_sync = planner::DataSync::kHierarchical}, {.sums = {planner::Algorithm::kHierarchical, 2}}},
      {{.dp = 4, .data_sync = planner::DataSync::kParameterServer}, {.sums = {planner::Algorithm::kParameterServer, 4}}},
      {{.dp = 2, .gradient_wire = planner::GradientWire::kFp8}, {}},
  };
  for (const auto& [strategy, choices] : plans) {
    planner::JobSpec job = Job();
    job.gpus = planner::GpuCount(strategy);
    const auto words = TrainArguments(job, strategy, choices);
    ASSERT_TRUE(words) << words.error().message();
    for (const std::string& word : *words) EXPECT_EQ(word.find_first_of(" \"'\\*$"), word.npos) << word;
    const auto back = Back(*words, job);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(*back, planner::ExpandProgram(job, strategy, planner::ElementType::kFloat32, choices).value());
  }
}

TEST(TrainPlan, AnotherModelOrReleaseIsRefused) {
  const auto words = TrainArguments(Job(), {.dp = 8}, {}).value();
  planner::JobSpec other = Job();
  other.model.layers = 5;
  EXPECT_THAT(Back(words, other).error().message(), HasSubstr("another config.json, batch, sequence or type"));
  EXPECT_THAT(Back({"--strategy", "dp=8", "--program-digest", "0123"}, Job()).error().message(), HasSubstr("--program-digest 0123: this"));
}

TEST(TrainPlan, HostileWordsAreRefusedByName) {
  const auto why = [](const std::string& strategy, const std::string& operators = "", const std::string& sums = "") {
    const auto program =
        ExpandTrainPlan({.strategy = strategy, .sums = sums, .operators = operators, .digest = ""}, Job(), planner::ElementType::kFloat32);
    return program ? std::string("accepted") : program.error().message();
  };
  EXPECT_THAT(why(""), HasSubstr("--strategy \"\": expected 1 to 4096 characters"));
  EXPECT_THAT(why(std::string(5000, 'x')), HasSubstr("expected 1 to 4096"));
  EXPECT_THAT(why("dp=2,zz=3"), HasSubstr("--strategy: fix \"zz=3\": unknown name"));
  EXPECT_THAT(why("dp=1099511627776,tp=1099511627776"), HasSubstr("degrees of at most 4096"));
  EXPECT_THAT(why("dp=4096,tp=4096,pp=4096,cp=4096"), HasSubstr("--strategy: "));
  EXPECT_THAT(why("dp=5"), HasSubstr("batch: dp=5"));
  EXPECT_THAT(why("dp=2,data_sync=switch"), HasSubstr("data_sync=switch: not executed"));
  EXPECT_THAT(why("dp=2,data_sync=hierarchical", "", "hierarchical:3"), HasSubstr("3 of 2 replicas in a node"));
  EXPECT_THAT(why("dp=2,data_sync=hierarchical", "", "hierarchical"), HasSubstr("0 of 2 replicas in a node"));
  EXPECT_THAT(why("dp=2", "", "hierarchical"), HasSubstr("0 of 2 replicas in a node"));
  EXPECT_THAT(why("dp=2", "", "magic"), HasSubstr("--sums: algorithm \"magic\""));
  EXPECT_THAT(why("dp=2", "", std::string(1000, 'x')), HasSubstr("--sums"));
  for (const char* sums : {"ps", "ps:99", "torus", "torus:2", "forest", "hierarchical:0", "hierarchical:-2", ":", "ps:"}) why("dp=2", "", sums);
  EXPECT_THAT(why("dp=2", "6:r:r"), HasSubstr("none without sharding=osdp"));
  const char* decides = "dp=2,zero_stage=3,sharding=osdp";
  EXPECT_THAT(why(decides), HasSubstr("--operators: of 0 stages, expected pp=1"));
  EXPECT_THAT(why(decides, "5:r:r"), HasSubstr("of 5 layers of stage 0, expected its 6"));
  EXPECT_EQ(why(decides, "e+6:r:r+h1"), "accepted");
  for (const char* bad : {"6", "6:r", "0:r:r", "6:r:x", "6:1r1:r", "6:4r5:r", "6:65r1:r", "6:r:4q1", "-6:r:r", "6:r:r+h0", "6:r:r+h", "6:r:r:r",
                          "99999999999999999999:r:r", "+", "6:r:r+h99"}) {
    EXPECT_THAT(why(decides, bad), HasSubstr("--operators")) << bad;
  }
  EXPECT_THAT(why(decides, "6:3r1:r"), HasSubstr("do not divide"));
  EXPECT_THAT(why(decides, std::string(70'000, 'e')), HasSubstr("at most 65536 characters"));
}

// Of words that somebody has changed at random the program is refused or one that passes its check.
TEST(TrainPlan, ChangedWordsNeverBreakIt) {
  std::mt19937 random(9);
  const std::string strategy = "dp=2,pp=2,zero_stage=3,schedule=1f1b,sharding=osdp,bucket_bytes=1MiB", operators = "e+3:s:4k1/3:r:k+h1";
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    TrainPlanText text{.strategy = strategy, .sums = "", .operators = operators, .digest = ""};
    if (random() % 4 == 0) text.sums = "hierarchical:2";
    const bool of_sums = !text.sums.empty() && random() % 2 == 0;
    std::string& changed = of_sums ? text.sums : random() % 2 == 0 ? text.strategy : text.operators;
    for (uint32_t i = 0; i <= random() % 3; ++i) {
      const size_t at = random() % changed.size();
      if (random() % 3 == 0) changed.erase(at, 1);
      else changed[at] = "0123456789:+/=,rskeh"[random() % 20];
      if (changed.empty()) changed.assign(1, 'x');
    }
    const auto program = ExpandTrainPlan(text, Job(), planner::ElementType::kFloat32);
    if (!program) continue;
    ++accepted;
    ASSERT_TRUE(planner::CheckProgram(*program)) << text.strategy << " " << text.operators;
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace weft::formats
