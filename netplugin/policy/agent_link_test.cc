// What the plugin asks its agent about silent lanes: each question is answered once, be it by the agent's end.
#include "netplugin/policy/agent_link.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "netplugin/testing/agent.h"
#include "netplugin/testing/wire_fixture.h"

namespace weft::net {
namespace {

class AgentLinkTest : public testing::WireTest {
 protected:
  AgentLinkTest() {
    char folder[] = "/tmp/weft-netplugin-XXXXXX";
    environment_.run_dir = mkdtemp(folder);
    agent_ = std::make_unique<testing::Agent>(environment_.run_dir);
    link_ = std::make_unique<AgentLink>(environment_, *telemetry_, policies_);
    Sweep();
    EXPECT_TRUE(agent_->Greet());
  }
  ~AgentLinkTest() override { std::filesystem::remove_all(environment_.run_dir); }

  void Sweep() { link_->Sweep({NowNs(), false}); }

  std::unique_ptr<testing::Agent> agent_;
  std::unique_ptr<AgentLink> link_;
};

TEST_F(AgentLinkTest, TheBytesComeWithTheAnswerToTheirQuestion) {
  const Fd asked(memfd_create("asked", MFD_CLOEXEC)), bytes(memfd_create("bytes", MFD_CLOEXEC));
  ASSERT_EQ(write(bytes.get(), "abc", 3), 3);
  ASSERT_TRUE(link_->Ask(asked.get(), 7, NowNs() + 1'000'000'000));
  ASSERT_TRUE(link_->Ask(asked.get(), 8, NowNs() + 1'000'000'000));
  EXPECT_FALSE(link_->Take(7)) << "no answer yet";
  EXPECT_EQ(agent_->TakeUnsentRequest(), 7u);
  EXPECT_EQ(agent_->TakeUnsentRequest(), 8u);
  ASSERT_TRUE(agent_->AnswerUnsent(8, 0, "it answers", -1));
  ASSERT_TRUE(agent_->AnswerUnsent(99, 3, "", bytes.get())) << "nobody has asked";
  ASSERT_TRUE(agent_->AnswerUnsent(7, 3, "", bytes.get()));
  Sweep();
  const auto answer = link_->Take(7);
  ASSERT_TRUE(answer && answer->file.valid());
  EXPECT_EQ(answer->bytes, 3u);
  char got[4] = {};
  EXPECT_EQ(pread(answer->file.get(), got, 3, 0), 3);
  EXPECT_STREQ(got, "abc");
  const auto refused = link_->Take(8);
  ASSERT_TRUE(refused);
  EXPECT_FALSE(refused->file.valid());
  EXPECT_TRUE(link_->Take(7) && !link_->Take(7)->file.valid()) << "once";
}

TEST_F(AgentLinkTest, AnAnswerThatNobodyWaitsForIsDropped) {
  const Fd asked(memfd_create("asked", MFD_CLOEXEC)), bytes(memfd_create("bytes", MFD_CLOEXEC));
  ASSERT_TRUE(link_->Ask(asked.get(), 7, NowNs() + 1'000'000'000));
  link_->Forget(7);
  ASSERT_TRUE(agent_->AnswerUnsent(7, 0, "", bytes.get()));
  Sweep();
  EXPECT_FALSE(link_->Take(7)->file.valid());
}

TEST_F(AgentLinkTest, AnAgentThatEndsHasRefused) {
  const Fd asked(memfd_create("asked", MFD_CLOEXEC));
  ASSERT_TRUE(link_->Ask(asked.get(), 7, NowNs() + 1'000'000'000));
  agent_.reset();
  Sweep();
  const auto answer = link_->Take(7);
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->file.valid());
  EXPECT_FALSE(link_->Ask(asked.get(), 8, NowNs() + 1'000'000'000)) << "there is nobody";
}

TEST_F(AgentLinkTest, AnOlderAgentIsNotAskedTwice) {
  const Fd asked(memfd_create("asked", MFD_CLOEXEC));
  ASSERT_TRUE(link_->Ask(asked.get(), 7, NowNs() + 1'000'000'000));
  ASSERT_TRUE(agent_->SendReject("message type 7 is not for the agent"));
  Sweep();
  EXPECT_TRUE(link_->Take(7));
  link_->Sweep({NowNs() + AgentLink::kRetryRefusedNs + 1, false});
  ASSERT_TRUE(agent_->Greet()) << "it comes back";
  EXPECT_FALSE(link_->Ask(asked.get(), 8, NowNs() + 1'000'000'000));
}

}  // namespace
}  // namespace weft::net
