// Bytes are taken off a connection only where its peer is silent, and all of them; whatever else happens it is as it was. In a network
// namespace of the test's own.
#include "agent/unsent_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "testbed/require_fabric.h"

namespace weft::agent {
namespace {

using ::testing::HasSubstr;

int Shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()); }  // NOLINT(concurrency-mt-unsafe)

class UnsentBytesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WEFT_REQUIRE_FABRIC();
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    ASSERT_EQ(Shell("ip link set lo up"), 0);
    ASSERT_EQ(Shell("nft 'add table inet silence; add chain inet silence in { type filter hook input priority 0 ; }'"), 0);
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener_.get(), 1), 0);
    socklen_t bytes = sizeof address;
    ASSERT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    sender_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(sender_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    receiver_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ASSERT_TRUE(receiver_);
    ASSERT_EQ(::getsockname(sender_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
  }

  void Silence() const {
    ASSERT_EQ(Shell("nft add rule inet silence in tcp sport " + std::to_string(port_) + " drop"), 0);
    ASSERT_EQ(Shell("nft add rule inet silence in tcp dport " + std::to_string(port_) + " drop"), 0);
  }
  static void Heal() { ASSERT_EQ(Shell("nft flush chain inet silence in"), 0); }
  void Send(const std::string& text) { ASSERT_EQ(::send(sender_.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size())); }
  /// What comes within `ms` of nothing new.
  std::string Receive(int ms) {
    std::string all;
    char part[65536];
    pollfd ready{receiver_.get(), POLLIN, 0};
    while (::poll(&ready, 1, ms) > 0) {
      const ssize_t got = ::recv(receiver_.get(), part, sizeof part, 0);
      if (got <= 0) return all + (got == 0 ? "[end]" : "[error]");
      all.append(part, static_cast<size_t>(got));
    }
    return all;
  }
  /// Until the kernel says that of the sender's connection, or 20 s.
  bool WaitUntil(bool (*said)(const tcp_info&)) const {
    tcp_info info{};
    for (int tries = 0; tries < 20'000; ++tries) {
      socklen_t bytes = sizeof info;
      if (::getsockopt(sender_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && said(info)) return true;
      ::poll(nullptr, 0, 1);
    }
    return false;
  }
  bool WaitForTimeout() const {
    return WaitUntil([](const tcp_info& info) { return info.tcpi_retransmits > 0; });
  }
  bool InRepair() {
    int on = 0;
    socklen_t bytes = sizeof on;
    return ::getsockopt(sender_.get(), IPPROTO_TCP, TCP_REPAIR, &on, &bytes) != 0 || on != 0;
  }

  UniqueFd listener_, sender_, receiver_;
  uint16_t port_ = 0;
};

TEST_F(UnsentBytesTest, AllThatWasNotAcknowledgedAndNothingElse) {
  Send("before");
  ASSERT_EQ(Receive(200), "before");
  Silence();
  const std::string text(100'000, 'x');
  Send(text.substr(0, 99'999));
  Send("y");
  ASSERT_TRUE(WaitForTimeout());
  const auto taken = TakeUnsent(sender_.get());
  ASSERT_TRUE(taken) << taken.error().message();
  ASSERT_EQ(taken->bytes, text.size());
  std::string got(text.size() + 1, '\0');
  ASSERT_EQ(::pread(taken->file.get(), got.data(), got.size(), 0), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(got.substr(0, text.size()), text.substr(1) + "y");
  EXPECT_NE(::write(taken->file.get(), "z", 1), 1) << "it is sealed";
  Heal();
  EXPECT_EQ(Receive(1500), "") << "the peer is told nothing, and gets nothing";
  EXPECT_FALSE(InRepair());
  EXPECT_EQ(::send(sender_.get(), "a", 1, MSG_NOSIGNAL), -1) << "it is closed";
  EXPECT_THAT(TakeUnsent(sender_.get()).error().message(), HasSubstr("not an established connection"));
}

TEST_F(UnsentBytesTest, WhereThePeerAnswersNothingIsTaken) {
  Send("before");
  ASSERT_TRUE(WaitUntil([](const tcp_info& info) { return info.tcpi_unacked == 0; }));
  const auto taken = TakeUnsent(sender_.get());
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error().message(), HasSubstr("the peer answers"));
  Send(" and after");
  EXPECT_EQ(Receive(300), "before and after");
}

TEST_F(UnsentBytesTest, APeerThatDoesNotReadAnswers) {
  const std::string text(65536, 'x');
  while (::send(sender_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
  }
  ASSERT_TRUE(WaitUntil([](const tcp_info& info) { return info.tcpi_probes > 0 || info.tcpi_backoff > 0; })) << "its window is shut: it is asked";
  EXPECT_FALSE(TakeUnsent(sender_.get()));
}

TEST_F(UnsentBytesTest, WhatIsNoConnectionIsRefused) {
  const UniqueFd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), fresh(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const UniqueFd pipe(pipes[0]), other(pipes[1]);
  for (const int fd : {udp.get(), pipe.get(), -1}) EXPECT_THAT(TakeUnsent(fd).error().message(), HasSubstr("not a TCP socket"));
  for (const int fd : {fresh.get(), listener_.get()}) {
    EXPECT_THAT(TakeUnsent(fd).error().message(), HasSubstr("not an established connection"));
  }
}

TEST_F(UnsentBytesTest, WithoutThePrivilegeTheConnectionIsAsItWas) {
  Silence();
  Send("kept");
  ASSERT_TRUE(WaitForTimeout());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::seteuid(65534) != 0) ::_exit(2);
    const auto taken = TakeUnsent(sender_.get());
    ::_exit(!taken && taken.error().message().find("CAP_NET_ADMIN") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Heal();
  EXPECT_EQ(Receive(3000), "kept");
}

}  // namespace
}  // namespace weft::agent
