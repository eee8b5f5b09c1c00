// The built library with a peer that is stopped, in a process of its own, or gone.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "netplugin/testing/faces_fixture.h"

namespace weft::net::testing {
namespace {

class StoppedPeerTest : public FacesTest {
 protected:
  static constexpr size_t kBytes = 64 << 20;  // more than the kernel's buffers hold

  ~StoppedPeerTest() override {
    if (peer_ > 0) {
      kill(peer_, SIGKILL);
      waitpid(peer_, nullptr, 0);
    }
  }

  /// A receiver in a process of its own that stops itself as soon as it is connected. Its handle comes through a pipe.
  void StartPeer(char* handle) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    peer_ = fork();
    if (peer_ == 0) RunPeer(ends[1]);
    ASSERT_EQ(read(ends[0], handle, nccl::kHandleMaxBytes), nccl::kHandleMaxBytes);
    close(ends[0]);
    close(ends[1]);
  }
  [[noreturn]] static void RunPeer(int out) {
    alarm(60);
    setenv("WEFT_RUN_DIR", "", 1);
    Plugin plugin(12);
    char handle[nccl::kHandleMaxBytes];
    void *listen = nullptr, *comm = nullptr;
    if (plugin->Init(nullptr) != nccl::kSuccess || plugin->Listen(0, handle, &listen) != nccl::kSuccess) _exit(1);
    if (write(out, handle, sizeof handle) != sizeof handle) _exit(1);
    if (!Eventually([&] { return plugin->Accept(listen, &comm) != nccl::kSuccess || comm; })) _exit(1);
    raise(SIGSTOP);
    std::vector<char> data(kBytes);
    int size = 0;
    _exit(ReceiveAll(*plugin, comm, data.data(), kBytes, &size) == nccl::kSuccess && size == int{kBytes} ? 0 : 2);
  }

  /// Connects to the peer and posts one send that it does not take.
  void Begin() {
    char handle[nccl::kHandleMaxBytes];
    ASSERT_NO_FATAL_FAILURE(StartPeer(handle));
    plugin_ = std::make_unique<Plugin>(12);
    ASSERT_EQ(table().Init(&LogCapture::Logger), nccl::kSuccess);
    ASSERT_TRUE(agent_->Greet());
    ASSERT_TRUE(Eventually([&] { return table().Connect(0, handle, &send_) != nccl::kSuccess || send_; }));
    int status = 0;
    ASSERT_EQ(waitpid(peer_, &status, WUNTRACED), peer_);
    ASSERT_TRUE(WIFSTOPPED(status));
    ASSERT_EQ(table().Send(send_, data_.data(), kBytes, &request_), nccl::kSuccess);
    ASSERT_NE(request_, nullptr);
  }
  int Test() { return table().Test(request_, &done_, nullptr); }
  void End() {
    EXPECT_EQ(table().CloseSend(send_), nccl::kSuccess);
    EXPECT_EQ(table().Finalize(), nccl::kSuccess);
  }
  Table& table() { return **plugin_; }
  const abi::StallSlot& stall() { return agent_->observations().stalls[0]; }
  bool StallIs(abi::SlotState state) {
    return stall().state.load(std::memory_order_acquire) == static_cast<uint32_t>(state);
  }

  pid_t peer_ = 0;
  void* send_ = nullptr;
  void* request_ = nullptr;
  int done_ = 0;
  std::vector<char> data_ = std::vector<char>(kBytes);
};

TEST_F(StoppedPeerTest, IsReportedWithPathBytesAndCauseAndIsOverWhenItGoesOn) {
  Set("WEFT_STALL_SECONDS", "2");  // the peer's host must have had time to answer a probe
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_TRUE(Eventually([&] { return Test() != nccl::kSuccess || StallIs(abi::SlotState::kOpen); }));
  ASSERT_TRUE(StallIs(abi::SlotState::kOpen));
  const abi::FlowSlot* flow = FindFlow(agent_->telemetry(), abi::Direction::kSend);
  ASSERT_NE(flow, nullptr);
  EXPECT_EQ(stall().flow, flow->flow);
  EXPECT_EQ(stall().rank, 5);
  EXPECT_EQ(stall().peer_rank, 5);
  EXPECT_EQ(stall().peer_address[0], 127);
  EXPECT_EQ(stall().peer_port, flow->peer_port);
  EXPECT_EQ(stall().ports[0], flow->lanes[0].source_port.load());
  EXPECT_EQ(stall().bytes_in_flight.load(), kBytes);
  EXPECT_EQ(stall().requests.load(), 1u);
  EXPECT_EQ(stall().cause.load(), static_cast<uint32_t>(abi::StallCause::kPeerDoesNotRead));
  EXPECT_TRUE(Plugin::Logged("send to rank 5 at 127.0.0.1:"));
  EXPECT_TRUE(Plugin::Logged("the peer does not read; 1 requests with 67108864 bytes in flight, ports "));
  kill(peer_, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return Test() != nccl::kSuccess || done_; }));
  EXPECT_EQ(done_, 1) << "nothing was lost";
  EXPECT_TRUE(Eventually([&] { return StallIs(abi::SlotState::kClosed); }));
  EXPECT_TRUE(Eventually([] { return Plugin::Logged("moves again after"); })) << "said after the slot is closed";
  int status = 0;
  ASSERT_EQ(waitpid(peer_, &status, 0), peer_);
  peer_ = 0;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  End();
}

TEST_F(StoppedPeerTest, FailsItsRequestsIfTheUserAskedForIt) {
  Set("WEFT_STALL_SECONDS", "1");
  Set("WEFT_STALL_ACTION", "error");
  Set("WEFT_STALL_ACTION_SECONDS", "1");
  ASSERT_NO_FATAL_FAILURE(Begin());
  int code = nccl::kSuccess;
  ASSERT_TRUE(Eventually([&] { return (code = Test()) != nccl::kSuccess || done_; }));
  EXPECT_EQ(code, nccl::kRemoteError);
  void* more = nullptr;
  EXPECT_EQ(table().Send(send_, data_.data(), 8, &more), nccl::kRemoteError) << "and it stays one";
  EXPECT_EQ(more, nullptr);
  EXPECT_TRUE(Plugin::Logged("its requests fail (WEFT_STALL_ACTION)"));
  EXPECT_EQ(stall().aborted.load(), 1u);
  End();
}

// As many requests as there are may be posted to a peer that has gone; each of them fails in its own test.
TEST(ClosedPlugin, ThatThePeerHasGoneIsToldByTestAndNotBeforeRequestsRunOut) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("WEFT_RUN_DIR", "", 1);
  for (const int version : {7, 12}) {
    Plugin plugin(version);
    ASSERT_EQ(plugin->Init(nullptr), nccl::kSuccess);
    Pair to = MakePair(*plugin), from = MakePair(*plugin);
    std::vector<char> data(1 << 20);
    EXPECT_EQ(plugin->CloseRecv(std::exchange(to.recv, nullptr)), nccl::kSuccess);
    EXPECT_EQ(plugin->CloseSend(std::exchange(from.send, nullptr)), nccl::kSuccess);
    void *send = nullptr, *receive = nullptr;
    for (int i = 0; i < nccl::kMaxRequests; ++i) {
      ASSERT_EQ(plugin->Send(to.send, data.data(), data.size(), &send), nccl::kSuccess) << i;
      ASSERT_EQ(plugin->Receive(from.recv, data.data(), data.size(), &receive), nccl::kSuccess) << i;
      ASSERT_TRUE(send != nullptr && receive != nullptr) << i;
    }
    int done = 0;
    EXPECT_TRUE(Eventually([&] { return plugin->Test(send, &done, nullptr) == nccl::kRemoteError; }));
    EXPECT_TRUE(Eventually([&] { return plugin->Test(receive, &done, nullptr) == nccl::kRemoteError; }));
    EXPECT_EQ(plugin->Send(to.send, data.data(), 1, &send), nccl::kRemoteError);
    EXPECT_EQ(plugin->Receive(from.recv, data.data(), 1, &receive), nccl::kRemoteError);
    ClosePair(*plugin, to);
    ClosePair(*plugin, from);
    EXPECT_EQ(plugin->Finalize(), nccl::kSuccess);
  }
}

}  // namespace
}  // namespace weft::net::testing
