#include "netplugin/interfaces/environment_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "netplugin/testing/log_capture.h"

namespace weft::net {
namespace {

using testing::LogCapture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class EnvironmentPlugin : public ::testing::Test {
 protected:
  EnvironmentPlugin() {
    LogCapture::Clear();
    unsetenv("NCCL_MAX_CTAS");
    unsetenv("NCCL_IB_TC");
  }
  ~EnvironmentPlugin() override {
    CloseEnvironment();
    unsetenv(kDefaultsVariable);
    unsetenv("NCCL_IB_TC");
  }
};

TEST_F(EnvironmentPlugin, ThePlanFillsWhatTheUserLeavesUnset) {
  setenv(kDefaultsVariable, "NCCL_MAX_CTAS=8;NCCL_IB_TC=104", 1);
  setenv("NCCL_IB_TC", "26", 1);
  ASSERT_EQ(OpenEnvironment(&LogCapture::Logger), nccl::kSuccess);
  EXPECT_STREQ(GetVariable("NCCL_MAX_CTAS"), "8");
  EXPECT_STREQ(GetVariable("NCCL_IB_TC"), "26");
  EXPECT_EQ(GetVariable("NCCL_NO_SUCH"), nullptr);
  EXPECT_EQ(GetVariable(nullptr), nullptr);
  EXPECT_THAT(LogCapture::Lines(), ElementsAre(HasSubstr("NCCL_MAX_CTAS=8 by the plan"),
                                               HasSubstr("NCCL_IB_TC=26 is the user's; the plan would have 104")));
}

TEST_F(EnvironmentPlugin, ValuesStayWhatTheyWereUntilTheEnd) {
  setenv(kDefaultsVariable, "NCCL_MAX_CTAS=8", 1);
  ASSERT_EQ(OpenEnvironment(nullptr), nccl::kSuccess);
  const char* value = GetVariable("NCCL_MAX_CTAS");
  setenv(kDefaultsVariable, "NCCL_MAX_CTAS=16", 1);
  ASSERT_EQ(OpenEnvironment(nullptr), nccl::kSuccess);
  EXPECT_EQ(GetVariable("NCCL_MAX_CTAS"), value);
  EXPECT_STREQ(value, "8");
  CloseEnvironment();
  EXPECT_EQ(GetVariable("NCCL_MAX_CTAS"), nullptr);
}

TEST(NcclDefaults, ReadsNamesAndValues) {
  std::string problem;
  EXPECT_THAT(ParseNcclDefaults("NCCL_A=1;NCCL_B_2=x=y;NCCL_C=", &problem),
              ::testing::ElementsAre(Pair("NCCL_A", "1"), Pair("NCCL_B_2", "x=y"), Pair("NCCL_C", "")));
  EXPECT_EQ(problem, "");
  EXPECT_THAT(ParseNcclDefaults("", &problem), IsEmpty());
  EXPECT_EQ(problem, "");
}

TEST(NcclDefaults, OneMistakeRefusesAll) {
  std::string many = "NCCL_0=0";
  for (int i = 1; i < 65; ++i) many += ";NCCL_" + std::to_string(i) + "=0";
  const std::pair<std::string, const char*> cases[] = {
      {"NCCL_A=1;LD_PRELOAD=/tmp/x.so", "\"LD_PRELOAD=/tmp/x.so\": expected NCCL_NAME=VALUE"},
      {"NCCL_A", "expected NCCL_NAME=VALUE"},
      {"NCCL_=1", "expected NCCL_NAME=VALUE"},
      {"NCCL_a=1", "expected NCCL_NAME=VALUE"},
      {"NCCL_A=1;", "expected NCCL_NAME=VALUE"},
      {"NCCL_A=1;NCCL_A=2", "expected each name once"},
      {many, "at most 64 names"},
      {std::string("NCCL_A=").append(5000, 'x'), "at most 4096 bytes"},
  };
  for (const auto& [text, expected] : cases) {
    std::string problem;
    EXPECT_THAT(ParseNcclDefaults(text, &problem), IsEmpty()) << text;
    EXPECT_THAT(problem, HasSubstr(expected));
    EXPECT_THAT(problem, HasSubstr("all of it is refused"));
  }
}

TEST(NcclDefaults, AMutatedTextIsReadWholeOrRefusedWhole) {
  std::mt19937 random(7);
  const std::string alphabet = "NCL_=;Aa0 \n\xff";
  for (int round = 0; round < 20000; ++round) {
    std::string text = "NCCL_A=1;NCCL_B_2=x=y;NCCL_C=";
    for (uint32_t i = 0; i <= random() % 4; ++i) {
      const size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      if (random() % 3 == 0) text.insert(at, 1, c);
      else if (random() % 2 == 0) text[at] = c;
      else text.erase(at, 1);
    }
    std::string problem, again;
    const NcclDefaults defaults = ParseNcclDefaults(text, &problem);
    EXPECT_EQ(defaults.empty(), !problem.empty()) << text;
    for (const auto& [name, value] : defaults) {
      EXPECT_TRUE(name.starts_with("NCCL_") && name.find('=') == std::string::npos) << text;
      again.append(again.empty() ? "" : ";").append(name).append("=").append(value);
    }
    if (problem.empty()) {
      EXPECT_EQ(again, text) << "nothing of it is lost";
    }
  }
}

}  // namespace
}  // namespace weft::net
