#include "scheduler/slurm/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Expanded(std::string_view text) {
  const auto hosts = ExpandHostlist(text);
  EXPECT_TRUE(hosts.has_value()) << text;
  return hosts.value_or(std::vector<std::string>{});
}

TEST(Hostlist, PlainNamesStayInOrder) { EXPECT_THAT(Expanded("b,a,b"), ElementsAre("b", "a", "b")); }

TEST(Hostlist, EmptyTextHasNoHosts) { EXPECT_TRUE(Expanded("").empty()); }

TEST(Hostlist, RangesKeepZeroPadding) {
  EXPECT_THAT(Expanded("n[1-4,07-09]"), ElementsAre("n1", "n2", "n3", "n4", "n07", "n08", "n09"));
  EXPECT_THAT(Expanded("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(Expanded("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
}

TEST(Hostlist, TextAfterBracketsAndOtherWordsAreKept) {
  EXPECT_THAT(Expanded("gpu[1,3]-ib,login-2"), ElementsAre("gpu1-ib", "gpu3-ib", "login-2"));
}

TEST(Hostlist, SeveralBracketsMultiplyWithTheLastFastest) {
  EXPECT_THAT(Expanded("r[1-2]n[01-02]"), ElementsAre("r1n01", "r1n02", "r2n01", "r2n02"));
}

TEST(Hostlist, MalformedTextIsRejectedWithItsReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"n[1-4", "'[' without ']'"},       {"n1-4]", "']' without '['"},         {"n[1[2]]", "'[' inside brackets"},
      {"n[]", "expected a number"},       {"n[a]", "\"a\" in brackets"},        {"n[4-1]", "runs backwards"},
      {"n[1,,2]", "expected a number"},   {"n1,,n2", "an empty name at character 4"}, {",n1", "an empty name"},
      {"n[1--2]", "expected a number"},   {"n[1-]", "expected a number"},       {"n[-1]", "expected a number"},
      {"n[99999999999999999999]", "expected a number"},
  };
  for (const auto& [text, message] : cases) {
    const auto hosts = ExpandHostlist(text);
    ASSERT_FALSE(hosts.has_value()) << text;
    EXPECT_EQ(hosts.error().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(hosts.error().message(), HasSubstr(message)) << text;
    EXPECT_THAT(hosts.error().message(), HasSubstr(text));
  }
}

TEST(Hostlist, NumberOfHostsIsBounded) {
  EXPECT_EQ(Expanded("n[1-65536]").size(), kMaxHosts);
  for (const char* text : {"n[1-65537]", "n[0-18446744073709551615]", "n[1-65536],m", "a[1-300]b[1-300]"}) {
    const auto hosts = ExpandHostlist(text);
    ASSERT_FALSE(hosts.has_value()) << text;
    EXPECT_THAT(hosts.error().message(), HasSubstr("more than 65536 hosts"));
  }
}

}  // namespace
}  // namespace weft::slurm
