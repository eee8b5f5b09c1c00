// Sleeping for requests, through the exported call.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "netplugin/abi/wait.h"
#include "netplugin/testing/plugin.h"

namespace weft::net::testing {
namespace {

constexpr int64_t kLong = 20'000'000'000, kShort = 30'000'000;  // ns

class WaitTest : public ::testing::Test {
 protected:
  WaitTest() {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("WEFT_RUN_DIR", "", 1);
    plugin_ = std::make_unique<Plugin>(12);
    wait_ = reinterpret_cast<abi::WaitCall*>(const_cast<void*>(plugin_->Symbol(abi::kWaitName)));
    EXPECT_EQ(table().Init(&LogCapture::Logger), nccl::kSuccess);
    pair_ = MakePair(table());
  }
  ~WaitTest() override {
    ClosePair(table(), pair_);
    EXPECT_EQ(table().Finalize(), nccl::kSuccess);
  }
  Table& table() { return **plugin_; }
  int WaitFor(void* request, int64_t most) { return wait_(&request, 1, most); }
  bool Done(void* request) {
    int done = 0, size = 0;
    EXPECT_EQ(table().Test(request, &done, &size), nccl::kSuccess);
    return done == 1;
  }

  std::unique_ptr<Plugin> plugin_;
  abi::WaitCall* wait_ = nullptr;
  Pair pair_;
};

TEST_F(WaitTest, AReceiveIsWokenByWhatComes) {
  std::vector<char> data(1000), sent(1000, 'a');
  void* request = nullptr;
  ASSERT_EQ(table().Receive(pair_.recv, data.data(), data.size(), &request), nccl::kSuccess);
  ASSERT_FALSE(Done(request));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(WaitFor(request, kShort), 0) << "nothing comes";
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::nanoseconds(kShort));
  std::atomic<bool> waits{false};
  std::jthread sender([&] {
    waits.wait(false);
    EXPECT_EQ(SendAll(table(), pair_.send, sent.data(), sent.size()), nccl::kSuccess);
  });
  waits = true;
  waits.notify_one();
  EXPECT_EQ(WaitFor(request, kLong), 1);
  EXPECT_TRUE(Eventually([&] { return Done(request); }));
  EXPECT_EQ(data, sent);
}

TEST_F(WaitTest, ASendIsWokenByRoom) {
  std::vector<char> data(size_t{64} << 20), there(data.size());  // more than the kernel's buffers
  void* request = nullptr;
  ASSERT_EQ(table().Send(pair_.send, data.data(), data.size(), &request), nccl::kSuccess);
  while (WaitFor(request, kShort) == 1) ASSERT_FALSE(Done(request));  // until they are full
  std::jthread receiver([&] {
    int size = 0;
    EXPECT_EQ(ReceiveAll(table(), pair_.recv, there.data(), there.size(), &size), nccl::kSuccess);
  });
  EXPECT_EQ(WaitFor(request, kLong), 1);
  while (!Done(request)) WaitFor(request, kLong);  // or at once, where more is to be handed to the kernel
}

/// What it is for: waiting takes next to none of the processor.
TEST_F(WaitTest, SleepsInPlaceOfPolling) {
  char byte = 0;
  void* request = nullptr;
  ASSERT_EQ(table().Receive(pair_.recv, &byte, 1, &request), nccl::kSuccess);
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  EXPECT_EQ(WaitFor(request, 200'000'000), 0);
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_LE(after.ru_nvcsw - before.ru_nvcsw, 3);
  char sent = 'x';
  EXPECT_EQ(SendAll(table(), pair_.send, &sent, 1), nccl::kSuccess);
  EXPECT_TRUE(Eventually([&] { return Done(request); }));
}

TEST_F(WaitTest, RefusesWhatIsNoRequestOfAnything) {
  char byte = 0;
  void* request = nullptr;
  EXPECT_EQ(wait_(nullptr, 1, kShort), -1);
  EXPECT_EQ(WaitFor(nullptr, kShort), -1);
  ASSERT_EQ(table().Receive(pair_.recv, &byte, 1, &request), nccl::kSuccess);
  EXPECT_EQ(wait_(&request, 0, kShort), -1);
  EXPECT_EQ(WaitFor(request, -1), -1);
  EXPECT_EQ(SendAll(table(), pair_.send, "y", 1), nccl::kSuccess);
  EXPECT_TRUE(Eventually([&] { return Done(request); }));
}

}  // namespace
}  // namespace weft::net::testing
