#include "agent/ask/agent_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "common/unique_fd.h"
#include "netplugin/abi/agent_socket.h"

namespace weft::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using std::chrono::milliseconds;

constexpr milliseconds kLong{5000};

// The other end of the socket: answers each request with the bytes that the test wants, to see what a lying or slow
// agent does. The agent itself is in tests/slurm.
class Peer {
 public:
  using Answer = std::function<std::string(const abi::EnvironmentRequest& request, int count)>;

  explicit Peer(Answer answer) : answer_(std::move(answer)) {
    char pattern[] = "/tmp/weft-ask-test-XXXXXX";
    directory_ = ::mkdtemp(pattern);
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path().c_str());
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::jthread([this] { Serve(); });
  }
  ~Peer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    std::filesystem::remove_all(directory_);
  }

  std::string path() const { return directory_ + "/" + abi::kSocketName; }

 private:
  void Serve() {
    for (int count = 0;; ++count) {
      const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) return;
      struct {
        abi::MessageHeader header;
        abi::EnvironmentRequest body;
      } question = {};
      if (::recv(connection.get(), &question, sizeof(question), 0) != sizeof(question)) continue;
      const std::string answer = answer_(question.body, count);
      if (!answer.empty()) {
        ::send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      } else {
        char unused = 0;
        ::recv(connection.get(), &unused, 1, 0);  // silent until the asker gives up
      }
    }
  }

  Answer answer_;
  std::string directory_;
  UniqueFd listener_;
  std::jthread thread_;
};

struct Reply {
  abi::MessageHeader header = {abi::kSocketMagic, abi::kSocketVersion,
                               static_cast<uint16_t>(abi::MessageType::kEnvironmentReply),
                               sizeof(abi::EnvironmentReply), 0};
  abi::EnvironmentReply body = {};
};

Reply ReplyWith(std::string_view text) {
  Reply reply;
  reply.body.found = 1;
  reply.body.bytes = static_cast<uint32_t>(text.size());
  std::memcpy(reply.body.text, text.data(), text.size());
  return reply;
}

std::string Packet(const Reply& reply, size_t bytes = sizeof(Reply)) {
  return std::string(reinterpret_cast<const char*>(&reply), bytes);
}

AgentRequest Request(const std::string& path) { return {.socket_path = path, .job = "42", .host = "n1"}; }

TEST(AgentRequest, EnvironmentComesInTheAgentsOrder) {
  std::string asked;
  Peer peer([&](const abi::EnvironmentRequest& request, int) {
    asked = std::string(request.job) + "@" + request.host;
    return Packet(ReplyWith("WEFT_JOB_ID=42\nNCCL_NET_PLUGIN=weft\nEMPTY=\nEQUALS=a=b\n"));
  });
  const auto environment = RequestEnvironment(Request(peer.path()), kLong);
  ASSERT_TRUE(environment.has_value()) << environment.error().message();
  EXPECT_THAT(*environment, ElementsAre(Pair("WEFT_JOB_ID", "42"), Pair("NCCL_NET_PLUGIN", "weft"), Pair("EMPTY", ""),
                                        Pair("EQUALS", "a=b")));
  EXPECT_EQ(asked, "42@n1");
}

TEST(AgentRequest, ReplyMayBeCutAfterItsText) {
  const std::string text = "A=1\n";
  Peer peer([&](const auto&, int) {
    return Packet(ReplyWith(text), sizeof(abi::MessageHeader) + offsetof(abi::EnvironmentReply, text) + text.size());
  });
  EXPECT_THAT(RequestEnvironment(Request(peer.path()), kLong).value(), ElementsAre(Pair("A", "1")));
}

TEST(AgentRequest, AgentThatDoesNotKnowTheJobYetIsAskedAgain) {
  Peer peer([](const auto&, int count) { return Packet(count < 2 ? Reply() : ReplyWith("A=1")); });
  EXPECT_THAT(RequestEnvironment(Request(peer.path()), kLong).value(), ElementsAre(Pair("A", "1")));
}

TEST(AgentRequest, UnknownJobIsReportedAfterTheTimeout) {
  Peer peer([](const auto&, int) { return Packet(Reply()); });
  const auto environment = RequestEnvironment(Request(peer.path()), milliseconds(60));
  ASSERT_FALSE(environment.has_value());
  EXPECT_EQ(environment.error().code(), Code::kNotFound);
  EXPECT_THAT(environment.error().message(), HasSubstr("agent.sock\": knows no plan for the job"));
}

TEST(AgentRequest, SilentAgentEndsAtTheTimeout) {
  Peer peer([](const auto&, int) { return std::string(); });
  const auto environment = RequestEnvironment(Request(peer.path()), milliseconds(60));
  ASSERT_FALSE(environment.has_value());
  EXPECT_EQ(environment.error().code(), Code::kDeadlineExceeded);
}

TEST(AgentRequest, MissingAgentIsReportedAtOnce) {
  const auto environment = RequestEnvironment(Request("/nonexistent/agent.sock"), std::chrono::hours(1));
  ASSERT_FALSE(environment.has_value());
  EXPECT_EQ(environment.error().code(), Code::kUnavailable);
  EXPECT_THAT(environment.error().message(), HasSubstr("agent at \"/nonexistent/agent.sock\": connect: No such file"));
}

TEST(AgentRequest, MalformedRepliesAreDataLoss) {
  Reply wrong_magic = ReplyWith("A=1"), wrong_version = ReplyWith("A=1"), wrong_type = ReplyWith("A=1");
  wrong_magic.header.magic = 7;
  wrong_version.header.version = 9;
  wrong_type.header.type = static_cast<uint16_t>(abi::MessageType::kPolicy);
  Reply too_long = ReplyWith("A=1");
  too_long.body.bytes = sizeof(too_long.body.text) + 1;
  const size_t fixed = sizeof(abi::MessageHeader) + offsetof(abi::EnvironmentReply, text);
  const std::pair<std::string, const char*> cases[] = {
      {Packet(wrong_magic), "no environment reply"},
      {Packet(wrong_type), "no environment reply"},
      {Packet(wrong_version), "speaks version 9, expected 1"},
      {Packet(too_long), "announces 8185 bytes"},
      {Packet(ReplyWith("A=1"), fixed + 2), "announces 3 bytes of text, sent 2"},
      {Packet(ReplyWith("A=1"), 20), "20 bytes that are no environment reply"},
      {Packet(Reply()) + "x", "no environment reply"},
      {Packet(ReplyWith("A=1\nno value\n")), "environment line 2: \"no value\", expected NAME=VALUE"},
  };
  for (const auto& [packet, message] : cases) {
    Peer peer([&](const auto&, int) { return packet; });
    const auto environment = RequestEnvironment(Request(peer.path()), kLong);
    ASSERT_FALSE(environment.has_value()) << message;
    EXPECT_EQ(environment.error().code(), Code::kDataLoss) << message;
    EXPECT_THAT(environment.error().message(), HasSubstr(message));
  }
}

TEST(AgentRequest, NamesThatDoNotFitAreRefused) {
  const auto environment = RequestEnvironment(
      {.socket_path = "/x", .job = std::string(64, 'j'), .host = "n1"}, kLong);
  ASSERT_FALSE(environment.has_value());
  EXPECT_EQ(environment.error().code(), Code::kInvalidArgument);
  const auto path = RequestEnvironment(Request("/" + std::string(200, 'x')), kLong);
  ASSERT_FALSE(path.has_value());
  EXPECT_THAT(path.error().message(), HasSubstr("path longer than 107 characters"));
}

TEST(TakeForbidden, AHostileAgentGetsNoCodeIntoALaunch) {
  Environment environment{{"WEFT_JOB_ID", "42"}, {"LD_PRELOAD", "/tmp/evil.so"}, {"NCCL_NET_PLUGIN", "weft"},
                          {"BASH_ENV", "/tmp/x"}};
  EXPECT_THAT(TakeForbidden(&environment), ElementsAre("LD_PRELOAD", "BASH_ENV"));
  EXPECT_THAT(environment, ElementsAre(Pair("WEFT_JOB_ID", "42"), Pair("NCCL_NET_PLUGIN", "weft")));
}

TEST(ParseEnvironment, RejectsWhatIsNoVariable) {
  for (const std::string text : {"=x", "1A=x", "A B=x", "A", "A-B=1", " A=1"}) {
    const auto environment = ParseEnvironment(text);
    ASSERT_FALSE(environment.has_value()) << text;
    EXPECT_EQ(environment.error().code(), Code::kDataLoss);
  }
  EXPECT_FALSE(ParseEnvironment(std::string_view("A=\0x", 4)).has_value());
}

TEST(ExpandNodeName, ReplacesEveryMark) {
  EXPECT_EQ(ExpandNodeName("/run/weft/%n/x-%n", "n07"), "/run/weft/n07/x-n07");
  EXPECT_EQ(ExpandNodeName("/run/weft", "n07"), "/run/weft");
  EXPECT_EQ(ExpandNodeName("/%n", "%n"), "/%n");
}

}  // namespace
}  // namespace weft::agent
