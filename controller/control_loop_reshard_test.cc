// A strategy that is asked for, through the loop: priced, sent to the hosts' agents, and in the journal.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>

#include "controller/control_loop.h"
#include "controller/testing/small_job.h"
#include "controller/testing/temp_dir.h"

namespace weft::controller {
namespace {

using testing::TempDir;
using ::testing::HasSubstr;

class KeepingOutbox final : public AgentOutbox {
 public:
  void Send(v1::ControllerMessage message) override {
    if (message.has_launch()) launch = message.launch();
  }
  void Close(Code, const std::string&) override {}
  v1::JobLaunch launch;  ///< the newest
};

v1::Register Registration(const std::string& host) {
  v1::Register message;
  message.set_host(host);
  message.set_incarnation(1);
  message.add_interfaces()->add_addresses("addr-" + host);
  return message;
}

/// The job of testing::Listening(), running on four hosts.
struct Site {
  explicit Site(const std::string& state_dir) {
    ControlLoopOptions options{.core = {}, .planner = testing::SmallOptions(), .cluster_name = "test"};
    options.core.mode = v1::MODE_ENFORCE;
    loop = std::make_unique<ControlLoop>(options, std::move(*Journal::Open(state_dir)), &clock, &metrics);
    EXPECT_TRUE(loop->Recover());
    for (int i = 1; i <= 4; ++i) EXPECT_TRUE(loop->Join(Registration(fmt::format("h{}", i)), outboxes[i - 1]));
  }

  void Submit() {
    const Result<v1::JobPlan> plan = loop->Submit(testing::Listening().spec);
    ASSERT_TRUE(plan) << plan.error().message();
  }
  /// Rank 0 runs the program that `plan` names, by word `epoch`; its host's first word of the job has a flow too.
  void Say(const v1::JobPlan& plan, int64_t epoch) {
    v1::AgentMessage message;
    v1::HostSample& sample = *message.mutable_sample();
    sample.set_time_s(100 + static_cast<double>(epoch));
    if (epoch == 0) {
      v1::FlowIdentity& flow = *sample.add_opened();
      flow.set_flow(1);
      flow.set_job_id("small");
      flow.set_send(true);
      flow.set_local_address("addr-h1");
      flow.set_peer_address("addr-h2");
    }
    v1::StrategyNews& news = *sample.add_strategies();
    news.set_job_id("small");
    news.set_epoch(epoch);
    const std::string& digest = plan.arguments(plan.arguments_size() - 1);
    uint64_t number = 0;
    std::from_chars(digest.data(), digest.data() + digest.size(), number, 16);
    news.set_digest(number);
    news.set_iteration_s(2);
    loop->Receive(plan.rank_hosts(0), outboxes[plan.rank_hosts(0)[1] - '1'].get(), std::move(message));
  }
  v1::JobPlan Plan() const { return loop->Explain("small")->job().plan(); }

  SystemClock clock;
  Metrics metrics;
  std::vector<std::shared_ptr<KeepingOutbox>> outboxes = {std::make_shared<KeepingOutbox>(), std::make_shared<KeepingOutbox>(),
                                                          std::make_shared<KeepingOutbox>(), std::make_shared<KeepingOutbox>()};
  std::unique_ptr<ControlLoop> loop;
};

v1::ReshardJobRequest Wanted(std::initializer_list<std::pair<const char*, const char*>> values) {
  v1::ReshardJobRequest request;
  request.set_job_id("small");
  for (const auto& [name, value] : values) {
    request.mutable_strategy()->add_values()->set_name(name);
    request.mutable_strategy()->mutable_values(request.strategy().values_size() - 1)->set_value(value);
  }
  return request;
}

TEST(ControlLoopReshard, ADryRunSaysWhatItComesToAndTheWordGoesToAllHosts) {
  const TempDir dir;
  Site site(dir.path());
  ASSERT_NO_FATAL_FAILURE(site.Submit());
  v1::ReshardJobRequest request = Wanted({{"dp", "2"}, {"pp", "2"}, {"zero_stage", "1"}});
  EXPECT_THAT(site.loop->Reshard(request, "ann").error().message(), HasSubstr("it is planned, expected a running one"));
  site.Say(site.Plan(), 0);
  request.set_dry_run(true);
  const Result<v1::JobPlan> dry = site.loop->Reshard(request, "ann");
  ASSERT_TRUE(dry) << dry.error().message();
  EXPECT_EQ(dry->change().iteration_now_s(), 2) << "as rank 0 measures it";
  EXPECT_EQ(dry->change().epoch(), 0);
  EXPECT_EQ(dry->change().hold_s(), 600);
  EXPECT_FALSE(dry->change().has_plan());
  EXPECT_FALSE(site.Plan().has_change()) << "nothing was sent";
  request.set_dry_run(false);
  request.set_hold_s(30);
  const Result<v1::JobPlan> told = site.loop->Reshard(request, "operator \"ann\"");
  ASSERT_TRUE(told) << told.error().message();
  EXPECT_EQ(told->change().state(), "sent");
  EXPECT_EQ(told->change().epoch(), 1);
  EXPECT_EQ(told->change().hold_s(), 30);
  EXPECT_DOUBLE_EQ(told->change().iteration_then_s(), dry->change().iteration_then_s());
  for (const auto& outbox : site.outboxes) {
    EXPECT_EQ(outbox->launch.environment().at("WEFT_RESHARD_EPOCH"), "1");
    EXPECT_THAT(outbox->launch.environment().at("WEFT_ARGUMENTS"), HasSubstr("--strategy dp=2,pp=2,zero_stage=1"));
  }
}

// The plan before, who asked and for how long: all of it survives a restart between the answer and the way back.
TEST(ControlLoopReshard, BackIsThereAfterARestart) {
  const TempDir dir;
  std::string first;
  {
    Site site(dir.path());
    ASSERT_NO_FATAL_FAILURE(site.Submit());
    first = site.Plan().strategy().text();
    site.Say(site.Plan(), 0);
    const v1::ReshardJobRequest request = Wanted({{"dp", "2"}, {"pp", "2"}, {"zero_stage", "1"}});
    ASSERT_TRUE(site.loop->Reshard(request, "ann"));
    v1::JobPlan next = site.Plan();
    const std::string words = site.outboxes[0]->launch.environment().at("WEFT_ARGUMENTS");
    next.add_arguments(words.substr(words.rfind(' ') + 1));
    site.Say(next, 1);
    ASSERT_EQ(site.Plan().change().state(), "followed");
  }
  Site site(dir.path());
  EXPECT_EQ(site.Plan().origin(), "asked");
  EXPECT_EQ(site.Plan().change().asked_by(), "ann");
  site.Say(site.Plan(), 0);
  v1::ReshardJobRequest back;
  back.set_job_id("small");
  back.set_back(true);
  const Result<v1::JobPlan> told = site.loop->Reshard(back, "bob");
  ASSERT_TRUE(told) << told.error().message();
  EXPECT_EQ(told->change().strategy(), first);
  EXPECT_EQ(told->change().epoch(), 2);
}

TEST(ControlLoopReshard, ARequestThatMakesNoSenseIsRefused) {
  const TempDir dir;
  Site site(dir.path());
  const auto refused = [&](const v1::ReshardJobRequest& request) {
    const Result<v1::JobPlan> told = site.loop->Reshard(request, "ann");
    EXPECT_FALSE(told);
    return told ? "" : told.error().message();
  };
  v1::ReshardJobRequest none;
  none.set_job_id("small");
  EXPECT_THAT(refused(none), HasSubstr("expected a strategy, or back, and not both"));
  v1::ReshardJobRequest both = Wanted({{"dp", "2"}});
  both.set_back(true);
  EXPECT_THAT(refused(both), HasSubstr("and not both"));
  v1::ReshardJobRequest endless = Wanted({{"dp", "2"}});
  endless.set_hold_s(-1);
  EXPECT_THAT(refused(endless), HasSubstr("hold_s: -1, expected 0 to 2592000"));
  EXPECT_THAT(refused(Wanted({{"qq", "2"}})), HasSubstr("unknown, expected one of"));
  EXPECT_EQ(refused(Wanted({{"dp", "2"}})), "no job \"small\"");
}

}  // namespace
}  // namespace weft::controller
