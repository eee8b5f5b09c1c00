#include "controller/plan_desk.h"

#include <gmock/gmock.h>

#include <latch>
#include <semaphore>
#include <stdexcept>

namespace weft::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A desk of one thread, which the first call holds until Open().
class PlanDeskTest : public ::testing::Test {
 protected:
  explicit PlanDeskTest(const PlanDeskLimits& limits = {.waiting = 5, .callers = 1, .of_caller = 3}) : desk_(1, limits) {}
  ~PlanDeskTest() override { Open(); }

  void Hold() {
    ASSERT_TRUE(desk_.Ask("holder", {.gone = {},
                                     .plan = [this](const std::stop_token&) -> Result<v1::JobPlan> {
                                       begun_.count_down();
                                       open_.wait();
                                       return v1::JobPlan();
                                     },
                                     .answer = [](const Result<v1::JobPlan>&) {}}));
    begun_.wait();
  }
  void Open() {
    if (!open_.try_wait()) open_.count_down();
  }
  /// Asks for a plan that writes down `name` when it is made; what comes of it is written down as a code's name.
  Status Ask(const std::string& caller, const std::string& name, const std::stop_token& gone = {}) {
    const Status taken = desk_.Ask(caller, {.gone = gone,
                                            .plan = [this, name](const std::stop_token&) -> Result<v1::JobPlan> {
                                              made_.push_back(name);
                                              if (name == "throws") throw std::runtime_error("out of range");
                                              return v1::JobPlan();
                                            },
                                            .answer = [this](const Result<v1::JobPlan>& plan) {
                                              if (!plan) errors_.push_back(plan.error());
                                              answered_.release();
                                            }});
    if (taken) ++asked_;
    return taken;
  }
  /// Lets the desk go on, until all that was asked is answered.
  void Finish() {
    Open();
    for (; asked_ > 0; --asked_) answered_.acquire();
  }

  std::latch begun_{1}, open_{1};
  std::counting_semaphore<> answered_{0};
  int asked_ = 0;
  std::vector<std::string> made_;  // by the desk's thread; read after Finish()
  std::vector<Error> errors_;      // likewise
  PlanDesk desk_;
};

class PlanDeskAsItIs : public PlanDeskTest {
 protected:
  PlanDeskAsItIs() : PlanDeskTest(PlanDeskLimits()) {}
};

TEST_F(PlanDeskTest, CallersAreServedInTurn) {
  Hold();
  for (const char* name : {"a1", "a2", "a3"}) ASSERT_TRUE(Ask("a", name));
  ASSERT_TRUE(Ask("b", "b1"));
  ASSERT_TRUE(Ask("c", "c1"));
  Finish();
  EXPECT_THAT(made_, ElementsAre("a1", "b1", "c1", "a2", "a3"));
  EXPECT_TRUE(errors_.empty());
}

TEST_F(PlanDeskTest, WhatIsTooMuchIsRefusedToHimWhoAsksForIt) {
  Hold();
  for (const char* name : {"a1", "a2", "a3"}) ASSERT_TRUE(Ask("a", name));
  const Status fourth = Ask("a", "a4");
  ASSERT_FALSE(fourth);
  EXPECT_EQ(fourth.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(fourth.error().message(), HasSubstr("3 plans of a wait already"));
  ASSERT_TRUE(Ask("b", "b1")) << "others find room";
  ASSERT_TRUE(Ask("b", "b2"));
  const Status full = Ask("b", "b3");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(full.error().message(), HasSubstr("5 plans wait already"));
  ASSERT_TRUE(Ask("c", "c1")) << "the first of a caller";
  EXPECT_THAT(Ask("d", "d1").error().message(), HasSubstr("6 plans wait already")) << "there is room for one such caller";
  Finish();
  EXPECT_THAT(made_, ElementsAre("a1", "b1", "c1", "a2", "b2", "a3")) << "what was refused is never made";
  ASSERT_TRUE(Ask("a", "a5")) << "and there is room again";
  Finish();
}

TEST_F(PlanDeskAsItIs, FourGreedyCallersKeepNoFifthOff) {
  Hold();
  for (const char* greedy : {"a", "b", "c", "d"}) {
    while (Ask(greedy, greedy)) {
    }
  }
  EXPECT_EQ(asked_, 256) << "they have all of the room";
  ASSERT_TRUE(Ask("e", "e"));
  Finish();
  EXPECT_EQ(made_.size(), 257u);
  EXPECT_EQ(made_[4], "e") << "after one of each";
}

TEST_F(PlanDeskTest, NothingIsPlannedForWhoHasGone) {
  Hold();
  std::stop_source gone;
  ASSERT_TRUE(Ask("a", "a1", gone.get_token()));
  ASSERT_TRUE(Ask("a", "a2"));
  gone.request_stop();
  Finish();
  EXPECT_THAT(made_, ElementsAre("a2"));
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0].code(), Code::kCancelled);
}

TEST_F(PlanDeskTest, WhatAPlannerThrowsIsAnAnswer) {
  Hold();
  ASSERT_TRUE(Ask("a", "throws"));
  ASSERT_TRUE(Ask("a", "a2"));
  Finish();
  EXPECT_THAT(made_, ElementsAre("throws", "a2"));
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0].code(), Code::kInternal);
  EXPECT_THAT(errors_[0].message(), HasSubstr("out of range"));
}

}  // namespace
}  // namespace weft::controller
