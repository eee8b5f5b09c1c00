#include "netplugin/tcp/socket.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <utility>

namespace weft::net {
namespace {

/// Two ends of a connection over loopback.
std::pair<Fd, Fd> Connect() {
  Fd listener = OpenTcp(AF_INET), client = OpenTcp(AF_INET);
  Address any;
  any.family = AF_INET;
  any.bytes[0] = 127;
  any.bytes[3] = 1;
  sockaddr_storage storage;
  socklen_t length = any.ToSockaddr(&storage);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&storage), length), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  length = LocalAddress(listener.get()).ToSockaddr(&storage);
  const int result = connect(client.get(), reinterpret_cast<sockaddr*>(&storage), length);
  EXPECT_TRUE(result == 0 || errno == EINPROGRESS);
  Fd server;
  while (!server.valid()) server.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return {std::move(client), std::move(server)};
}

/// How many of `messages` short messages were not acknowledged yet when they had been read.
int Unanswered(const Fd& sender, const Fd& receiver, int messages) {
  int unanswered = 0;
  for (int i = 0; i < messages; ++i) {
    char message[1000] = {};
    EXPECT_EQ(send(sender.get(), message, sizeof message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof message));
    for (size_t got = 0; got < sizeof message;) {
      const ssize_t more = recv(receiver.get(), message, sizeof message - got, 0);
      got += more > 0 ? static_cast<size_t>(more) : 0;
    }
    tcp_info info{};
    socklen_t length = sizeof info;
    EXPECT_EQ(getsockopt(sender.get(), IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    unanswered += info.tcpi_unacked > 0;
  }
  return unanswered;
}

// The kernel answers a short message when the read empties the socket; asked to wait it answers about every second one,
// when the next is there. Some slack for a machine that stops this thread for the 40 ms after which it answers anyway.
TEST(Socket, LateAcknowledgementsWaitForTheNextMessageAndOthersDoNot) {
  const auto [sender, receiver] = Connect();
  constexpr int kMessages = 200;
  EXPECT_LT(Unanswered(sender, receiver, kMessages), kMessages / 5);
  SetLateAcknowledgements(receiver.get(), true);
  EXPECT_GT(Unanswered(sender, receiver, kMessages), kMessages / 5);
  SetLateAcknowledgements(receiver.get(), false);
  EXPECT_LT(Unanswered(sender, receiver, kMessages), kMessages / 5);
}

TEST(Socket, AddressesPrintAsPeopleWriteThem) {
  Address address;
  address.family = AF_INET6;
  address.bytes[15] = 1;
  address.port = 4000;
  EXPECT_EQ(address.Text(), "[::1]:4000");
  EXPECT_TRUE(address.loopback());
  address = {};
  address.family = AF_INET;
  address.bytes[0] = 10;
  address.bytes[3] = 7;
  address.port = 80;
  EXPECT_EQ(address.Text(), "10.0.0.7:80");
  EXPECT_FALSE(address.loopback());
}

}  // namespace
}  // namespace weft::net
