#include "netplugin/background.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <latch>
#include <new>
#include <thread>

#include "netplugin/log.h"
#include "netplugin/testing/log_capture.h"

namespace weft::net {
namespace {

using abi::BackgroundState;
using testing::LogCapture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Sweeps until it is told to fail; lets the test wait for its first sweep.
class Task final : public BackgroundTask {
 public:
  void Sweep(const Tick&) override {
    if (fails.load()) throw std::bad_alloc();
    if (!swept.exchange(true)) first.count_down();
  }
  std::atomic<bool> fails{false}, swept{false};
  std::latch first{1};
};

TEST(Background, AnErrorThatEndsTheThreadIsToldAndTheNextStartBeginsAnew) {
  abi::BackgroundSlot slot{};
  const auto state = [&] { return static_cast<BackgroundState>(slot.state.load()); };
  LogCapture::Clear();
  SetLogger(&LogCapture::Logger);
  Background background(&slot);
  EXPECT_EQ(state(), BackgroundState::kNone);
  Task broken;
  broken.fails = true;
  background.Add(&broken);
  background.Start();
  while (LogCapture::Lines().empty()) std::this_thread::yield();  // the line is the last that the thread does
  SetLogger(nullptr);
  EXPECT_EQ(state(), BackgroundState::kFailed);
  EXPECT_THAT(LogCapture::Lines(), ElementsAre(HasSubstr("background thread ended: std::bad_alloc")));
  background.Remove(&broken);

  Task sound;
  background.Add(&sound);
  background.Start();
  sound.first.wait();
  EXPECT_EQ(state(), BackgroundState::kRuns);
  EXPECT_GT(slot.swept_ns.load(), 0u);
  background.Start();  // it runs: nothing
  background.Remove(&sound);
  background.Stop();
  EXPECT_EQ(state(), BackgroundState::kNone);
}

TEST(Background, TheCallersSignalMaskIsAsBefore) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Background background;
  background.Start();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  }
}

}  // namespace
}  // namespace weft::net
