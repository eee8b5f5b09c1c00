// What the loop does whatever else goes wrong: brakes with a full disk, modes over restarts, heartbeats, a newer controller.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "controller/config.h"
#include "controller/control_loop.h"
#include "controller/testing/temp_dir.h"

namespace weft::controller {
namespace {

using testing::TempDir;
using ::testing::HasSubstr;

/// While it lives no file of this process grows, as on a disk that is full.
class FullDisk {
 public:
  FullDisk() {
    before_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit_);
    rlimit none = limit_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }
  FullDisk(const FullDisk&) = delete;

 private:
  rlimit limit_{};
  sighandler_t before_ = SIG_DFL;
};

class KeepingOutbox final : public AgentOutbox {
 public:
  void Send(v1::ControllerMessage message) override { messages.push_back(std::move(message)); }
  void Close(Code, const std::string&) override {}
  int64_t beats() const {
    return std::count_if(messages.begin(), messages.end(), [](const auto& m) { return m.has_heartbeat(); });
  }
  std::vector<v1::ControllerMessage> messages;
};

struct Loop {
  explicit Loop(const std::string& state_dir, v1::Mode mode = v1::MODE_ENFORCE, bool given = false, int64_t incarnation = 0) {
    const ControllerConfig config = DefaultConfig();
    ControlLoopOptions options{.core = config.core, .planner = config.planner, .cluster_name = "test",
                               .incarnation = incarnation, .mode_given = given};
    options.core.mode = mode;
    std::unique_ptr<Journal> journal;
    if (!state_dir.empty()) journal = std::move(*Journal::Open(state_dir));
    loop = std::make_unique<ControlLoop>(options, std::move(journal), &clock, &metrics);
    EXPECT_TRUE(loop->Recover());
  }
  ControlLoop* operator->() { return loop.get(); }
  std::string StateOf(const std::string& job) {
    for (const v1::JobStatus& status : loop->Jobs()) {
      if (status.spec().job_id() == job) return status.state();
    }
    return "";
  }

  ManualClock clock;
  Metrics metrics;
  std::unique_ptr<ControlLoop> loop;
};

v1::JobSpec Spec(const std::string& id) {
  v1::JobSpec spec;
  spec.set_job_id(id);
  return spec;
}

v1::Register Registration(const std::string& host, int64_t controller = 0) {
  v1::Register message;
  message.set_host(host);
  message.set_incarnation(1);
  message.set_controller_incarnation(controller);
  message.add_interfaces()->add_addresses("addr-" + host);
  return message;
}

TEST(ControlLoopBrake, ObserveAndReleaseWorkWithAFullDiskAndAreWrittenLater) {
  const TempDir dir;
  {
    Loop loop(dir.path());
    ASSERT_TRUE(loop->Submit(Spec("a")));
    {
      const FullDisk full;
      ASSERT_FALSE(loop->Submit(Spec("b"))) << "what cannot be kept is not begun";
      const auto warning = loop->SetMode(v1::MODE_OBSERVE);
      ASSERT_TRUE(warning) << warning.error().message();
      EXPECT_THAT(*warning, HasSubstr("it is done"));
      EXPECT_EQ(loop->mode(), v1::MODE_OBSERVE);
      EXPECT_THAT(loop->Release("a"), HasSubstr("it is done"));
      EXPECT_EQ(loop.StateOf("a"), "released");
      EXPECT_FALSE(loop->SetMode(v1::MODE_ENFORCE)) << "what is not kept must not be let loose";
      EXPECT_EQ(loop->mode(), v1::MODE_OBSERVE);
    }
    loop.clock.Advance(Seconds(2));
    loop->Tick();  // there is room again
  }
  Loop again(dir.path());
  EXPECT_EQ(again->mode(), v1::MODE_OBSERVE);
  EXPECT_EQ(again.StateOf("a"), "");
}

/// A job on host h1 whose ranks were told to run another program, and what rank 0 says once they do.
constexpr uint64_t kOldProgram = 0x11, kNewProgram = 0x22;

v1::JobPlan PlanOf(const std::string& strategy, uint64_t digest) {
  v1::JobPlan plan;
  plan.mutable_strategy()->set_dp(2);
  plan.mutable_strategy()->set_text(strategy);
  plan.add_rank_hosts("h1");
  for (const std::string& word : {std::string("--program-digest"), fmt::format("{:016x}", digest)}) plan.add_arguments(word);
  return plan;
}

JobSubmitted JobWithAWord(const std::string& id) {
  JobSubmitted job{.spec = Spec(id), .plan = PlanOf("dp=2", kOldProgram), .planning_errors = {}};
  v1::StrategyChange& change = *job.plan.mutable_change();
  change.set_epoch(1);
  change.set_state(kWordSent);
  change.set_strategy("pp=2");
  *change.mutable_plan() = PlanOf("pp=2", kNewProgram);
  return job;
}

v1::AgentMessage Follows(const std::string& job) {
  v1::AgentMessage message;
  v1::StrategyNews& news = *message.mutable_sample()->add_strategies();
  news.set_job_id(job);
  news.set_epoch(1);
  news.set_digest(kNewProgram);
  return message;
}

v1::JobPlan PlanIn(Loop& loop, const std::string& job) { return loop->Explain(job).value().job().plan(); }

/// The job's ranks follow its word while nothing can be written.
void FollowWithAFullDisk(Loop& loop, const std::string& job) {
  const auto outbox = std::make_shared<KeepingOutbox>();
  ASSERT_TRUE(loop->Join(Registration("h1"), outbox));
  const FullDisk full;
  loop->Receive("h1", outbox.get(), Follows(job));
  ASSERT_EQ(PlanIn(loop, job).change().state(), "followed");
}

// A controller that restarts with the old plan would take what the ranks run for nothing that it has said, and never listen again.
TEST(ControlLoopBrake, AWordThatWasFollowedWithAFullDiskIsWrittenLater) {
  const TempDir dir;
  ASSERT_TRUE((*Journal::Open(dir.path()))->Keep(JobWithAWord("a")));
  {
    Loop loop(dir.path());
    ASSERT_NO_FATAL_FAILURE(FollowWithAFullDisk(loop, "a"));
    loop.clock.Advance(Seconds(2));
    loop->Tick();  // there is room again
  }
  Loop again(dir.path());
  EXPECT_EQ(PlanIn(again, "a").strategy().text(), "pp=2");
  EXPECT_EQ(PlanIn(again, "a").change().state(), "followed");
}

TEST(ControlLoopBrake, APlanThatWaitsForRoomIsNotWrittenOverALaterJobOfThatName) {
  const TempDir dir;
  ASSERT_TRUE((*Journal::Open(dir.path()))->Keep(JobWithAWord("a")));
  {
    Loop loop(dir.path());
    ASSERT_NO_FATAL_FAILURE(FollowWithAFullDisk(loop, "a"));
    ASSERT_EQ(loop->Release("a"), "");
    ASSERT_TRUE(loop->Submit(Spec("a")));
    loop.clock.Advance(Seconds(2));
    loop->Tick();
  }
  Loop again(dir.path());
  EXPECT_EQ(again.StateOf("a"), "managed");
  EXPECT_FALSE(PlanIn(again, "a").has_change());
}

TEST(ControlLoopBrake, ObserveHoldsWhoeverAskedForIt) {
  const TempDir dir;
  {
    Loop loop(dir.path());
    ASSERT_TRUE(loop->SetMode(v1::MODE_OBSERVE));
  }
  {
    Loop loop(dir.path(), v1::MODE_ENFORCE, /*given=*/true);
    EXPECT_EQ(loop->mode(), v1::MODE_OBSERVE) << "a service that crashes and starts again takes no brake off";
    ASSERT_GT(loop->Decisions().decisions_size(), 0);
    EXPECT_THAT(loop->Decisions().decisions(0).reason(), HasSubstr("the command line asks for enforce")) << "and says so";
    ASSERT_TRUE(loop->SetMode(v1::MODE_ENFORCE));
  }
  {
    Loop loop(dir.path(), v1::MODE_OBSERVE, /*given=*/false);
    EXPECT_EQ(loop->mode(), v1::MODE_ENFORCE) << "what was set while it ran is newer than a file";
    EXPECT_THAT(loop->Decisions().decisions(0).reason(), HasSubstr("the configuration asks for observe"));
  }
  {
    Loop loop(dir.path(), v1::MODE_OBSERVE, /*given=*/true);
    EXPECT_EQ(loop->mode(), v1::MODE_OBSERVE) << "--mode observe was beaten by the journal";
  }
  Loop loop(dir.path());
  EXPECT_EQ(loop->mode(), v1::MODE_OBSERVE);
}

TEST(ControlLoopBrake, HeartbeatsComeFromTheTurnsOfTheLoop) {
  Loop loop("");
  const auto outbox = std::make_shared<KeepingOutbox>();
  ASSERT_TRUE(loop->Join(Registration("h1"), outbox));
  EXPECT_GT(outbox->messages[0].welcome().heartbeat_interval_s(), 0);
  loop.clock.Advance(Seconds(20));  // it hangs; the session stands
  EXPECT_EQ(outbox->beats(), 0);
  for (int i = 0; i < 20; ++i) {
    loop->Tick();
    loop.clock.Advance(Seconds(0.25));
  }
  EXPECT_EQ(outbox->beats(), 5);
  EXPECT_EQ(outbox->messages.back().heartbeat().probe_rate_per_s(), 100) << "one host may have all that a switch answers";
}

TEST(ControlLoopBrake, AControllerThatWasReplacedLetsGo) {
  const int64_t now = WallClockIncarnation();
  Loop loop("", v1::MODE_ENFORCE, false, now - 5000);
  std::vector<std::shared_ptr<KeepingOutbox>> outboxes;
  for (int i = 1; i <= 4; ++i) {
    outboxes.push_back(std::make_shared<KeepingOutbox>());
    ASSERT_TRUE(loop->Join(Registration(fmt::format("h{}", i)), outboxes.back()));
  }
  const Status refused = loop->Join(Registration("h1", now), outboxes[0]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kAborted);
  EXPECT_EQ(loop->mode(), v1::MODE_ENFORCE) << "one host may be making it up";
  ASSERT_FALSE(loop->Join(Registration("h2", now), outboxes[1]));
  EXPECT_EQ(loop->mode(), v1::MODE_OBSERVE) << "not half of the fabric each";
  EXPECT_TRUE(loop->Join(Registration("h3", now + (int64_t{1} << 40)), outboxes[2])) << "no controller started next year";
}

TEST(ControlLoopBrake, IncarnationsGrowWhateverTheClockDoes) {
  const TempDir dir;
  const auto incarnation = [](Loop& loop) {
    const auto outbox = std::make_shared<KeepingOutbox>();
    EXPECT_TRUE(loop->Join(Registration("h1"), outbox));
    return outbox->messages.front().welcome().controller_incarnation();
  };
  int64_t first = 0;
  {
    Loop loop(dir.path(), v1::MODE_ENFORCE, false, 5'000'000);
    first = incarnation(loop);
  }
  Loop loop(dir.path(), v1::MODE_ENFORCE, false, 1'000'000);  // the clock was set back
  EXPECT_GT(incarnation(loop), first);
}

}  // namespace
}  // namespace weft::controller
