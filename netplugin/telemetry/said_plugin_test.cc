// What the built library tells a person: its version, its devices, its agent, and what to do where one of them is missing.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "netplugin/testing/agent.h"
#include "netplugin/testing/plugin.h"

namespace weft::net::testing {
namespace {

class SaidTest : public ::testing::Test {
 protected:
  SaidTest() {
    char folder[] = "/tmp/weft-said-XXXXXX";
    run_dir_ = mkdtemp(folder);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("WEFT_RUN_DIR", run_dir_.c_str(), 1);
    setenv("WEFT_JOB_ID", "job-7", 1);
    setenv("WEFT_RANK", "5", 1);
    setenv("WEFT_WORLD", "8", 1);
  }
  ~SaidTest() override {
    Stop();
    for (const char* name : {"WEFT_JOB_ID", "WEFT_WORLD", "NCCL_SOCKET_FAMILY"}) unsetenv(name);
    std::filesystem::remove_all(run_dir_);
  }

  void Start() {
    plugin_ = std::make_unique<Plugin>(11);
    ASSERT_EQ((*plugin_)->Init(&LogCapture::Logger), nccl::kSuccess);
  }
  void Stop() {
    if (!plugin_) return;
    EXPECT_EQ((*plugin_)->Finalize(), nccl::kSuccess);
    EXPECT_TRUE(plugin_->Unload());
    plugin_.reset();
  }
  static bool Said(const std::string& piece) { return Plugin::Logged(piece); }
  static bool SaysSoon(const std::string& piece) {
    return Eventually([&] { return Said(piece); });
  }
  static int Count(const std::string& piece) {
    int count = 0;
    for (const std::string& line : LogCapture::Lines()) count += line.find(piece) != std::string::npos ? 1 : 0;
    return count;
  }

  std::string run_dir_;
  std::unique_ptr<Plugin> plugin_;
};

TEST_F(SaidTest, WhoItIsAndWhatItOffers) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_TRUE(Said("version " WEFT_VERSION ", net v11, job \"job-7\", rank 5 of 8, process "));
  EXPECT_TRUE(Said("devices, over TCP ("));
  EXPECT_TRUE(Said("), NCCL_SOCKET_IFNAME=\"lo\": lo 127.0.0.1 ("));
}

TEST_F(SaidTest, NoAgentIsSaidOnceWithWhatToDo) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_TRUE(SaysSoon("no agent at " + run_dir_ + "/agent.sock (No such file or directory): working with default settings"));
  EXPECT_TRUE(Said("start weft-agent on this host"));
  Agent agent(run_dir_);
  ASSERT_TRUE(agent.Greet()) << "it is looked for again";
  EXPECT_TRUE(SaysSoon("connected to the agent at " + run_dir_));
  EXPECT_EQ(Count("no agent at"), 1);
}

TEST_F(SaidTest, AnAgentThatHasEndedIsNamedAsThat) {
  {
    const Fd dead(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX};
    (run_dir_ + "/agent.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_TRUE(SaysSoon("(Connection refused)"));
  EXPECT_TRUE(Said("start weft-agent again"));
}

TEST_F(SaidTest, ThatNoneIsWantedIsSaidToo) {
  setenv("WEFT_RUN_DIR", "", 1);
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_TRUE(SaysSoon("WEFT_RUN_DIR is empty: no agent is looked for"));
}

TEST_F(SaidTest, AttachmentAndTheFirstPolicyAreSaidOnce) {
  Agent agent(run_dir_);
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(agent.Greet());
  PolicyFile file;
  ASSERT_TRUE(agent.SendPolicy(file.fd()));
  EXPECT_TRUE(SaysSoon("attached: the agent reads this process's telemetry"));
  EXPECT_FALSE(Said("policy in force")) << "nothing is decided yet";
  const WantedLane lanes[] = {{1234, 1}};
  file.Write(MakePolicy(1, lanes));
  EXPECT_TRUE(SaysSoon("policy in force: epoch 1, 1 flows"));
  file.Write(MakePolicy(1, lanes));
  EXPECT_TRUE(Eventually([&] { return agent.telemetry().process.policy_epoch.load() == 2; }));
  EXPECT_EQ(Count("policy in force"), 1);
}

TEST_F(SaidTest, AProcessWithoutAJobIsToldThatItNeedsOne) {
  unsetenv("WEFT_JOB_ID");
  Agent agent(run_dir_);
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(agent.Greet());
  EXPECT_TRUE(SaysSoon("WEFT_JOB_ID is not set"));
}

TEST_F(SaidTest, AFilterThatLeavesNoInterfaceIsNamedWithThoseThatAreThere) {
  setenv("NCCL_SOCKET_IFNAME", "weft-none", 1);
  ASSERT_NO_FATAL_FAILURE(Start());
  int count = -1;
  EXPECT_EQ((*plugin_)->Devices(&count), nccl::kSuccess);
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(Said("devices: none. NCCL_SOCKET_IFNAME=\"weft-none\" leaves no interface"));
  EXPECT_TRUE(Said("lo (excluded by NCCL_SOCKET_IFNAME)"));
  EXPECT_TRUE(Said("or unset NCCL_SOCKET_IFNAME"));
}

}  // namespace
}  // namespace weft::net::testing
