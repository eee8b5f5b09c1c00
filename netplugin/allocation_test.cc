// Nothing is allocated per message, nor per event of the profiler: this program's own malloc counts the calls of its
// threads, and the library's calls come here too.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>

#include "netplugin/abi/nccl_profiler.h"
#include "netplugin/testing/faces_fixture.h"

namespace {
// Per thread: the background thread may allocate, NCCL's threads may not.
thread_local unsigned long t_allocations = 0;
}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

[[gnu::visibility("default")]] void* malloc(size_t bytes) {
  ++t_allocations;
  return __libc_malloc(bytes);
}
[[gnu::visibility("default")]] void* calloc(size_t count, size_t bytes) {
  ++t_allocations;
  return __libc_calloc(count, bytes);
}
[[gnu::visibility("default")]] void* realloc(void* old, size_t bytes) {
  ++t_allocations;
  return __libc_realloc(old, bytes);
}
[[gnu::visibility("default")]] void* aligned_alloc(size_t alignment, size_t bytes) {
  ++t_allocations;
  return __libc_memalign(alignment, bytes);
}
}

namespace weft::net::testing {
namespace {

class AllocationTest : public FacesTest {};

/// One message, sent and received by this thread, without the test's own allocations.
bool Transfer(Table& table, const Pair& pair, const std::vector<char>& from, std::vector<char>* to) {
  void *send = nullptr, *receive = nullptr;
  if (table.Receive(pair.recv, to->data(), to->size(), &receive) != nccl::kSuccess || !receive) return false;
  if (table.Send(pair.send, from.data(), from.size(), &send) != nccl::kSuccess || !send) return false;
  for (int sent = 0, received = 0; !sent || !received;) {
    if (!sent && table.Test(send, &sent, nullptr) != nccl::kSuccess) return false;
    if (!received && table.Test(receive, &received, nullptr) != nccl::kSuccess) return false;
  }
  return true;
}

TEST_F(AllocationTest, TheCounterSeesTheLibrarysAllocations) {
  plugin_ = std::make_unique<Plugin>(12);
  ASSERT_EQ((*plugin_)->Init(nullptr), nccl::kSuccess);
  ASSERT_TRUE(agent_->Greet());
  const unsigned long before = t_allocations;
  char handle[nccl::kHandleMaxBytes];
  void* listen = nullptr;
  ASSERT_EQ((*plugin_)->Listen(0, handle, &listen), nccl::kSuccess);
  EXPECT_GT(t_allocations, before) << "a listener is an object of the library's";
  EXPECT_EQ((*plugin_)->CloseListen(listen), nccl::kSuccess);
  EXPECT_EQ((*plugin_)->Finalize(), nccl::kSuccess);
}

TEST_F(AllocationTest, NoMessageAllocatesNotEvenWhenThePolicyChanges) {
  plugin_ = std::make_unique<Plugin>(12);
  Table& table = **plugin_;
  ASSERT_EQ(table.Init(nullptr), nccl::kSuccess);
  ASSERT_TRUE(agent_->Greet());
  const Pair pair = MakePair(table);
  PolicyFile file;
  ASSERT_TRUE(agent_->SendPolicy(file.fd()));
  const abi::FlowSlot* flow = FindFlow(agent_->telemetry(), abi::Direction::kSend);
  ASSERT_NE(flow, nullptr);
  const std::vector<char> from(300'000, 'x');
  std::vector<char> to(from.size());
  ASSERT_TRUE(Transfer(table, pair, from, &to));
  for (uint64_t round = 0; round < 8; ++round) {
    const WantedLane lanes[] = {{FreePort(), 1}, {FreePort(), 2}};
    file.Write(MakePolicy(flow->flow, lanes));
    const unsigned long before = t_allocations;
    for (int i = 0; i < 50 || flow->policy_epoch.load() <= round; ++i) ASSERT_TRUE(Transfer(table, pair, from, &to));
    EXPECT_EQ(t_allocations, before) << "round " << round;
  }
  EXPECT_EQ(from, to);
  ClosePair(table, pair);
  EXPECT_EQ(table.Finalize(), nccl::kSuccess);
}

TEST_F(AllocationTest, NoProfilerEventAllocates) {
  Set("WEFT_PROFILE", "kernels");
  const auto& profiler = Load().Get<nccl::ProfilerV6>("ncclProfiler_v6");
  int mask = 0;
  void* context = nullptr;
  ASSERT_EQ(profiler.init(&context, 0xABC, &mask, "world", 2, 2, 1, nullptr), nccl::kSuccess);
  ASSERT_TRUE(agent_->Greet());
  const unsigned long before = t_allocations;
  constexpr int kOperations = 20000;  // more than the pool holds at once
  for (int i = 0; i < kOperations; ++i) {
    nccl::ProfilerDescriptorV6 coll{.type = nccl::kEventColl}, op{.type = nccl::kEventProxyOp},
        step{.type = nccl::kEventProxyStep};
    coll.coll.function = "AllReduce";
    void *events[3] = {};
    profiler.start_event(context, &events[0], &coll);
    op.parent = events[0];
    op.proxy_op.pid = getpid();
    profiler.start_event(context, &events[1], &op);
    step.parent = events[1];
    profiler.start_event(context, &events[2], &step);
    profiler.record_event_state(events[2], nccl::kStateSendWait, nullptr);
    for (void* event : {events[2], events[1], events[0]}) profiler.stop_event(event);
  }
  EXPECT_EQ(t_allocations, before);
  const auto& counters = agent_->observations().communicators[0];
  EXPECT_EQ(counters.operations[static_cast<int>(abi::Operation::kAllReduce)].started.load(), uint64_t{kOperations});
  EXPECT_EQ(profiler.finalize(context), nccl::kSuccess);
}

}  // namespace
}  // namespace weft::net::testing
