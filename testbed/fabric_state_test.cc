#include "testbed/fabric_state.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace weft::testbed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FabricState Sample(const std::string& id = "lab") {
  return {.options = {.id = id,
                      .leaves = 3,
                      .spines = 2,
                      .hosts_per_leaf = 5,
                      .link_rate = MegabitsPerSecond(123),
                      .spine_link_rate = MegabitsPerSecond(45),
                      .hash_seed = 4000000000U,
                      .classes = {{46, 60}, {0, 40}},
                      .grain = Seconds(250e-6),
                      .queue = Bytes(32 << 10),
                      .fair = true},
          .slot = 9,
          .owner = Owner{.pid = 77, .start_ticks = 12345678901234ULL}};
}

TEST(FabricState, TextKeepsEverything) {
  const FabricState state = Sample();
  const auto read = ParseState("x.json", FormatState(state));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(*read, state);

  FabricState ownerless = state;
  ownerless.owner.reset();
  ownerless.options.hash_seed.reset();
  EXPECT_EQ(ParseState("x.json", FormatState(ownerless)).value(), ownerless);
}

TEST(FabricState, RefusesWhatWeWouldNotHaveWritten) {
  std::string hostile = FormatState(Sample());
  hostile.replace(hostile.find("\"lab\""), 5, "\"../x\"");
  std::string future = FormatState(Sample());
  future.replace(future.find("\"version\": 1"), 12, "\"version\": 2");
  std::string crowded = FormatState(Sample());
  crowded.replace(crowded.find("\"slot\": 9"), 9, "\"slot\": 999");
  const struct {
    std::string text;
    const char* message;
  } cases[] = {{"", "parse error"},
               {"[1]", "x.json"},
               {"{\"version\": 1}", "key 'id' not found"},
               {"{\"version\": \"one\"}", "type must be number"},
               {hostile, "fabric id \"../x\""},
               {future, "version 2, expected 1"},
               {crowded, "slot 999, must be 1 to 254"}};
  for (const auto& one : cases) {
    const auto state = ParseState("x.json", one.text);
    ASSERT_FALSE(state.has_value()) << one.text;
    EXPECT_EQ(state.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(state.error().message(), HasSubstr("fabric state \"x.json\""));
    EXPECT_THAT(state.error().message(), HasSubstr(one.message));
  }
}

TEST(ParseProcStat, FindsTheStartTimeBehindAnyName) {
  const std::string fields = "1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 222 333";
  EXPECT_EQ(ParseProcStat("42 (a) R) S " + fields).value(), 98765U);
  EXPECT_EQ(ParseProcStat("42 (sh) Z " + fields).value(), std::nullopt);
  for (const char* text : {"", "42", "42 (sh)", "42 (sh) S 1 2 3", "42 (sh) S a b c d e f g h i j k l m n o p q r s t u"}) {
    const auto ticks = ParseProcStat(text);
    ASSERT_FALSE(ticks.has_value()) << text;
    EXPECT_EQ(ticks.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(ticks.error().message(), HasSubstr("at least 22 fields"));
  }
}

TEST(Owner, IsAliveUntilItDies) {
  const auto self = Self();
  ASSERT_TRUE(self.has_value()) << self.error().message();
  EXPECT_TRUE(IsAlive(*self));
  EXPECT_FALSE(IsAlive({.pid = self->pid, .start_ticks = self->start_ticks + 1}));  // the pid's next bearer

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    ::close(ends[1]);
    (void)!::read(ends[0], &byte, 1);
    ::_exit(0);
  }
  std::ifstream file("/proc/" + std::to_string(child) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Owner owner{.pid = child, .start_ticks = ParseProcStat(text).value().value()};
  EXPECT_TRUE(IsAlive(owner));
  ::close(ends[1]);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(IsAlive(owner));  // a zombie owns nothing
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(IsAlive(owner));
  ::close(ends[0]);
}

class StateStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "weft-state-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string root_;
};

TEST_F(StateStoreTest, ListsWhatWasWrittenById) {
  const StateStore store(root_ + "/run");
  EXPECT_THAT(store.List().value(), IsEmpty());  // and makes no folder for looking
  EXPECT_FALSE(std::filesystem::exists(root_ + "/run"));
  const auto lock = store.Lock();
  ASSERT_TRUE(lock.has_value()) << lock.error().message();
  ASSERT_TRUE(store.Write(Sample("b")).has_value());
  ASSERT_TRUE(store.Write(Sample("a")).has_value());
  EXPECT_THAT(store.List().value(), ElementsAre(Sample("a"), Sample("b")));
  ASSERT_TRUE(store.Erase("a").has_value());
  ASSERT_TRUE(store.Erase("a").has_value());
  EXPECT_THAT(store.List().value(), ElementsAre(Sample("b")));
}

TEST_F(StateStoreTest, OneBadFileHidesNoOther) {
  const StateStore store(root_);
  ASSERT_TRUE(store.Write(Sample()).has_value());
  std::ofstream(root_ + "/broken.json") << "{";
  std::vector<std::string> unreadable;
  EXPECT_THAT(store.List(&unreadable).value(), ElementsAre(Sample()));
  EXPECT_THAT(unreadable, ElementsAre(HasSubstr("broken.json")));
}

TEST_F(StateStoreTest, NamesTheFabricThatIsNotThere) {
  const auto state = StateStore(root_).Read("none");
  ASSERT_FALSE(state.has_value());
  EXPECT_EQ(state.error().code(), Code::kNotFound);
  EXPECT_THAT(state.error().message(), HasSubstr("no fabric \"none\""));
}

}  // namespace
}  // namespace weft::testbed
