// The messages are those of iproute2's `dcb` 6.1.0 on Debian 12, as strace shows them; answers are laid out as the kernel's
// net/dcb/dcbnl.c does. tests/system/qos_test.py has `dcb` itself look at what is set. Untested on hardware.
#include "agent/qos/dcb.h"

#include <gmock/gmock.h>
#include <linux/rtnetlink.h>

#include <cerrno>
#include <cstring>

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> Bytes(const std::vector<char>& message) {
  std::vector<int> bytes;
  for (const char byte : message) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

// `dcb pfc show dev lo` and `dcb app add dev lo dscp-prio 26:3`, but for the flag NLM_F_ACK: dcb asks for a second answer.
TEST(Dcb, AsksAsDcbDoes) {
  EXPECT_THAT(Bytes(DcbGetMessage("lo", 7)),
              ElementsAre(28, 0, 0, 0, RTM_GETDCB, 0, NLM_F_REQUEST, 0, 7, 0, 0, 0, 0, 0, 0, 0,  // header
                          0, DCB_CMD_IEEE_GET, 0, 0, 7, 0, 1, 0, 'l', 'o', 0, 0));
}

TEST(Dcb, SetsAndDeletesAsDcbDoes) {
  const std::vector<int> rest{0, 0, 7, 0, 1, 0, 'l', 'o', 0, 0, 16, 0, 13, 0x80, 12, 0, 3, 0x80, 8, 0, 1, 0, 5, 3, 26, 0};
  std::vector<int> set{44, 0, 0, 0, RTM_SETDCB, 0, NLM_F_REQUEST, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, DCB_CMD_IEEE_SET};
  std::vector<int> removal = set;
  removal.back() = DCB_CMD_IEEE_DEL;
  for (std::vector<int>* message : {&set, &removal}) message->insert(message->end(), rest.begin(), rest.end());
  DcbChange change;
  change.add = {{IEEE_8021QAZ_APP_SEL_DSCP, 3, 26}};
  EXPECT_EQ(Bytes(DcbSetMessage("lo", change, 7)), set);
  EXPECT_EQ(Bytes(DcbDeleteMessage("lo", change.add, 7)), removal);
}

/// An answer of the kernel that says what a request of ours would set.
std::vector<char> AnswerWith(const DcbChange& change) {
  std::vector<char> message = DcbSetMessage("eth0", change, 1);
  message[4] = RTM_GETDCB;
  return message;
}

TEST(Dcb, ReadsWhatTheKernelSays) {
  DcbChange change;
  change.add = {{IEEE_8021QAZ_APP_SEL_DSCP, 3, 26}, {1, 5, 0x8906}};
  change.pfc = ieee_pfc{.pfc_cap = 8, .pfc_en = 0b1000};
  change.ets = ieee_ets{.ets_cap = 8};
  change.ets->tc_tx_bw[3] = 60;
  const auto state = ParseDcbState(AnswerWith(change));
  ASSERT_TRUE(state) << state.error().message();
  EXPECT_EQ(state->apps, change.add);
  ASSERT_TRUE(state->pfc && state->ets);
  EXPECT_EQ(state->pfc->pfc_en, 0b1000);
  EXPECT_EQ(state->ets->tc_tx_bw[3], 60);
  EXPECT_FALSE(state->trust);
  EXPECT_TRUE(state->TrustsDscp()) << "a DSCP entry turns it on";
  change.trust = {255, 5};
  EXPECT_FALSE(ParseDcbState(AnswerWith(change))->TrustsDscp()) << "a trust table says so itself";
}

TEST(Dcb, ErrorsOfTheKernelAreTold) {
  std::vector<char> error(36);
  const nlmsghdr header{.nlmsg_len = 36, .nlmsg_type = NLMSG_ERROR, .nlmsg_flags = 0, .nlmsg_seq = 1, .nlmsg_pid = 0};
  const int number = -EOPNOTSUPP;
  std::memcpy(error.data(), &header, sizeof header);
  std::memcpy(error.data() + sizeof header, &number, sizeof number);
  EXPECT_EQ(ParseDcbState(error).error().code(), Code::kUnimplemented);
  // An answer to a setting has its errno in one byte.
  std::vector<char> answer = DcbGetMessage("lo", 1);
  answer[4] = RTM_SETDCB;
  const char attribute[8] = {5, 0, DCB_ATTR_IEEE, 0, static_cast<char>(-EINVAL), 0, 0, 0};
  answer.insert(answer.end(), attribute, attribute + sizeof attribute);
  answer[0] = static_cast<char>(answer.size());
  EXPECT_THAT(ParseDcbDone(answer).error().message(), HasSubstr("Invalid argument"));
  answer[answer.size() - 4] = 0;
  EXPECT_TRUE(ParseDcbDone(answer));
}

TEST(Dcb, WhatIsNoAnswerIsRefusedAtEveryLength) {
  DcbChange change;
  change.add = {{IEEE_8021QAZ_APP_SEL_DSCP, 3, 26}};
  change.pfc = ieee_pfc{};
  change.trust = {5};
  const std::vector<char> whole = AnswerWith(change);
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(ParseDcbState(std::span(whole.data(), length))) << length;
    std::vector<char> lies(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    lies.resize(whole.size(), '\xff');
    (void)ParseDcbState(lies);  // anything but a crash: attributes claim to be longer than the message
  }
}

TEST(Dcb, AChangeLeadsBack) {
  DcbState before, now;
  before.apps = {{5, 0, 26}, {5, 1, 10}};
  now.apps = {{5, 3, 26}, {5, 1, 10}};
  before.pfc = ieee_pfc{.pfc_en = 0};
  now.pfc = ieee_pfc{.pfc_en = 8};
  before.ets = now.ets = ieee_ets{};
  const DcbChange change = ChangeTo(before, now);
  EXPECT_THAT(change.add, ElementsAre(DcbApp{5, 0, 26}));
  EXPECT_THAT(change.remove, ElementsAre(DcbApp{5, 3, 26}));
  EXPECT_TRUE(change.pfc);
  EXPECT_FALSE(change.ets);
  now.pfc->pfc_en = 0;
  now.pfc->requests[3] = 17;
  EXPECT_FALSE(ChangeTo(before, now).pfc) << "counters are no setting";
}

}  // namespace
}  // namespace weft::agent
