// What a job takes, through the loop: priced as a run, learned from, in the journal, and in the plans that follow.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "controller/control_loop.h"
#include "controller/testing/small_job.h"
#include "controller/testing/temp_dir.h"

namespace weft::controller {
namespace {

using testing::TempDir;
using ::testing::HasSubstr;

/// Stands still until told, and tells its thread when another one asks: the loop does with every answer of a worker, under its lock.
class SetClock final : public Clock {
 public:
  Seconds Now() const override {
    const std::lock_guard lock(mutex_);
    if (std::this_thread::get_id() != owner_) {
      ++asked_;
      changed_.notify_all();
    }
    return now_;
  }
  void Advance(double seconds) {
    const std::lock_guard lock(mutex_);
    now_ += Seconds(seconds);
  }
  int asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  /// Whether another thread has asked since asked() was `before`, within a minute.
  bool WaitForOthers(int before) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return asked_ != before; });
  }

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Seconds now_{0};
  mutable int asked_ = 0;
};

class DeafOutbox final : public AgentOutbox {
 public:
  void Send(v1::ControllerMessage) override {}
  void Close(Code, const std::string&) override {}
};

/// Of one host with four ranks: what links between hosts give does not matter.
v1::JobSpec Spec(const std::string& job_id) {
  v1::JobSpec spec = testing::Listening().spec;
  spec.set_job_id(job_id);
  spec.clear_hosts();
  spec.add_hosts("h1");
  spec.set_ranks_per_host(4);
  return spec;
}

struct Site {
  explicit Site(const std::string& state_dir, bool learns = true) {
    ControlLoopOptions options{.core = {}, .planner = testing::SmallOptions(), .cluster_name = "test"};
    options.learns = learns;
    loop = std::make_unique<ControlLoop>(options, std::move(*Journal::Open(state_dir)), &clock, &metrics);
    EXPECT_TRUE(loop->Recover());
    v1::Register host;
    host.set_host("h1");
    host.set_incarnation(1);
    host.add_interfaces()->add_addresses("addr-h1");
    EXPECT_TRUE(loop->Join(host, outbox));
  }

  /// Rank 0 of the job says once a second what its iterations take.
  void Run(const std::string& job_id, double iteration_s, int seconds) {
    const v1::JobPlan plan = loop->Explain(job_id)->job().plan();
    ASSERT_GT(plan.arguments_size(), 0) << fmt::format("{}", fmt::join(plan.why(), "; "));
    for (int second = 0; second < seconds; ++second, ++said) {
      v1::AgentMessage message;
      v1::HostSample& sample = *message.mutable_sample();
      sample.set_time_s(100 + said);
      if (second == 0) {
        v1::FlowIdentity& flow = *sample.add_opened();
        flow.set_flow(1);
        flow.set_job_id(job_id);
        flow.set_send(true);
        flow.set_local_address("addr-h1");
        flow.set_peer_address("addr-h1");
      }
      v1::StrategyNews& news = *sample.add_strategies();
      news.set_job_id(job_id);
      const std::string& digest = plan.arguments(plan.arguments_size() - 1);
      uint64_t number = 0;
      std::from_chars(digest.data(), digest.data() + digest.size(), number, 16);
      news.set_digest(number);
      news.set_iteration_s(iteration_s);
      loop->Receive("h1", outbox.get(), std::move(message));
      clock.Advance(1);
      loop->Tick();
    }
  }
  /// Until something was learned; the worker has a thread of its own.
  std::string Learned() const {
    for (;;) {
      const int before = clock.asked();
      const v1::ListDecisionsResponse all = loop->Decisions();
      for (const v1::Decision& decision : all.decisions()) {
        if (decision.kind() == "learned") return decision.reason();
      }
      if (!clock.WaitForOthers(before)) return "nothing";
    }
  }
  double Predicted() const {
    const Result<v1::JobPlan> plan = loop->Plan(Spec("next"));
    EXPECT_TRUE(plan) << plan.error().message();
    return plan ? plan->predicted().iteration_s() : 0;
  }

  SetClock clock;
  Metrics metrics;
  std::shared_ptr<DeafOutbox> outbox = std::make_shared<DeafOutbox>();
  double said = 0;
  std::unique_ptr<ControlLoop> loop;
};

TEST(ControlLoopLearn, ThePlansThatFollowAreMadeWithWhatAJobTakes) {
  const TempDir dir;
  double before = 0, after = 0;
  {
    Site site(dir.path());
    before = site.Predicted();
    ASSERT_TRUE(site.loop->Submit(Spec("first")));
    site.Run("first", 1.5 * before, 30);
    EXPECT_THAT(site.Learned(), HasSubstr("1 runs took"));
    after = site.Predicted();
    EXPECT_GT(after, 1.1 * before);
    EXPECT_LT(after, 1.5 * before) << "one run does not say it all";
    EXPECT_THAT(site.loop->MetricsText(), HasSubstr("weft_controller_learned_runs 1"));
  }
  Site again(dir.path());  // killed, and started again
  EXPECT_THAT(again.Learned(), HasSubstr("1 runs took"));
  EXPECT_DOUBLE_EQ(again.Predicted(), after);
}

TEST(ControlLoopLearn, NothingIsLearnedWhereItIsOff) {
  const TempDir dir;
  Site site(dir.path(), /*learns=*/false);
  const double before = site.Predicted();
  ASSERT_TRUE(site.loop->Submit(Spec("first")));
  site.Run("first", 3 * before, 60);
  EXPECT_EQ(site.Predicted(), before);
}

}  // namespace
}  // namespace weft::controller
