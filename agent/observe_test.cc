// The agent with a plugin's segment in which something stands still: what it logs, and what it writes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "agent/agent.h"
#include "agent/testing/plugin.h"
#include "netplugin/abi/observations.h"

namespace weft::agent {
namespace {

using abi::ProfileLevel;
using ::testing::HasSubstr;

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

bool Eventually(const std::function<bool()>& step) {
  for (const uint64_t start = NowNs(); NowNs() - start < 30'000'000'000;) {
    if (step()) return true;
    std::this_thread::yield();
  }
  return false;
}

/// A segment with all sections, as the plugin makes it.
struct WholeSegment {
  WholeSegment() : fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(fd.get(), sizeof(abi::TelemetryFile)), 0);
    void* const data = ::mmap(nullptr, sizeof(abi::TelemetryFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    file = static_cast<abi::TelemetryFile*>(data);
    abi::InitTelemetryHeader(&file->telemetry);
    abi::AddObservationSections(file);
    file->telemetry.process.pid = ::getpid();
    std::strcpy(file->telemetry.process.job, "job-1");
    ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  }
  ~WholeSegment() { ::munmap(file, sizeof *file); }

  UniqueFd fd;
  abi::TelemetryFile* file;
};

class ObserveTest : public ::testing::Test {
 protected:
  ObserveTest() {
    auto agent = Agent::Start({.host = "h1", .run_dir = folder_.path, .controller = "127.0.0.1:1", .interfaces = {"lo"},
                               .sample_interval = Seconds(0.02)},
                              "1.2.3");
    EXPECT_TRUE(agent);
    agent_ = std::move(*agent);
    plugin_ = std::make_unique<TestPeer>(agent_->socket_path());
    plugin_->SendHello("job-1", segment_.fd.get());
    reply_ = plugin_->Receive();
    EXPECT_EQ(reply_.type(), abi::MessageType::kPolicy) << reply_.reason();
    policy_ = static_cast<const abi::PolicySegment*>(
        ::mmap(nullptr, sizeof(abi::PolicySegment), PROT_READ, MAP_SHARED, reply_.fd.get(), 0));
  }
  ~ObserveTest() override { ::munmap(const_cast<abi::PolicySegment*>(policy_), sizeof *policy_); }

  bool Scraped(const std::string& line) {
    const auto response = httplib::Client("http://" + agent_->http_address()).Get("/metrics");
    return response && response->body.find(line) != std::string::npos;
  }
  bool Asked(ProfileLevel level) {
    return policy_->table.profile.load() == static_cast<uint32_t>(level) &&
           policy_->table.profile_until_ns.load() > NowNs();
  }

  TempDir folder_;
  WholeSegment segment_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<TestPeer> plugin_;
  TestReply reply_;
  const abi::PolicySegment* policy_ = nullptr;
};

TEST_F(ObserveTest, TheFileInTheRunDirectorySwitchesTheProfilerFaces) {
  EXPECT_EQ(policy_->table.profile_until_ns.load(), 0u);
  const std::string path = folder_.path + "/profile";
  std::ofstream(path) << "collectives\n";
  EXPECT_TRUE(Eventually([&] { return Asked(ProfileLevel::kCollectives); }));
  std::filesystem::remove(path);
  EXPECT_TRUE(Eventually([&] { return policy_->table.profile_until_ns.load() == 0; }));
}

TEST_F(ObserveTest, AConnectionThatStandsStillIsLoggedAndItsJobWatchedClosely) {
  ::testing::internal::CaptureStderr();
  abi::StallSlot& stall = segment_.file->observations.stalls[0];
  stall.generation.store(2);
  stall.rank = 1;
  stall.peer_rank = 2;
  stall.family = 4;
  stall.peer_address[0] = 10;
  stall.peer_port = 4000;
  stall.ports[0] = 41001;
  stall.since_ns = 1'000'000'000;
  stall.until_ns.store(61'000'000'000);
  stall.cause.store(static_cast<uint32_t>(abi::StallCause::kNoAcknowledgement));
  stall.state.store(static_cast<uint32_t>(abi::SlotState::kOpen), std::memory_order_release);
  EXPECT_TRUE(Eventually([&] { return Asked(ProfileLevel::kSteps); }));
  EXPECT_TRUE(Eventually([&] { return Scraped("weft_agent_connections_stalled{weft_job=\"job-1\"} 1"); }));
  EXPECT_TRUE(Scraped("weft_agent_ranks_behind{weft_job=\"job-1\"} 0"));
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (const char* piece : {"connection stands still", "job=job-1", "rank=1", "peer_rank=2", "10.0.0.0:4000", "41001",
                            "no acknowledgement", "stalled_s=60"}) {
    EXPECT_THAT(log, HasSubstr(piece));
  }
}

TEST_F(ObserveTest, AJobInTroubleHasSoManyLinesAMinute) {
  ::testing::internal::CaptureStderr();
  for (abi::StallSlot& stall : segment_.file->observations.stalls) {
    stall.generation.store(2);
    stall.family = 4;
    stall.state.store(static_cast<uint32_t>(abi::SlotState::kOpen), std::memory_order_release);
  }
  EXPECT_TRUE(Eventually([&] { return Scraped("weft_agent_connections_stalled{weft_job=\"job-1\"} 64"); }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string piece = "connection stands still";
  int lines = 0;
  for (size_t at = log.find(piece); at != std::string::npos; at = log.find(piece, at + 1)) ++lines;
  EXPECT_EQ(lines, 20) << "64 are counted";
}

TEST_F(ObserveTest, AFailedBackgroundThreadIsLoggedAndCounted) {
  EXPECT_TRUE(Eventually([&] { return Scraped("weft_agent_plugins_silent{weft_job=\"job-1\"} 0"); }));
  ::testing::internal::CaptureStderr();
  segment_.file->background.state.store(static_cast<uint32_t>(abi::BackgroundState::kFailed));
  EXPECT_TRUE(Eventually([&] { return Scraped("weft_agent_plugins_silent{weft_job=\"job-1\"} 1"); }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("background thread has failed"));
}

}  // namespace
}  // namespace weft::agent
