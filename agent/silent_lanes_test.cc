#include "agent/silent_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

namespace weft::agent {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kNow = 1'000'000'000'000, kSecond = 1'000'000'000;

Result<UnsentBytes> Hundred(int) {
  UnsentBytes unsent{UniqueFd(::memfd_create("unsent", MFD_CLOEXEC)), 100};
  if (::ftruncate(unsent.file.get(), 100) != 0) return Fail(Code::kInternal, "ftruncate");
  return unsent;
}

std::vector<SilentLanes::Answer> WaitForAnswers(SilentLanes& lanes, size_t count, uint64_t now_ns) {
  std::vector<SilentLanes::Answer> all;
  for (int tries = 0; all.size() < count && tries < 5000; ++tries) {
    pollfd ready{lanes.event_fd(), POLLIN, 0};
    ::poll(&ready, 1, 1);
    for (SilentLanes::Answer& answer : lanes.TakeAnswers(now_ns)) all.push_back(std::move(answer));
  }
  return all;
}

Status Ask(SilentLanes& lanes, uid_t uid, uint64_t token, uint64_t now_ns = kNow) {
  return lanes.Ask(uid, 1, token, UniqueFd(::memfd_create("lane", MFD_CLOEXEC)), UINT64_MAX, now_ns);
}

off_t SizeOf(int fd) {
  struct stat status{};
  return ::fstat(fd, &status) == 0 ? status.st_size : -1;
}

TEST(SilentLanes, AFileIsEmptiedAfterAWhileWhoeverKeepsIt) {
  SilentLanes lanes(&Hundred);
  EXPECT_EQ(lanes.NextMs(kNow), -1);
  ASSERT_TRUE(Ask(lanes, 1000, 7));
  const auto answers = WaitForAnswers(lanes, 1, kNow);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].token, 7u);
  ASSERT_TRUE(answers[0].taken);
  const int file = answers[0].taken->file.get();
  EXPECT_EQ(SizeOf(file), 100);
  EXPECT_GT(lanes.NextMs(kNow), 4000);
  lanes.TakeAnswers(kNow + 5 * kSecond);
  EXPECT_EQ(SizeOf(file), 0);
  EXPECT_EQ(lanes.NextMs(kNow + 5 * kSecond), -1);
}

TEST(SilentLanes, ALateQuestionIsLeftAlone) {
  bool called = false;
  SilentLanes lanes([&](int fd) {
    called = true;
    return Hundred(fd);
  });
  ASSERT_TRUE(lanes.Ask(1000, 1, 7, UniqueFd(::memfd_create("lane", MFD_CLOEXEC)), 1, kNow));
  const auto answers = WaitForAnswers(lanes, 1, kNow);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_FALSE(answers[0].taken);
  EXPECT_FALSE(called);
}

TEST(SilentLanes, EachUserHasANumberASecondAndSoMuchMemory) {
  SilentLanes lanes(&Hundred, {.at_once = 3, .per_s = 1, .kept_bytes = 400});
  for (const uid_t uid : {1000, 1001}) {
    for (uint64_t token = 0; token < 3; ++token) ASSERT_TRUE(Ask(lanes, uid, token));
    EXPECT_THAT(Ask(lanes, uid, 3).error().message(), HasSubstr("per second and user"));
  }
  EXPECT_EQ(WaitForAnswers(lanes, 6, kNow).size(), 6u);
  ASSERT_TRUE(Ask(lanes, 1000, 4, kNow + kSecond)) << "a second later one more";
  EXPECT_FALSE(Ask(lanes, 1000, 5, kNow + kSecond));
  EXPECT_EQ(WaitForAnswers(lanes, 1, kNow + kSecond).size(), 1u);
  EXPECT_THAT(Ask(lanes, 1000, 6, kNow + 2 * kSecond).error().message(), HasSubstr("hold 400 bytes"));
  lanes.TakeAnswers(kNow + 10 * kSecond);
  EXPECT_TRUE(Ask(lanes, 1000, 7, kNow + 10 * kSecond));
}

/// As one whose system calls on his socket do not come back.
TEST(SilentLanes, AUserWhoHangsHoldsUpNobodyElse) {
  auto go_on = std::make_shared<std::binary_semaphore>(0);
  {
    SilentLanes lanes([go_on](int fd) {
      char first = 0;
      if (::pread(fd, &first, 1, 0) == 1) go_on->acquire();
      return Hundred(fd);
    }, {.at_once = 4, .users = 2});
    UniqueFd hangs(::memfd_create("lane", MFD_CLOEXEC));
    ASSERT_EQ(::write(hangs.get(), "x", 1), 1);
    ASSERT_TRUE(lanes.Ask(1000, 1, 1, std::move(hangs), UINT64_MAX, kNow));
    ASSERT_TRUE(Ask(lanes, 1001, 2));
    const auto answers = WaitForAnswers(lanes, 1, kNow);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].token, 2u);
  }  // and the end is not held up either
  go_on->release();
}

}  // namespace
}  // namespace weft::agent
