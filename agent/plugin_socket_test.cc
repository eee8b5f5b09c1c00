#include "agent/plugin_socket.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <mutex>
#include <semaphore>

#include "agent/testing/plugin.h"

namespace weft::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PluginSocketTest : public ::testing::Test {
 protected:
  explicit PluginSocketTest(const PluginLimits& limits = {}) {
    auto socket = PluginSocket::Listen(dir_.path + "/run", {
        .attach = [this](const Peer& peer, std::unique_ptr<TelemetryMap> map) -> Result<UniqueFd> {
          const std::lock_guard lock(mutex_);
          peer_ = peer;
          job_ = map->job();
          maps_.push_back(std::move(map));
          return UniqueFd(::memfd_create("policy", MFD_CLOEXEC));
        },
        .detach = [this](const Peer&) { detached_.release(); },
        .environment = [](const Peer&, const std::string& job, const std::string& host) -> Result<std::optional<std::string>> {
          if (job == "of-another") return Fail(Code::kUnauthenticated, "job is not yours");
          if (job != "job-1" || host != "h1") return std::nullopt;
          return "NCCL_NET=weft\nA=b\n";
        },
        .strategy = [this](const Peer&, const std::string& job, const std::string&,
                           const StrategyNews& news) -> Result<std::optional<std::string>> {
          if (job == "of-another") return Fail(Code::kUnauthenticated, "job is not yours");
          const std::lock_guard lock(mutex_);
          news_ = news;
          return "WEFT_RESHARD_EPOCH=4\n";
        },
        .take_unsent = [](int fd) -> Result<UnsentBytes> {
          struct stat status{};
          if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return Fail(Code::kInvalidArgument, "not a TCP socket");
          return UnsentBytes{UniqueFd(::memfd_create("unsent", MFD_CLOEXEC)), 12};
        },
        .silent_lane = [this](bool moved) {
          const std::lock_guard lock(mutex_);
          ++(moved ? moved_ : not_moved_);
        },
        .rejected = [this](const char* label) {
          const std::lock_guard lock(mutex_);
          labels_.push_back(label);
        }}, limits);
    EXPECT_TRUE(socket) << socket.error().message();
    socket_ = std::move(*socket);
  }

  TestReply Hello(const TestSegment& segment, const std::string& job = "job-1") {
    TestPeer peer(socket_->path());
    peer.SendHello(job, segment.fd.get());
    return peer.Receive();
  }

  TempDir dir_;
  std::mutex mutex_;
  Peer peer_;
  std::string job_;
  StrategyNews news_;
  int moved_ = 0, not_moved_ = 0;
  std::vector<std::string> labels_;
  std::vector<std::unique_ptr<TelemetryMap>> maps_;
  std::counting_semaphore<> detached_{0};
  std::unique_ptr<PluginSocket> socket_;
};

TEST_F(PluginSocketTest, HelloIsAnsweredWithAPolicySegment) {
  const TestSegment segment;
  {
    TestPeer peer(socket_->path());
    peer.SendHello("job-1", segment.fd.get());
    const TestReply reply = peer.Receive();
    EXPECT_EQ(reply.type(), abi::MessageType::kPolicy) << reply.reason();
    EXPECT_TRUE(reply.fd);
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(peer_.pid, ::getpid());
    EXPECT_EQ(peer_.uid, ::getuid());
    EXPECT_EQ(job_, "job-1");
  }
  detached_.acquire();  // the peer's end closes the process's part
}

TEST_F(PluginSocketTest, ThePidIsTheKernelsWhateverTheSegmentSays) {
  const TestSegment segment;
  segment.segment->process.pid = 1;  // as in a container
  TestPeer peer(socket_->path());
  peer.SendHello("job-1", segment.fd.get());
  const TestReply reply = peer.Receive();
  ASSERT_EQ(reply.type(), abi::MessageType::kPolicy) << reply.reason();
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(maps_.front()->pid(), ::getpid());
  EXPECT_EQ(maps_.front()->stated_pid(), 1);
}

TEST_F(PluginSocketTest, ASegmentIsOneProcessesAsLongAsThatRuns) {
  const TestSegment segment;
  {
    TestPeer first(socket_->path());
    first.SendHello("job-1", segment.fd.get());
    ASSERT_EQ(first.Receive().type(), abi::MessageType::kPolicy);
    EXPECT_THAT(Hello(segment).reason(), HasSubstr("was brought by process " + std::to_string(::getpid()) + " already"));
  }
  detached_.acquire();
  EXPECT_EQ(Hello(segment).type(), abi::MessageType::kPolicy) << "it connects again";
  EXPECT_EQ(Hello(TestSegment()).type(), abi::MessageType::kPolicy) << "another one is welcome at any time";
}

TEST_F(PluginSocketTest, AProcessOfAnOlderVersionIsAnsweredInItsVersion) {
  for (const uint32_t old : {abi::kPreviousSegmentVersion, abi::kOldestSegmentVersion}) {
    TestSegment segment("job-1", F_SEAL_SHRINK | F_SEAL_GROW, sizeof(abi::TelemetrySegmentV2));
    segment.MakeOld(old);
    TestPeer peer(socket_->path());
    peer.SendHello("job-1", segment.fd.get(), old);
    const TestReply reply = peer.Receive();
    ASSERT_EQ(reply.type(), abi::MessageType::kPolicy) << reply.reason();
    uint32_t version = 0;
    std::memcpy(&version, reply.body.data(), sizeof version);
    EXPECT_EQ(version, old);
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(maps_.back()->segment_version(), old);
    EXPECT_EQ(maps_.back()->bytes(), sizeof(abi::TelemetrySegmentV2));
    EXPECT_EQ(maps_.back()->slots_used(), 256u);
  }
}

TEST_F(PluginSocketTest, BadSegmentsAreRefusedWithTheReason) {
  TestSegment other_version, other_layout, other_magic, unterminated, strange("a b");
  other_version.segment->header.version = 7;
  other_layout.segment->header.sections[1].entry_bytes = 8;
  other_magic.segment->header.magic = 1;
  std::memset(unterminated.segment->process.job, 'x', sizeof unterminated.segment->process.job);
  const TestSegment unsealed("job-1", 0), short_one("job-1", F_SEAL_SHRINK | F_SEAL_GROW, 4096);
  EXPECT_EQ(Hello(other_version).reason(), "telemetry segment version 7, this agent speaks 1 to 3");
  EXPECT_THAT(Hello(other_layout).reason(), HasSubstr("entry size"));
  EXPECT_THAT(Hello(other_magic).reason(), HasSubstr("magic"));
  EXPECT_THAT(Hello(unterminated).reason(), HasSubstr("job id"));
  EXPECT_THAT(Hello(strange, "a b").reason(), HasSubstr("job id"));
  EXPECT_THAT(Hello(unsealed).reason(), HasSubstr("seals 0x0, expected at least shrink and grow"));
  EXPECT_THAT(Hello(short_one).reason(), HasSubstr("has 4096 bytes, expected at least"));
  EXPECT_THAT(Hello(TestSegment(), "job-2").reason(), HasSubstr("different jobs"));
  const std::lock_guard lock(mutex_);
  EXPECT_THAT(labels_, ElementsAre("version", "layout", "layout", "layout", "layout", "seals", "layout",
                                   "identity"));
  EXPECT_TRUE(maps_.empty());
}

TEST_F(PluginSocketTest, WhoIsRefusedAgainAndAgainFillsNoLog) {
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 50; ++i) EXPECT_THAT(Hello(TestSegment(), "job-2").reason(), HasSubstr("different jobs"));
  const std::string log = ::testing::internal::GetCapturedStderr();
  int lines = 0;
  for (size_t at = log.find("refused peer"); at != std::string::npos; at = log.find("refused peer", at + 1)) ++lines;
  EXPECT_EQ(lines, 20);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(labels_.size(), 50u) << "all are counted";
}

TEST_F(PluginSocketTest, BadMessagesAreRefusedAndCutOff) {
  const auto reason = [&](const std::string& packet) {
    TestPeer peer(socket_->path());
    peer.Send(packet.data(), packet.size());
    const std::string said = peer.Receive().reason();
    EXPECT_EQ(peer.Receive().header.magic, 0u) << "still connected";
    return said;
  };
  const auto packet = [](abi::MessageHeader header, size_t body) {
    std::string text(sizeof header + body, '\0');
    std::memcpy(text.data(), &header, sizeof header);
    return text;
  };
  EXPECT_THAT(reason("short"), HasSubstr("shorter than its header"));
  EXPECT_THAT(reason(std::string(4000, 'x')), HasSubstr("longer than any known"));
  EXPECT_THAT(reason(packet({1, 1, 1, 0, 0}, 0)), HasSubstr("message magic 0x00000001"));
  EXPECT_THAT(reason(packet({abi::kSocketMagic, 9, 1, 0, 0}, 0)), HasSubstr("socket version 9, this agent speaks 1"));
  EXPECT_THAT(reason(packet({abi::kSocketMagic, 1, 1, 99, 0}, 72)), HasSubstr("body of 72 bytes, the header says 99"));
  EXPECT_THAT(reason(packet({abi::kSocketMagic, 1, 1, 8, 0}, 8)), HasSubstr("hello of 8 bytes, expected 72"));
  EXPECT_THAT(reason(packet({abi::kSocketMagic, 1, 77, 0, 0}, 0)), HasSubstr("message type 77"));
  abi::MessageHeader hello{abi::kSocketMagic, 1, 1, sizeof(abi::Hello), 0};
  std::string versionless = packet(hello, sizeof(abi::Hello));
  EXPECT_THAT(reason(versionless), HasSubstr("telemetry segment version 0"));
  versionless[sizeof hello] = 1;
  EXPECT_THAT(reason(versionless), HasSubstr("hello without exactly one descriptor"));
}

TEST_F(PluginSocketTest, DescriptorThatIsNoMemfdIsRefused) {
  TestPeer peer(socket_->path());
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  peer.SendHello("job-1", file.get());
  EXPECT_THAT(peer.Receive().reason(), HasSubstr("not a memfd"));
}

TEST_F(PluginSocketTest, SecondHelloOnAConnectionIsRefused) {
  const TestSegment segment;
  TestPeer peer(socket_->path());
  peer.SendHello("job-1", segment.fd.get());
  EXPECT_EQ(peer.Receive().type(), abi::MessageType::kPolicy);
  peer.SendHello("job-1", segment.fd.get());
  EXPECT_THAT(peer.Receive().reason(), HasSubstr("second hello"));
}

TEST_F(PluginSocketTest, EnvironmentOfAKnownJobIsHandedOut) {
  const auto ask = [&](const char* job, const char* host) {
    TestPeer peer(socket_->path());
    abi::EnvironmentRequest request{};
    std::strcpy(request.job, job);
    std::strcpy(request.host, host);
    peer.SendMessage(abi::MessageType::kEnvironmentRequest, request);
    const TestReply reply = peer.Receive();
    EXPECT_EQ(reply.type(), abi::MessageType::kEnvironmentReply);
    abi::EnvironmentReply body{};
    if (reply.body.size() == sizeof body) std::memcpy(&body, reply.body.data(), sizeof body);
    return std::pair(body.found, std::string(body.text, body.bytes));
  };
  EXPECT_EQ(ask("job-1", "h1"), std::pair(1u, std::string("NCCL_NET=weft\nA=b\n")));
  EXPECT_EQ(ask("job-1", "h2").first, 0u);
  EXPECT_EQ(ask("job-2", "h1").first, 0u);
}

TEST_F(PluginSocketTest, WhatRankZeroRunsIsHeardAndItsReasonMadePrintable) {
  TestPeer peer(socket_->path());
  abi::StrategyRequest request{};
  std::strcpy(request.job, "job-1");
  std::strcpy(request.host, "h1");
  request.epoch = 3;
  request.digest = 0xabcdef;
  request.iteration_s = -1;
  request.refused = 1;
  std::memset(request.reason, '\x1b', sizeof request.reason);  // no NUL in it
  std::memcpy(request.reason, " a~\x7f\x80\xff", 6);
  peer.SendMessage(abi::MessageType::kStrategyRequest, request);
  EXPECT_EQ(peer.Receive().type(), abi::MessageType::kEnvironmentReply);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(news_.epoch, 3u);
  EXPECT_EQ(news_.digest, 0xabcdefu);
  EXPECT_EQ(news_.iteration_s, 0) << "nonsense";
  EXPECT_TRUE(news_.refused);
  EXPECT_EQ(news_.reason, " a~" + std::string(sizeof request.reason - 3, '?'));
}

TEST_F(PluginSocketTest, AStrategyRequestOfAnotherSizeOrWithoutAJobIsRefused) {
  TestPeer small(socket_->path());
  small.SendMessage(abi::MessageType::kStrategyRequest, abi::EnvironmentRequest{});
  EXPECT_THAT(small.Receive().reason(), HasSubstr("strategy request of 128 bytes, expected 360"));
  TestPeer endless(socket_->path());
  abi::StrategyRequest request{};
  std::memset(request.job, 'x', sizeof request.job);
  endless.SendMessage(abi::MessageType::kStrategyRequest, request);
  EXPECT_THAT(endless.Receive().reason(), HasSubstr("malformed job or host"));
}

TEST_F(PluginSocketTest, ASilentLanesBytesComeBackWithItsToken) {
  const TestSegment segment;
  TestPeer peer(socket_->path());
  peer.SendHello("job-1", segment.fd.get());
  ASSERT_EQ(peer.Receive().type(), abi::MessageType::kPolicy);
  const UniqueFd lane(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto ask = [&](uint64_t token, int fd) {
    peer.SendMessage(abi::MessageType::kUnsentRequest, abi::UnsentRequest{token, UINT64_MAX}, fd);
    TestReply reply = peer.Receive();
    EXPECT_EQ(reply.type(), abi::MessageType::kUnsentReply) << reply.reason();
    abi::UnsentReply body{};
    if (reply.body.size() == sizeof body) std::memcpy(&body, reply.body.data(), sizeof body);
    EXPECT_EQ(body.token, token);
    return std::pair(body, bool{reply.fd});
  };
  const auto [taken, has_file] = ask(5, lane.get());
  EXPECT_TRUE(has_file);
  EXPECT_EQ(taken.bytes, 12u);
  const auto [refused, no_file] = ask(6, segment.fd.get());
  EXPECT_FALSE(no_file);
  EXPECT_STREQ(refused.reason, "not a TCP socket");
  peer.SendMessage(abi::MessageType::kUnsentRequest, abi::UnsentRequest{7, 1}, lane.get());
  const TestReply late = peer.Receive();
  ASSERT_EQ(late.type(), abi::MessageType::kUnsentReply);
  EXPECT_THAT(late.body.substr(16), HasSubstr("asked too long ago"));
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(moved_, 1);
  EXPECT_EQ(not_moved_, 2);
}

TEST_F(PluginSocketTest, AnUnsentRequestOfNoProcessOrWithoutALaneIsRefused) {
  TestPeer stranger(socket_->path());
  stranger.SendMessage(abi::MessageType::kUnsentRequest, abi::UnsentRequest{1, UINT64_MAX}, 0);
  EXPECT_THAT(stranger.Receive().reason(), HasSubstr("without a segment"));
  const TestSegment segment;
  TestPeer peer(socket_->path());
  peer.SendHello("job-1", segment.fd.get());
  ASSERT_EQ(peer.Receive().type(), abi::MessageType::kPolicy);
  peer.SendMessage(abi::MessageType::kUnsentRequest, abi::UnsentRequest{1, UINT64_MAX});
  EXPECT_THAT(peer.Receive().reason(), HasSubstr("without exactly one descriptor"));
}

TEST_F(PluginSocketTest, SocketIsOpenToAllAndGoneAtTheEnd) {
  const std::string path = socket_->path();
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0666u);
  socket_.reset();
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path + "/run"));
}

TEST_F(PluginSocketTest, LiveAgentKeepsItsDirectory) {
  const auto second = PluginSocket::Listen(dir_.path + "/run", {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.error().message(), HasSubstr("another agent (pid " + std::to_string(::getpid()) + ")"));
  EXPECT_TRUE(TestPeer(socket_->path()).connected) << "the loser must leave the winner's socket alone";
}

TEST(PluginSocket, DeadAgentsSocketIsReplaced) {
  TempDir dir;
  const std::string path = dir.path + "/agent.sock";
  {
    const UniqueFd dead(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX};
    std::strcpy(address.sun_path, path.c_str());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_FALSE(TestPeer(path).connected);
  const auto socket = PluginSocket::Listen(dir.path, {.rejected = [](const char*) {}});
  ASSERT_TRUE(socket) << socket.error().message();
  EXPECT_TRUE(TestPeer(path).connected);
}

/// A user who takes what he can get.
class PluginQuotaTest : public PluginSocketTest {
 protected:
  PluginQuotaTest() : PluginSocketTest({.connections = 8, .of_user = 3, .questions = 2, .idle = Seconds(0.3)}) {}
  std::vector<std::string> Labels() {
    const std::lock_guard lock(mutex_);
    return labels_;
  }
};

TEST_F(PluginQuotaTest, AUsersConnectionsAreCounted) {
  const TestSegment a, b, c;
  std::vector<std::unique_ptr<TestPeer>> peers;
  for (const TestSegment* segment : {&a, &b, &c}) {
    peers.push_back(std::make_unique<TestPeer>(socket_->path()));
    peers.back()->SendHello("job-1", segment->fd.get());
    ASSERT_EQ(peers.back()->Receive().type(), abi::MessageType::kPolicy);
  }
  TestPeer greedy(socket_->path());
  EXPECT_THAT(greedy.Receive().reason(), HasSubstr("has 3 connections, expected at most that"));
  EXPECT_THAT(Labels(), ElementsAre("quota"));
  peers.pop_back();
  detached_.acquire();
  EXPECT_EQ(Hello(TestSegment()).type(), abi::MessageType::kPolicy) << "the others' sessions stand, and there is room again";
}

TEST_F(PluginQuotaTest, WhoSaysNothingIsCutOffButProcessesAreNot) {
  const TestSegment segment;
  TestPeer process(socket_->path());
  process.SendHello("job-1", segment.fd.get());
  ASSERT_EQ(process.Receive().type(), abi::MessageType::kPolicy);
  TestPeer silent(socket_->path());
  EXPECT_THAT(silent.Receive().reason(), HasSubstr("nothing said for 0.3 s"));
  EXPECT_THAT(Labels(), ElementsAre("idle"));
  EXPECT_FALSE(detached_.try_acquire()) << "a process says nothing either, and stays";
}

TEST_F(PluginQuotaTest, AnothersEnvironmentIsRefused) {
  TestPeer peer(socket_->path());
  abi::EnvironmentRequest request{};
  std::string("of-another").copy(request.job, sizeof request.job - 1);
  peer.SendMessage(abi::MessageType::kEnvironmentRequest, request);
  EXPECT_THAT(peer.Receive().reason(), HasSubstr("not yours"));
  EXPECT_THAT(Labels(), ElementsAre("identity"));
}

TEST_F(PluginQuotaTest, QuestionsOnAConnectionAreCounted) {
  TestPeer peer(socket_->path());
  const auto ask = [&](const std::string& job) {
    abi::EnvironmentRequest request{};
    job.copy(request.job, sizeof request.job - 1);
    std::string("h1").copy(request.host, sizeof request.host - 1);
    peer.SendMessage(abi::MessageType::kEnvironmentRequest, request);
    return peer.Receive();
  };
  EXPECT_EQ(ask("job-1").type(), abi::MessageType::kEnvironmentReply);
  EXPECT_EQ(ask("job-2").type(), abi::MessageType::kEnvironmentReply);
  EXPECT_THAT(ask("job-1").reason(), HasSubstr("3 questions on one connection"));
}

}  // namespace
}  // namespace weft::agent
