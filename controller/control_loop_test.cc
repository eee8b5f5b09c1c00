// The shell around the core without its servers: sessions, replacement, and calls from many threads at once.
#include "controller/control_loop.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>

#include "controller/config.h"

namespace weft::controller {
namespace {

using ::testing::HasSubstr;

class CountingOutbox final : public AgentOutbox {
 public:
  // Relaxed: counts, read after the threads are joined.
  void Send(v1::ControllerMessage message) override {
    if (message.has_policy()) policies.fetch_add(1, std::memory_order_relaxed);
  }
  void Close(Code, const std::string&) override { closed.fetch_add(1, std::memory_order_relaxed); }

  std::atomic<int> policies = 0;
  std::atomic<int> closed = 0;
};

v1::Register Registration(const std::string& host, int64_t incarnation) {
  v1::Register message;
  message.set_host(host);
  message.set_incarnation(incarnation);
  message.add_interfaces()->add_addresses("addr-" + host);
  return message;
}

ControlLoopOptions Options() {
  const ControllerConfig config = DefaultConfig();
  return {config.core, config.planner, "test"};
}

TEST(ControlLoop, OnlyThePresentSessionIsHeard) {
  SystemClock clock;
  Metrics metrics;
  ControlLoop loop(Options(), nullptr, &clock, &metrics);
  const auto first = std::make_shared<CountingOutbox>();
  const auto second = std::make_shared<CountingOutbox>();
  ASSERT_TRUE(loop.Join(Registration("h1", 1), first));
  ASSERT_TRUE(loop.Join(Registration("h1", 1), second));  // the same agent after a broken connection
  EXPECT_EQ(first->closed, 1);
  loop.Leave("h1", first.get());
  EXPECT_TRUE(loop.Topology().hosts(0).connected());
  loop.Leave("h1", second.get());
  EXPECT_FALSE(loop.Topology().hosts(0).connected());
  const Status nameless = loop.Join(v1::Register(), first);
  ASSERT_FALSE(nameless);
  EXPECT_THAT(nameless.error().message(), HasSubstr("expected 1 to 255 characters"));
}

/// A job for two of the hosts that no job has.
v1::JobSpec PairJob(int job) {
  v1::JobSpec spec;
  spec.set_job_id(fmt::format("j{}", job));
  spec.set_model_config_json(R"({"model_type":"gpt2","n_layer":2,"n_embd":64,"n_head":2,"vocab_size":256,"n_positions":128})");
  spec.set_global_batch(8);
  spec.set_sequence(64);
  spec.set_precision("fp32");
  spec.set_min_gpus(2);
  spec.set_max_gpus(2);
  return spec;
}

/// Whether this thread submits; others may ask for the time as well.
thread_local bool submits = false;

/// Two jobs, each by a thread of its own.
std::vector<Result<v1::JobPlan>> SubmitTwo(ControlLoop& loop) {
  std::vector<Result<v1::JobPlan>> plans(2, Fail(Code::kUnavailable, "not yet"));
  {
    std::vector<std::jthread> threads;
    for (int job = 0; job < 2; ++job) {
      threads.emplace_back([&, job] {
        submits = true;
        plans[static_cast<size_t>(job)] = loop.Submit(PairJob(job));
      });
    }
  }
  return plans;
}

// Each host goes to one of the jobs that are submitted at the same time, and is free again when that is released.
TEST(ControlLoop, JobsThatAskForHostsAtTheSameTimeGetDifferentOnes) {
  SystemClock clock;
  Metrics metrics;
  ControlLoop loop(Options(), nullptr, &clock, &metrics);
  const auto outbox = std::make_shared<CountingOutbox>();
  for (int h = 1; h <= 4; ++h) ASSERT_TRUE(loop.Join(Registration(fmt::format("h{}", h), 1), outbox));
  const std::vector<Result<v1::JobPlan>> plans = SubmitTwo(loop);
  std::set<std::string> given;
  for (const Result<v1::JobPlan>& plan : plans) {
    ASSERT_TRUE(plan) << plan.error().message();
    given.insert(plan->rank_hosts().begin(), plan->rank_hosts().end());
  }
  EXPECT_EQ(given.size(), 4u);
  const Result<v1::JobPlan> third = loop.Submit(PairJob(2));
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message(), HasSubstr("0 of 4 hosts with an agent are free, the job takes 2; the others have: j0, j1"));
  EXPECT_EQ(loop.Release("j1"), "");
  EXPECT_TRUE(loop.Submit(PairJob(2)));
}

/// Lets two submissions go on only once both are on their way: each asks for the time when it has seen which hosts are free, and has
/// given the state back.
class MeetingClock final : public Clock {
 public:
  Seconds Now() const override {
    if (submits && calls.fetch_add(1, std::memory_order_relaxed) < 2) both_.arrive_and_wait();
    return SystemClock().Now();
  }
  mutable std::atomic<int> calls = 0;  // of the submitting threads

 private:
  mutable std::latch both_{2};
};

// Both see all hosts free and choose the same ones; who comes second is planned again, for those that are left.
TEST(ControlLoop, SubmissionsThatOverlapDoNotShareHosts) {
  MeetingClock clock;
  Metrics metrics;
  ControlLoop loop(Options(), nullptr, &clock, &metrics);
  const auto outbox = std::make_shared<CountingOutbox>();
  for (int h = 1; h <= 4; ++h) ASSERT_TRUE(loop.Join(Registration(fmt::format("h{}", h), 1), outbox));
  const std::vector<Result<v1::JobPlan>> plans = SubmitTwo(loop);
  std::set<std::string> given;
  for (const Result<v1::JobPlan>& plan : plans) {
    ASSERT_TRUE(plan) << plan.error().message();
    ASSERT_EQ(plan->rank_hosts_size(), 2);
    given.insert(plan->rank_hosts().begin(), plan->rank_hosts().end());
  }
  EXPECT_EQ(given.size(), 4u);
  EXPECT_EQ(clock.calls, 3 * 2 + 2) << "the time before and after each plan, of which one of the two needed two, and of each event";
  std::set<std::string> of_jobs;
  for (const v1::JobStatus& job : loop.Jobs()) of_jobs.insert(job.spec().hosts().begin(), job.spec().hosts().end());
  EXPECT_EQ(of_jobs, given) << "and so it is kept";
}

TEST(ControlLoop, TakesEverythingFromManyThreads) {
  SystemClock clock;
  Metrics metrics;
  ControlLoop loop(Options(), nullptr, &clock, &metrics);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&loop, t] {
      const std::string host = fmt::format("h{}", t);
      const auto outbox = std::make_shared<CountingOutbox>();
      if (!loop.Join(Registration(host, 1), outbox)) return;
      for (int i = 1; i <= 50; ++i) {
        v1::AgentMessage message;
        message.mutable_sample()->set_time_s(i);
        v1::FlowIdentity* identity = message.mutable_sample()->add_opened();
        identity->set_flow(static_cast<uint64_t>(100 * t + i));
        identity->set_send(true);
        identity->set_job_id("j");
        identity->set_local_address("addr-" + host);
        identity->set_peer_address("addr-h0");
        loop.Receive(host, outbox.get(), std::move(message));
        loop.Tick();
      }
    });
  }
  threads.emplace_back([&loop] {
    for (int i = 0; i < 50; ++i) {
      v1::JobSpec spec;
      spec.set_job_id(fmt::format("s{}", i));
      EXPECT_TRUE(loop.Submit(spec).has_value());
      EXPECT_EQ(loop.Release(spec.job_id()), "");
      EXPECT_THAT(loop.MetricsText(), HasSubstr("weft_controller_flows"));
      loop.Jobs();
      loop.Decisions();
    }
  });
  threads.clear();  // joins
  EXPECT_THAT(loop.MetricsText(), HasSubstr("weft_controller_samples_total 200"));
}

// A job that could not be planned may be submitted again, which must not hand it to another submitter: who owns it may end it.
TEST(ControlLoop, AJobThatCouldNotBePlannedStaysItsSubmitters) {
  SystemClock clock;
  Metrics metrics;
  ControlLoop loop(Options(), nullptr, &clock, &metrics);
  v1::JobSpec spec;
  spec.set_job_id("j");
  spec.add_hosts("h1");
  spec.set_model_config_json("{");
  spec.set_submitter("slurm");
  ASSERT_TRUE(loop.Submit(spec));
  ASSERT_FALSE(loop.Jobs().at(0).planning_errors().empty());
  v1::JobSpec stolen = spec;
  stolen.set_submitter("other");
  const auto refused = loop.Submit(stolen);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kAlreadyExists);
  EXPECT_EQ(loop.Jobs().at(0).spec().submitter(), "slurm");
  EXPECT_TRUE(loop.Submit(spec)) << "its own submitter may try again";
  EXPECT_EQ(loop.Release("j"), "");
  EXPECT_TRUE(loop.Submit(stolen)) << "one that is over is nobody's";
}

}  // namespace
}  // namespace weft::controller
