#include "tests/real/training.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace weft::real {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A job in the lower class whose every byte was planned.
MixOutcome Made() {
  MixOutcome made;
  made.outcome.policy = "weft";
  made.outcome.jobs = {{.name = "moe", .spines = {"spine1", ""}, .traffic_class = 1, .measured = Seconds(2), .median = Seconds(1.9),
                        .iterations = 7}};
  made.strategies = {"dp=4 ep=4"};
  made.hosts = {{"h1", "h2"}};
  made.foretold = {Seconds(1.8)};
  made.ending.jobs = {{.steps = 9, .bytes_sent = 500, .bytes_planned = 500, .busy = 0.4, .overruns = 0.01}};
  return made;
}

TEST(RealTraining, NothingIsBrokenWhereAllFactsHold) { EXPECT_THAT(BrokenFacts(Made()), IsEmpty()); }

TEST(RealTraining, EachBrokenFactIsNamed) {
  const auto broken = [](auto spoil) {
    MixOutcome made = Made();
    spoil(made);
    return BrokenFacts(made);
  };
  EXPECT_THAT(broken([](MixOutcome& m) { m.ending.rejected = 3; }), ElementsAre("weft: 3 policy entries were refused by plugins"));
  EXPECT_THAT(broken([](MixOutcome& m) { m.outcome.jobs[0].iterations = 0; }), ElementsAre(HasSubstr("no whole iteration")));
  EXPECT_THAT(broken([](MixOutcome& m) { m.ending.jobs[0].bytes_sent = 501; }),
              ElementsAre(HasSubstr("501 bytes, its program says 500")));
  EXPECT_THAT(broken([](MixOutcome& m) { m.ending.jobs[0] = {.steps = 9}; }), ElementsAre(HasSubstr("program says 0")));
  EXPECT_THAT(broken([](MixOutcome& m) { m.outcome.jobs[0].marked = 0.5; }), ElementsAre(HasSubstr("which it was not given")));
  EXPECT_THAT(broken([](MixOutcome& m) { m.outcome.jobs[0].traffic_class = 0; }), ElementsAre(HasSubstr("which it was given")));
}

TEST(RealTraining, TheLineSaysWhatWasMeasuredAndForetold) {
  const auto line = nlohmann::json::parse(TrainingLine(Made()));
  EXPECT_EQ(line["policy"], "weft");
  EXPECT_EQ(line["jobs"][0]["median_s"], 1.9);
  EXPECT_EQ(line["jobs"][0]["predicted_s"], 1.8);
  EXPECT_EQ(line["jobs"][0]["hosts"], (nlohmann::json{"h1", "h2"}));
}

TEST(RealModel, AJobSendsBetweenTheHostsThatItsFlowsName) {
  const JobSpec spec{.name = "a", .hosts = {"h3", "h1", "h2"}, .compute = Seconds(2), .bytes = Bytes(0),
                     .flows = {{.from = 1, .to = 2, .bytes = Bytes(700)}, {.from = 0, .to = 2, .bytes = Bytes(30)}}};
  const Model model = MakeModel({.hosts_per_leaf = 2}, {spec}, MegabitsPerSecond(8));
  ASSERT_EQ(model.jobs[0].flows.size(), 2u);
  EXPECT_EQ(model.jobs[0].flows[0].bytes, Bytes(700));
  EXPECT_EQ(SpineOf(model, 0, 0, 0), "") << "h1 and h2 are below one leaf";
  EXPECT_NE(SpineOf(model, 0, 1, 0), "") << "h3 is below the other";
}

}  // namespace
}  // namespace weft::real
