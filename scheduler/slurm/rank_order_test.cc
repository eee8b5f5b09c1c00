#include "scheduler/slurm/rank_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::slurm {
namespace {

using ::testing::HasSubstr;

TEST(RankOrder, FollowsThePlanWithTheTasksOfAHostTogether) {
  EXPECT_EQ(*MakeHostFile("n1,n3,n2", {.nodes = "n[1-3]", .tasks_per_node = "2", .tasks = ""}), "n1\nn1\nn3\nn3\nn2\nn2\n");
  EXPECT_EQ(*MakeHostFile("n1,n3,n2", {.nodes = "n[1-3]", .tasks_per_node = "", .tasks = "3"}), "n1\nn3\nn2\n");
}

TEST(RankOrder, IsNotAppliedWhereItWouldChangeMore) {
  const auto expect = [](const std::string& order, const SlurmJobShape& job, Code code, const char* piece) {
    const auto text = MakeHostFile(order, job);
    ASSERT_FALSE(text.has_value()) << piece;
    EXPECT_EQ(text.error().code(), code);
    EXPECT_THAT(text.error().message(), HasSubstr(piece));
  };
  expect("n1,n2", {.nodes = "n[1-2]", .tasks_per_node = "", .tasks = ""}, Code::kFailedPrecondition, "--ntasks-per-node");
  expect("n1,n2", {.nodes = "n[1-2]", .tasks_per_node = "", .tasks = "3"}, Code::kFailedPrecondition, "tasks per node");
  expect("n2,n1", {.nodes = "n[1-2]", .tasks_per_node = "1", .tasks = ""}, Code::kFailedPrecondition, "rank 0 on n2");
  for (const char* order : {"n1", "n1,n1", "n1,n3", "n1,n2,n3", "", "n1,,n2"}) {
    expect(order, {.nodes = "n[1-2]", .tasks_per_node = "1", .tasks = ""}, Code::kInvalidArgument, "none of the job's hosts");
  }
  expect("n1,n2", {.nodes = "n[1-2", .tasks_per_node = "1", .tasks = ""}, Code::kInvalidArgument, "n[1-2");
}

}  // namespace
}  // namespace weft::slurm
