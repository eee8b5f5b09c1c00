#include "controller/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "controller/run_learning.h"
#include "controller/testing/temp_dir.h"

namespace weft::controller {
namespace {

using testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

JobSubmitted MakeJob(const std::string& id) {
  JobSubmitted job;
  job.spec.set_job_id(id);
  job.spec.add_hosts("h1");
  job.plan.mutable_strategy()->set_dp(4);
  job.planning_errors = {"first", "second"};
  return job;
}

TEST(Journal, GivesBackWhatWasKept) {
  const TempDir dir;
  {
    auto journal = Journal::Open(dir.path() + "/new/state");
    ASSERT_TRUE(journal.has_value()) << journal.error().message();
    ASSERT_TRUE((*journal)->Replay()->empty());
    ASSERT_TRUE((*journal)->Keep(MakeJob("b")));
    ASSERT_TRUE((*journal)->Keep(MakeJob("a")));
    ASSERT_TRUE((*journal)->Keep(MakeJob("gone")));
    ASSERT_TRUE((*journal)->Keep(JobReleased{"gone"}));
    ASSERT_TRUE((*journal)->Keep(KeepEpoch{"a", 6}));
    ASSERT_TRUE((*journal)->Keep(KeepEpoch{"a", 7}));
    ASSERT_TRUE((*journal)->Keep(ModeSet{v1::MODE_OBSERVE}));
  }
  auto journal = Journal::Open(dir.path() + "/new/state");
  ASSERT_TRUE(journal.has_value()) << journal.error().message();
  const auto events = (*journal)->Replay();
  ASSERT_TRUE(events.has_value()) << events.error().message();
  ASSERT_EQ(events->size(), 4u);
  EXPECT_EQ(std::get<ModeSet>((*events)[0].body).mode, v1::MODE_OBSERVE);
  EXPECT_EQ(std::get<EpochKnown>((*events)[1].body).epoch, 7);
  const auto& first = std::get<JobSubmitted>((*events)[2].body);
  EXPECT_EQ(first.spec.job_id(), "b");  // in order of submission
  EXPECT_EQ(first.plan.strategy().dp(), 4);
  EXPECT_THAT(first.planning_errors, ::testing::ElementsAre("first", "second"));
  EXPECT_EQ(std::get<JobSubmitted>((*events)[3].body).spec.job_id(), "a");
}

TEST(Journal, KeepsTheNewestRuns) {
  const TempDir dir;
  const auto run = [](int number, double iteration_s) {
    KeepRun kept;
    kept.run.mutable_spec()->set_job_id("job" + std::to_string(number));
    kept.run.set_iteration_s(iteration_s);
    return kept;
  };
  {
    auto journal = Journal::Open(dir.path());
    ASSERT_TRUE(journal.has_value()) << journal.error().message();
    RunBook book;
    const auto keep = [&](KeepRun kept) {
      kept.gone = book.Add(kept.run);
      return (*journal)->Keep(kept);
    };
    for (int number = 0; number < 40; ++number) ASSERT_TRUE(keep(run(number, 1)));
    ASSERT_TRUE(keep(run(20, 0.5)));  // measured again: the newest now
  }
  auto journal = Journal::Open(dir.path());
  ASSERT_TRUE(journal.has_value()) << journal.error().message();
  const auto runs = (*journal)->Runs();
  ASSERT_TRUE(runs.has_value()) << runs.error().message();
  ASSERT_EQ(runs->size(), kMostRuns);
  EXPECT_EQ(runs->back().spec().job_id(), "job20");
  EXPECT_EQ(runs->back().iteration_s(), 0.5);
  EXPECT_EQ(runs->front().spec().job_id(), "job8");
}

TEST(Journal, SurvivesAKilledController) {
  const TempDir dir;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto journal = Journal::Open(dir.path());
    if (!journal || !(*journal)->Keep(MakeJob("j")) || !(*journal)->Keep(KeepEpoch{"j", 9})) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  auto journal = Journal::Open(dir.path());
  ASSERT_TRUE(journal.has_value()) << journal.error().message();
  const auto events = (*journal)->Replay();
  ASSERT_TRUE(events.has_value()) << events.error().message();
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ(std::get<EpochKnown>((*events)[0].body).epoch, 9);
  EXPECT_EQ(std::get<JobSubmitted>((*events)[1].body).spec.job_id(), "j");
}

TEST(Journal, SecondControllerOnTheSameStateIsRefused) {
  const TempDir dir;
  const auto first = Journal::Open(dir.path());
  ASSERT_TRUE(first.has_value());
  const auto second = Journal::Open(dir.path());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(second.error().message(), AllOf(HasSubstr(dir.path()), HasSubstr("another controller")));
}

TEST(Journal, OtherSchemaVersionIsOneClearLine) {
  const TempDir dir;
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((dir.path() + "/controller.db").c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "PRAGMA user_version=99; CREATE TABLE x (y)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  const auto journal = Journal::Open(dir.path());
  ASSERT_FALSE(journal.has_value());
  EXPECT_EQ(journal.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(journal.error().message(), AllOf(HasSubstr("schema version 99, expected 3"), HasSubstr("controller.db")));
}

TEST(Journal, StartedJobsAndForgottenEpochsAreKept) {
  const TempDir dir;
  {
    auto journal = Journal::Open(dir.path());
    ASSERT_TRUE(journal.has_value());
    for (const char* id : {"waits", "runs", "silent"}) ASSERT_TRUE((*journal)->Keep(MakeJob(id)));
    ASSERT_TRUE((*journal)->Keep(KeepStarted{"runs"}));
    ASSERT_TRUE((*journal)->Keep(KeepReleased{"silent"}));
    ASSERT_TRUE((*journal)->Keep(KeepEpoch{"old", 3}));
    ASSERT_TRUE((*journal)->Keep(KeepEpoch{"runs", 4}));
    ASSERT_TRUE((*journal)->Keep(ForgetEpoch{"old"}));
  }
  auto journal = Journal::Open(dir.path());
  ASSERT_TRUE(journal.has_value());
  const auto events = (*journal)->Replay();
  ASSERT_EQ(events->size(), 3u);
  EXPECT_EQ(std::get<EpochKnown>((*events)[0].body).job_id, "runs");
  EXPECT_FALSE(std::get<JobSubmitted>((*events)[1].body).started);
  EXPECT_TRUE(std::get<JobSubmitted>((*events)[2].body).started);
}

TEST(Journal, APlanThatChangedIsKeptInItsPlace) {
  const TempDir dir;
  {
    auto journal = Journal::Open(dir.path());
    ASSERT_TRUE(journal.has_value());
    for (const char* id : {"first", "second"}) ASSERT_TRUE((*journal)->Keep(MakeJob(id)));
    ASSERT_TRUE((*journal)->Keep(KeepStarted{"first"}));
    KeepPlan changed{.job_id = "first", .plan = MakeJob("first").plan};
    changed.plan.mutable_change()->set_epoch(7);
    ASSERT_TRUE((*journal)->Keep(changed));
    ASSERT_TRUE((*journal)->Keep(KeepPlan{.job_id = "nobody", .plan = {}}));
  }
  const auto events = (*Journal::Open(dir.path()))->Replay();
  ASSERT_EQ(events->size(), 2u);
  const auto& first = std::get<JobSubmitted>((*events)[0].body);
  EXPECT_EQ(first.spec.job_id(), "first") << "in order of submission";
  EXPECT_TRUE(first.started);
  EXPECT_EQ(first.plan.change().epoch(), 7);
  EXPECT_EQ(first.plan.strategy().dp(), 4);
}

TEST(Journal, FileOfVersionOneIsTakenOver) {
  const TempDir dir;
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((dir.path() + "/controller.db").c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database,
                         "CREATE TABLE jobs (sequence INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT UNIQUE NOT NULL,"
                         " spec BLOB NOT NULL, plan BLOB NOT NULL, errors TEXT NOT NULL);"
                         "CREATE TABLE epochs (job_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;"
                         "CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
                         "INSERT INTO jobs (job_id, spec, plan, errors) VALUES ('j', x'0a016a', x'', '');"
                         "PRAGMA user_version=1",
                         nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  for (int open = 0; open < 2; ++open) {
    auto journal = Journal::Open(dir.path());
    ASSERT_TRUE(journal.has_value()) << journal.error().message();
    const auto events = (*journal)->Replay();
    ASSERT_TRUE(events.has_value()) << events.error().message();
    ASSERT_EQ(events->size(), 1u);
    const auto& job = std::get<JobSubmitted>((*events)[0].body);
    EXPECT_EQ(job.spec.job_id(), "j");
    EXPECT_FALSE(job.started);
  }
}

TEST(Journal, FolderThatCannotBeMadeIsNamed) {
  const auto journal = Journal::Open("/proc/weft-state");
  ASSERT_FALSE(journal.has_value());
  EXPECT_EQ(journal.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(journal.error().message(), HasSubstr("/proc/weft-state"));
}

}  // namespace
}  // namespace weft::controller
