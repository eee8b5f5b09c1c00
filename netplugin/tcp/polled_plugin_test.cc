// Receives into memory that is polled while it is written, through the exported tables.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "netplugin/testing/plugin.h"

namespace weft::net::testing {
namespace {

class PolledTest : public ::testing::TestWithParam<int> {
 protected:
  PolledTest() {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("WEFT_RUN_DIR", "", 1);
    plugin_ = std::make_unique<Plugin>(GetParam());
    EXPECT_EQ(table().Init(&LogCapture::Logger), nccl::kSuccess);
  }
  ~PolledTest() override { EXPECT_EQ(table().Finalize(), nccl::kSuccess); }
  Table& table() { return **plugin_; }

  std::unique_ptr<Plugin> plugin_;
};

INSTANTIATE_TEST_SUITE_P(Versions, PolledTest, ::testing::Values(7, 8, 9, 10, 11, 12),
                         [](const auto& version) { return std::string("V").append(std::to_string(version.param)); });

/// What is polled for flags while it is written: every size, also such that chunks end within a line or the stage.
TEST_P(PolledTest, CarriesMessagesThatArePolled) {
  const Pair pair = MakePair(table());
  const std::vector<size_t> sizes = {0, 1, 128, 614'400, 65536, 50'000, 3, 614'400, (1 << 20) + 3, 614'400};
  std::thread sender([&] {
    std::vector<char> data;
    for (size_t i = 0; i < sizes.size(); ++i) {
      Fill(&data, sizes[i], i);
      EXPECT_EQ(SendAll(table(), pair.send, data.data(), sizes[i]), nccl::kSuccess);
    }
  });
  std::vector<char> data((2 << 20) + 8);
  for (size_t i = 0; i < sizes.size(); ++i) {
    // Versions 7 and 8 take no hint: there the size of an LL128 step says it.
    void* request = GetParam() >= 9 ? reinterpret_cast<void*>(nccl::kHintOptionalRecvCompletion) : nullptr;
    size_t room = sizes[i];
    int tag = 0, done = 0, size = -1;
    void *to = data.data() + 1, *mhandle = nullptr;  // not aligned, which NCCL's are
    ASSERT_EQ(table().Irecv(pair.recv, 1, &to, &room, &tag, &mhandle, &request), nccl::kSuccess);
    ASSERT_NE(request, nullptr);
    ASSERT_TRUE(Eventually([&] { return table().Test(request, &done, &size) == nccl::kSuccess && done == 1; }));
    EXPECT_EQ(static_cast<size_t>(size), sizes[i]);
    EXPECT_TRUE(Check(std::vector<char>(data.begin() + 1, data.end()), sizes[i], i)) << "message " << i;
  }
  sender.join();
  ClosePair(table(), pair);
}

}  // namespace
}  // namespace weft::net::testing
