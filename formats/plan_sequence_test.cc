#include "formats/plan_sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlanSequence, ReadsStepsAndFiles) {
  EXPECT_THAT(ParsePlanSequence("# step program\n 0  a b.json \r\n\n50\tc.json", "p").value(),
              ElementsAre(PlannedProgram{0, "a b.json"}, PlannedProgram{50, "c.json"}));
}

TEST(PlanSequence, NamesTheLineThatIsWrong) {
  const struct {
    const char* text;
    const char* piece;
  } cases[] = {
      {"", "at least one program"},
      {"# none\n", "at least one program"},
      {"5 a.json\n", "line 1: step 5, expected the first program at 0"},
      {"0 a\n7 b\n7 c\n", "line 3: step 7"},
      {"0 a\nb.json\n", "line 2: expected a step"},
      {"0 a\n-3 b\n", "line 2: expected"},
      {"0\n", "line 1: expected"},
      {"0a b\n", "line 1: expected"},
      {"0 a\n99999999999999999999 b\n", "line 2: expected"},
      {"0 a\x01\n", "line 1: expected"},
  };
  for (const auto& one : cases) {
    const auto read = ParsePlanSequence(one.text, "p");
    ASSERT_FALSE(read) << one.text;
    EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr("p: "));
    EXPECT_THAT(read.error().message(), HasSubstr(one.piece)) << one.text;
  }
  std::string many;
  for (int i = 0; i < 1001; ++i) many += std::to_string(i) + " a\n";
  EXPECT_THAT(ParsePlanSequence(many, "p").error().message(), HasSubstr("at most 1000"));
}

}  // namespace
}  // namespace weft::formats
