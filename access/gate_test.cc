#include "access/gate.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <map>

#include "controller/testing/temp_dir.h"

namespace weft::access {
namespace {

using controller::testing::TempDir;
using ::testing::HasSubstr;

/// A gate with a clock of its own, and how often it refused for what.
struct Door {
  explicit Door(bool tls, TokenFiles tokens = {})
      : gate({.tls = tls, .revoked = "", .tokens = std::move(tokens), .component = "test", .now = [this] { return now; },
              .count = [this](const char* why) { ++refused[why]; }}) {}
  Seconds now{0};
  std::map<std::string, int> refused;
  Gate gate;
};

// With TLS, without a certificate: 50 calls of an operator at once and 10 a second, 16 times that from one address.
TEST(Gate, WhoCannotSayWhoHeIsCallsInALoopNoMoreThanOthers) {
  Door door(true);
  // Each from another port.
  int port = 0;
  const auto call = [&](const std::string& address) {
    return door.gate.Admit({.peer = address + ":" + std::to_string(++port), .certificate = "", .token = ""}, Access::kOperate);
  };
  const auto unnamed_calls = [&] {
    int count = 0;
    while (count < 10'000 && call("ipv4:10.0.0.7").error().error.code() == Code::kUnauthenticated) ++count;
    return count;
  };
  EXPECT_EQ(unnamed_calls(), 16 * 50);
  const auto late = call("ipv4:10.0.0.7");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().error.code(), Code::kResourceExhausted);
  EXPECT_THAT(late.error().error.message(), HasSubstr("ipv4:10.0.0.7 calls more often than 160 times a second"));
  EXPECT_STREQ(late.error().why, "rate");
  EXPECT_NEAR(late.error().again_after.count(), 1.0 / 160, 1e-9);
  EXPECT_EQ(call("ipv4:10.0.0.8").error().error.code(), Code::kUnauthenticated) << "another address has calls of its own";
  door.now = Seconds(1);
  EXPECT_EQ(unnamed_calls(), 160);
  EXPECT_EQ(door.refused["rate"], 3) << "two that ended a loop, and one";
}

TEST(Gate, ATokenStandsForARole) {
  const TempDir dir;
  const std::string viewer = "0123456789abcdef0123456789abcdef", operators = "fedcba9876543210fedcba9876543210";
  const TokenFiles files{.viewer = dir.path() + "/viewer", .operators = dir.path() + "/operator"};
  std::ofstream(files.viewer) << viewer << "\n";
  std::ofstream(files.operators) << operators << "\n";
  for (const std::string& file : {files.viewer, files.operators}) ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  Door door(true, files);
  ASSERT_TRUE(door.gate.Load());
  const auto admit = [&](const std::string& token, Access access) {
    return door.gate.Admit({.peer = "ipv4:10.0.0.7:1", .certificate = "", .token = token}, access);
  };
  EXPECT_TRUE(admit(viewer, Access::kRead));
  EXPECT_TRUE(admit(operators, Access::kRead));
  EXPECT_TRUE(admit(operators, Access::kOperate));
  const auto changes = admit(viewer, Access::kOperate);
  ASSERT_FALSE(changes);
  EXPECT_STREQ(changes.error().why, "role");
  EXPECT_THAT(changes.error().error.message(), HasSubstr("viewer \"token 1\" may not do this: expected an operator"));
  const auto wrong = admit("0123456789abcdef0123456789abcdeX", Access::kRead);
  ASSERT_FALSE(wrong);
  EXPECT_STREQ(wrong.error().why, "token");
  EXPECT_STREQ(admit("", Access::kRead).error().why, "identity");
  EXPECT_EQ(door.refused, (std::map<std::string, int>{{"identity", 1}, {"role", 1}, {"token", 1}}));
}

TEST(Gate, TokensWithoutTlsAreAnError) {
  Door door(false, {.viewer = "/nowhere", .operators = ""});
  EXPECT_THAT(door.gate.Load().error().message(), HasSubstr("tokens without TLS"));
}

}  // namespace
}  // namespace weft::access
