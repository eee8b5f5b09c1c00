#include "runtime/reshard/word.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/train_plan.h"
#include "planner/parallelism/program/testing/small_models.h"

namespace weft::runtime {
namespace {

using testing::HasSubstr;

planner::JobSpec Job() {
  return {.name = "j",
          .model = planner::SmallLlama(),
          .global_batch = 24,
          .sequence = 32,
          .precision = planner::Precision::kFp32,
          .gpus = 4};
}

planner::StepProgram Program(const planner::Strategy& strategy) {
  return planner::ExpandProgram(Job(), strategy, planner::ElementType::kFloat32).value();
}

std::string Words(const planner::Strategy& strategy) {
  return fmt::format("{}", fmt::join(formats::TrainArguments(Job(), strategy, {}).value(), " "));
}

/// Why a run of `running` does not follow.
std::string Refused(const std::string& arguments, const planner::Strategy& running = {.dp = 4}) {
  const auto program = ProgramOfWord({.epoch = 1, .arguments = arguments}, Job().model, Program(running), 4);
  EXPECT_FALSE(program.has_value()) << arguments;
  if (program) return "";
  EXPECT_EQ(program.error().code(), Code::kInvalidArgument);
  return program.error().message();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Word, ComesFromTheLaunchEnvironment) {
  const auto word = WordOf({{"A", "b"}, {"WEFT_RESHARD_EPOCH", "7"}, {"WEFT_ARGUMENTS", "--strategy dp=4"}});
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->epoch, 7u);
  EXPECT_EQ(word->arguments, "--strategy dp=4");
  for (const char* epoch : {"", "0", "-1", "1x", " 1", "99999999999999999999", "18446744073709551615"})
    EXPECT_FALSE(WordOf({{"WEFT_RESHARD_EPOCH", epoch}}).has_value()) << epoch;
  EXPECT_FALSE(WordOf({{"WEFT_ARGUMENTS", "--strategy dp=4"}}).has_value()) << "launched so, and never told another";
}

TEST(Word, IsTheProgramThatWasPlanned) {
  const auto program = ProgramOfWord({.epoch = 1, .arguments = Words({.dp = 2, .pp = 2})}, Job().model, Program({.dp = 4}), 4);
  ASSERT_TRUE(program.has_value()) << program.error().message();
  EXPECT_EQ(*program, Program({.dp = 2, .pp = 2}));
}

TEST(Word, ThatCannotBeFollowedIsRefusedWithItsReason) {
  const std::string good = Words({.dp = 2, .pp = 2}), digest = good.substr(good.find(" --program-digest"));
  EXPECT_THAT(Refused(Words({.dp = 2})), HasSubstr("made for 2 ranks, this run has 4"));
  EXPECT_THAT(Refused(Replaced(good, digest, " --program-digest 0123456789abcdef")),
              HasSubstr("--program-digest 0123456789abcdef: this model's program has"));
  EXPECT_THAT(Refused(Replaced(good, digest, "")), HasSubstr("no --program-digest"));
  EXPECT_THAT(Refused(Replaced(good, "--seq 32", "--seq 16")), HasSubstr("24 sequences of 16, expected the 24 of 32"));
  EXPECT_THAT(Refused(Replaced(good, "dp=2,pp=2", "dp=2,qq=2")), HasSubstr("--strategy"));
  EXPECT_THAT(Refused(good + " --resume /tmp/x"), HasSubstr("word \"--resume\""));
  EXPECT_THAT(Refused(""), HasSubstr("--seq"));
  EXPECT_THAT(Refused(std::string(8193, 'a')), HasSubstr("8193 bytes, expected at most 8192"));
  const planner::Strategy differ{.dp = 4, .local_steps = 2};
  EXPECT_THAT(Refused(good, differ), HasSubstr("replicas that differ would be lost"));
  EXPECT_THAT(Refused(Words(differ)), HasSubstr("replicas that differ would be lost"));
}

TEST(Meeting, TextComesBackAndNothingElseIsTaken) {
  for (const Word& word : {Word{}, Word{.epoch = 3, .arguments = "--strategy dp=4 --seq 32"}}) {
    const auto said = ParseMeetingText(MeetingText(12, word));
    ASSERT_TRUE(said.has_value());
    EXPECT_EQ(said->steps, 12);
    EXPECT_EQ(said->word.epoch, word.epoch);
    EXPECT_EQ(said->word.arguments, word.arguments);
  }
  for (const char* text : {"", "0 0 ", "-1 0 ", "1000001 0 ", "1", "1 x", "x 1 ", "1 -1 a"})
    EXPECT_FALSE(ParseMeetingText(text).has_value()) << text;
}

}  // namespace
}  // namespace weft::runtime
