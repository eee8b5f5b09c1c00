// What the RDMA transport asks of real devices beside carrying flows: finding them, registering memory, flushing. For
// machines that have two active ports; roce_test.py runs it inside one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>

#include "netplugin/rdma/flusher.h"
#include "netplugin/rdma/port.h"
#include "netplugin/tcp/socket.h"

namespace weft::net::rdma {
namespace {

class RdmaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    RdmaEnvironment environment;
    environment.recovery_s = 1;  // what can never succeed is given up while a test waits
    ports_ = FindPorts(environment);
    ASSERT_EQ(ports_.usable.size(), 2u) << ports_.why;
  }
  Ports ports_;
};

TEST_F(RdmaDevice, RxeFollowsTheFlowLabelAndHasNoGpuMemory) {
  for (const auto& port : ports_.usable) {
    EXPECT_TRUE(port->ethernet());
    EXPECT_EQ(port->rule(), PortRule::kFlowLabel) << "Linux 5.18 and later";
    EXPECT_FALSE(port->mlx5());
    EXPECT_EQ(port->ptr_support(), nccl::kPtrHost);
    EXPECT_GE(port->longest_write(), 1u << 20);
    EXPECT_FALSE(port->down());
  }
  EXPECT_NE(ports_.usable[0]->name(), ports_.usable[1]->name());
}

TEST_F(RdmaDevice, MemoryIsRegisteredInPagesAndShared) {
  Port& port = *ports_.usable[0];
  alignas(4096) static char memory[16384];
  MemoryRegion* whole = port.Register(memory, 16384);
  ASSERT_NE(whole, nullptr);
  MemoryRegion* inside = port.Register(memory + 100, 1000);
  EXPECT_EQ(inside, whole) << "what is registered already covers it";
  EXPECT_EQ(whole->users, 2u);
  port.Deregister(inside);
  port.Deregister(whole);
  EXPECT_EQ(port.Register(nullptr, 4096), nullptr) << "no memory is there";
}

TEST_F(RdmaDevice, AFlushComesBack) {
  std::string why;
  const auto flusher = Flusher::Make(ports_.usable[0], &why);
  ASSERT_TRUE(flusher) << why;
  alignas(4096) static char memory[4096];
  MemoryRegion* region = ports_.usable[0]->Register(memory, sizeof memory);
  ASSERT_NE(region, nullptr);
  for (uint32_t slot = 0; slot < 5; ++slot) {
    flusher->Start(reinterpret_cast<uint64_t>(memory) + slot, region->mr->rkey, slot);
  }
  uint32_t back = 0;
  const uint64_t deadline = NowNs() + 30'000'000'000;
  while (back < 5 && NowNs() < deadline) {
    ASSERT_TRUE(flusher->Poll([&](uint32_t slot) { EXPECT_EQ(slot, back++); }));
    sched_yield();
  }
  EXPECT_EQ(back, 5u);
  ports_.usable[0]->Deregister(region);
}

TEST_F(RdmaDevice, AFlushOfMemoryThatIsNotRegisteredFails) {
  std::string why;
  const auto flusher = Flusher::Make(ports_.usable[1], &why);
  ASSERT_TRUE(flusher) << why;
  flusher->Start(4096, 0x1234, 0);
  bool good = true;
  const uint64_t deadline = NowNs() + 30'000'000'000;
  while (good && NowNs() < deadline) {
    good = flusher->Poll([](uint32_t) { ADD_FAILURE() << "it cannot come back"; });
    sched_yield();
  }
  EXPECT_FALSE(good);
}

}  // namespace
}  // namespace weft::net::rdma
