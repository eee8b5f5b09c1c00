// Versions 1 to 3 of the built library's profiler face, with a real agent socket and real shared memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <type_traits>

#include "netplugin/abi/nccl_profiler.h"
#include "netplugin/testing/faces_fixture.h"

namespace weft::net::testing {
namespace {

/// Versions 1 to 3 name the communicator with its operations.
template <typename Descriptor>
Descriptor UnnamedAllReduce(uint64_t sequence) {
  Descriptor coll{};
  coll.type = static_cast<uint8_t>(nccl::kEventColl);
  coll.rank = 1;
  coll.coll.name = "world";
  coll.coll.comm_hash = 0xABC;
  coll.coll.sequence = sequence;
  coll.coll.count = 1000;
  coll.coll.channels = 2;
  if constexpr (std::is_same_v<Descriptor, nccl::ProfilerDescriptorV1>) {
    coll.coll.function = 4, coll.coll.datatype = 7, coll.coll.algorithm = 1, coll.coll.protocol = 1;
  } else {
    coll.coll.function = "AllReduce", coll.coll.datatype = "ncclFloat32";
    coll.coll.algorithm = "RING", coll.coll.protocol = "LL128";
  }
  return coll;
}

class UnnamedProfilerTest : public FacesTest {
 protected:
  template <typename Profiler, typename Descriptor>
  void Drive(const char* symbol) {
    Set("WEFT_PROFILE", "steps");
    const auto& profiler = Load().Get<Profiler>(symbol);
    EXPECT_STREQ(profiler.name, "Weft");
    int mask = -1;
    void *context = nullptr, *early = &early;
    ASSERT_EQ(profiler.init(&context, &mask), nccl::kSuccess);
    EXPECT_EQ(mask, 2 | 4 | 8 | 16);
    ASSERT_TRUE(agent_->Greet());
    Descriptor proxy{};
    proxy.type = static_cast<uint8_t>(nccl::kEventProxyOp);
    proxy.proxy_op.pid = getpid();
    EXPECT_EQ(profiler.start_event(context, &early, &proxy), nccl::kSuccess);
    EXPECT_EQ(early, nullptr) << "of whom?";
    Descriptor group{};
    group.type = static_cast<uint8_t>(nccl::kEventGroup);
    void* of_group = nullptr;
    ASSERT_EQ(profiler.start_event(context, &of_group, &group), nccl::kSuccess);
    EXPECT_NE(of_group, nullptr) << "those releases tell nothing of what is in a group without a handle";
    EXPECT_EQ(profiler.stop_event(of_group), nccl::kSuccess);
    void *operation = nullptr, *child = nullptr, *step = nullptr;
    Descriptor coll = UnnamedAllReduce<Descriptor>(17);
    ASSERT_EQ(profiler.start_event(context, &operation, &coll), nccl::kSuccess);
    ASSERT_NE(operation, nullptr);
    EXPECT_EQ(communicator().comm, 0xABCu);
    EXPECT_EQ(communicator().rank, 1);
    EXPECT_STREQ(communicator().name, "world");
    EXPECT_EQ(profiler.stop_event(operation), nccl::kSuccess);
    proxy.parent = operation;
    ASSERT_EQ(profiler.start_event(context, &child, &proxy), nccl::kSuccess);
    ASSERT_NE(child, nullptr);
    Descriptor of_step{};
    of_step.type = static_cast<uint8_t>(nccl::kEventProxyStep);
    of_step.parent = child;
    ASSERT_EQ(profiler.start_event(context, &step, &of_step), nccl::kSuccess);
    nccl::ProfilerStateArgumentsV1 arguments{};
    for (const int state : {0, nccl::kStateSendGpuWait, nccl::kStateSendWait}) {
      EXPECT_EQ(profiler.record_event_state(step, state, &arguments), nccl::kSuccess);
    }
    for (void* event : {step, child}) EXPECT_EQ(profiler.stop_event(event), nccl::kSuccess);
    const auto& counters = communicator().operations[static_cast<int>(abi::Operation::kAllReduce)];
    EXPECT_EQ(counters.last_started.load(), 17u);
    EXPECT_TRUE(Eventually([&] { return counters.finished.load() == 1; }));
    EXPECT_EQ(counters.bytes.load(), 4000u);
    EXPECT_EQ(communicator().recent[0].algorithm.load(), 1u);
    EXPECT_EQ(communicator().recent[0].protocol.load(), 1u);
    EXPECT_EQ(profiler.finalize(context), nccl::kSuccess);
    EXPECT_EQ(communicator().state.load(), static_cast<uint32_t>(abi::SlotState::kClosed));
    ASSERT_EQ(profiler.init(&context, &mask), nccl::kSuccess);
    EXPECT_EQ(profiler.finalize(context), nccl::kSuccess) << "a communicator without an operation";
  }
};

TEST_F(UnnamedProfilerTest, Version1) { Drive<nccl::ProfilerV1, nccl::ProfilerDescriptorV1>("ncclProfiler_v1"); }
TEST_F(UnnamedProfilerTest, Version2) { Drive<nccl::ProfilerV2, nccl::ProfilerDescriptorV2>("ncclProfiler_v2"); }
TEST_F(UnnamedProfilerTest, Version3) { Drive<nccl::ProfilerV3, nccl::ProfilerDescriptorV3>("ncclProfiler_v3"); }

}  // namespace
}  // namespace weft::net::testing
