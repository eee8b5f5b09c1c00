// `weft reshard` against a controller that answers what the test wants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/online.h"
#include "cli/testing/fake_controller.h"
#include "common/exit_code.h"

namespace weft::cli {
namespace {

using ::testing::HasSubstr;
using testing::Call;
using testing::FakeController;
using testing::Outcome;

/// Iterations of 3 s become 1.5 s, after a pause of 6 s: 6 s · 0.5 / (1 - 0.5) later it has paid.
void FillAnswer(FakeController& controller) {
  controller.plan.mutable_strategy()->set_text("dp=4 zero_stage=3");
  v1::StrategyChange& change = *controller.plan.mutable_change();
  change.set_strategy("dp=2 pp=2");
  change.set_iteration_now_s(3);
  change.set_iteration_then_s(1.5);
  change.set_pause_s(6);
  change.set_moved_bytes(1 << 20);
  change.set_fabric("nodes send 60 Mbit/s");
  change.set_asked_by("operator \"ann\"");
  change.set_hold_s(600);
  change.set_epoch(4);
  change.set_state("sent");
}

TEST(Reshard, SaysWhatItCostsAndGainsAndForHowLongItHolds) {
  FakeController controller;
  FillAnswer(controller);
  OnlineOptions options = controller.Options("known");
  options.strategy = "dp=2,pp=2,bucket_bytes=1MiB";
  options.hold = "1h";
  const Outcome outcome = Call(RunReshard, options);
  EXPECT_EQ(outcome.status, kExitDone) << outcome.err;
  EXPECT_EQ(outcome.out,
            "job known: dp=4 zero_stage=3 -> dp=2 pp=2\n"
            "  an iteration takes 1.5 s in place of 3 s, as nodes send 60 Mbit/s; the pause is 6 s, in which 1MiB move between ranks\n"
            "  iterations get shorter by 50.0 %: it has paid for its pause 6 s later\n"
            "word 4 is sent; once it is followed the controller makes no other change by itself for 600 s\n"
            "what becomes of it: weft explain known\n");
  EXPECT_EQ(controller.asked.job_id(), "known");
  EXPECT_EQ(controller.asked.hold_s(), 3600);
  EXPECT_FALSE(controller.asked.back() || controller.asked.dry_run());
  ASSERT_EQ(controller.asked.strategy().values_size(), 3) << "what is not named is the controller's to fill in";
  for (const v1::StrategyValue& value : controller.asked.strategy().values()) {
    EXPECT_EQ(value.value(), value.name() == "bucket_bytes" ? "1MiB" : "2") << value.name();
  }
}

TEST(Reshard, ADryRunAndAChangeForTheWorseSaySo) {
  FakeController controller;
  FillAnswer(controller);
  controller.plan.mutable_change()->set_iteration_then_s(3.3);
  OnlineOptions options = controller.Options("known");
  options.back = options.dry_run = true;
  const Outcome outcome = Call(RunReshard, options);
  EXPECT_EQ(outcome.status, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("iterations get longer by 10.0 %: it never pays\nnothing was sent: a dry run\n"));
  EXPECT_TRUE(controller.asked.back() && controller.asked.dry_run());
  EXPECT_FALSE(controller.asked.has_strategy());
  options.json = true;
  EXPECT_EQ(nlohmann::json::parse(Call(RunReshard, options).out)["plan"]["change"]["pause_s"], 6);
}

TEST(Reshard, WrongUseAndRefusalsHaveTheirStatus) {
  FakeController controller;
  const auto status = [&](const char* strategy, bool back, const char* hold, const char* piece) {
    OnlineOptions options = controller.Options("known");
    options.strategy = strategy;
    options.back = back;
    options.hold = hold;
    const Outcome outcome = Call(RunReshard, options);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(piece));
    return outcome.status;
  };
  EXPECT_EQ(status("", false, "1h", "expected --strategy, or --back, and not both"), kExitUsage);
  EXPECT_EQ(status("dp=2", true, "1h", "expected --strategy, or --back, and not both"), kExitUsage);
  EXPECT_EQ(status("qq=2", false, "1h", "--strategy"), kExitUsage);
  EXPECT_EQ(status("dp=2", false, "soon", "soon"), kExitUsage);
  EXPECT_EQ(status("dp=2", false, "0s", "expected more than 0"), kExitUsage);
  controller.refusal = {grpc::StatusCode::INVALID_ARGUMENT, "job \"known\": its ranks run as dp=2 already"};
  EXPECT_EQ(status("dp=2", false, "1h", "its ranks run as dp=2 already"), kExitUsage);
  controller.refusal = {grpc::StatusCode::FAILED_PRECONDITION, "job \"known\": mode observe"};
  EXPECT_EQ(status("dp=2", false, "1h", "mode observe"), kExitFailed);
}

TEST(Reshard, ExplainSaysWhoAskedAndWhenTheControllerIsFreeAgain) {
  FakeController controller;
  FillAnswer(controller);
  *controller.explained.mutable_job()->mutable_plan() = controller.plan;
  controller.explained.mutable_job()->mutable_plan()->set_origin("asked");
  const Outcome outcome = Call(RunExplain, controller.Options("known"));
  EXPECT_THAT(outcome.out, HasSubstr("asked for while it ran: dp=4 zero_stage=3"));
  EXPECT_THAT(outcome.out, HasSubstr("asked for by operator \"ann\"; once it is followed no other by the controller itself for 600 s"));
}

}  // namespace
}  // namespace weft::cli
