#include "controller/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stop_token>
#include <vector>

namespace weft::controller {
namespace {

using ::testing::ElementsAre;

/// Returns once somebody asks for the stop.
void WaitFor(const std::stop_token& stop) {
  std::promise<void> asked;
  const std::stop_callback told(stop, [&] { asked.set_value(); });
  asked.get_future().wait();
}

TEST(Worker, AskInsteadEndsWorkInTheMakingAndTellsTheNewAnswerOnly) {
  std::promise<void> began, told;
  std::vector<int> answers;
  bool first_stopped = false;
  Worker<int, int> worker(
      [&](const int& question, const std::stop_token& stop) {
        if (question == 1) {
          began.set_value();
          WaitFor(stop);
          first_stopped = true;
        }
        return 10 * question;
      },
      [&](const int& answer) {
        answers.push_back(answer);
        told.set_value();
      });
  worker.Ask(1);
  began.get_future().wait();
  worker.AskInstead(2);
  told.get_future().wait();
  EXPECT_TRUE(first_stopped);
  EXPECT_THAT(answers, ElementsAre(20));
}

TEST(Worker, EndsWhileItsWorkWaits) {
  std::promise<void> began;
  Worker<int, int> worker(
      [&](const int&, const std::stop_token& stop) {
        began.set_value();
        WaitFor(stop);
        return 0;
      },
      [](const int&) { FAIL() << "nothing is told any more"; });
  worker.Ask(1);
  began.get_future().wait();
}

}  // namespace
}  // namespace weft::controller
