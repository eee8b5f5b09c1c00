#include "testbed/process.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "testbed/pidfd.h"

namespace weft::testbed {
namespace {

using ::testing::HasSubstr;

std::string OutputOf(ProcessOptions options) {
  const auto out = CheckCommand(options, Seconds(20));
  EXPECT_TRUE(out.has_value()) << out.error().message();
  return out.value_or("");
}

TEST(Spawn, TellsTheExitStatusOrTheSignal) {
  auto seven = Spawn({.argv = {"sh", "-c", "exit 7"}});
  ASSERT_TRUE(seven.has_value()) << seven.error().message();
  EXPECT_EQ(seven->Wait(Seconds(20)).value().ToString(), "exit status 7");
  EXPECT_EQ(seven->Wait().value().code, 7);  // may be asked again
  EXPECT_FALSE(seven->Running());

  auto sleeper = Spawn({.argv = {"sleep", "100"}});
  ASSERT_TRUE(sleeper.has_value()) << sleeper.error().message();
  EXPECT_TRUE(sleeper->Running());
  sleeper->Kill(SIGTERM);
  EXPECT_EQ(sleeper->Wait(Seconds(20)).value().ToString(), "killed by signal 15 (Terminated)");
}

TEST(Spawn, FailsForWhatCannotStart) {
  const struct {
    ProcessOptions options;
    Code code;
    const char* message;
  } cases[] = {
      {{.argv = {}}, Code::kInvalidArgument, "empty argv"},
      {{.argv = {"no-such-program"}}, Code::kNotFound, "program \"no-such-program\" not found in PATH"},
      {{.argv = {"/no/such/program"}}, Code::kNotFound, "spawn \"/no/such/program\": exec"},
      {{.argv = {"/etc"}}, Code::kFailedPrecondition, "exec: Permission denied"},
      {{.argv = {"true"}, .netns = "weft-none"}, Code::kNotFound, "open network namespace \"weft-none\""},
      {{.argv = {"true"}, .cores = {1023}}, Code::kInvalidArgument, "set CPU affinity"},
      {{.argv = {"true"}, .cores = {-1}}, Code::kInvalidArgument, "core -1, must be 0 to 1023"},
      {{.argv = {"true"}, .out = Output::File("/no/folder/x")}, Code::kNotFound, "open \"/no/folder/x\" for output"},
  };
  for (const auto& one : cases) {
    const auto process = Spawn(one.options);
    ASSERT_FALSE(process.has_value()) << one.message;
    EXPECT_EQ(process.error().code(), one.code) << process.error().message();
    EXPECT_THAT(process.error().message(), HasSubstr(one.message));
  }
}

TEST(Spawn, PipesAreReadLineByLine) {
  auto process = Spawn({.argv = {"sh", "-c", "echo one; echo; echo problem >&2; printf last"},
                        .out = Output::Pipe(),
                        .err = Output::Pipe()});
  ASSERT_TRUE(process.has_value()) << process.error().message();
  EXPECT_EQ(process->out_lines()->Next(Seconds(20)).value(), "one");
  EXPECT_EQ(process->out_lines()->Next(Seconds(20)).value(), "");
  EXPECT_EQ(process->out_lines()->Next(Seconds(20)).value(), "last");
  EXPECT_EQ(process->out_lines()->Next(Seconds(20)).value(), std::nullopt);
  EXPECT_EQ(process->err_lines()->Next(Seconds(20)).value(), "problem");
}

TEST(Spawn, WaitsEndByTimeoutOrByStopToken) {
  auto process = Spawn({.argv = {"sleep", "100"}, .out = Output::Pipe()});
  ASSERT_TRUE(process.has_value()) << process.error().message();
  const auto timed_out = process->Wait(Seconds(0.001));
  ASSERT_FALSE(timed_out.has_value());
  EXPECT_EQ(timed_out.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(timed_out.error().message(), HasSubstr("not within 0.001 s"));

  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  const auto line = process->out_lines()->Next(kNoTimeout, stop.get_token());
  ASSERT_FALSE(line.has_value());
  EXPECT_EQ(line.error().code(), Code::kCancelled);
  EXPECT_TRUE(process->Running());  // a wait that ends leaves the child alone
}

TEST(Spawn, EnvironmentIsAddedAndReplaced) {
  ASSERT_EQ(::setenv("WEFT_TEST_KEPT", "kept", 1), 0);
  ASSERT_EQ(::setenv("WEFT_TEST_CHANGED", "before", 1), 0);
  EXPECT_EQ(OutputOf({.argv = {"sh", "-c", "echo $WEFT_TEST_KEPT $WEFT_TEST_CHANGED $WEFT_TEST_NEW"},
                 .environment = {{"WEFT_TEST_CHANGED", "after"}, {"WEFT_TEST_NEW", "new"}}}),
            "kept after new\n");
}

TEST(Spawn, ChildrenAreNotDeafToSignalsThatTheParentBlocks) {
  sigset_t term;
  sigset_t before;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &term, &before);
  auto process = Spawn({.argv = {"sleep", "100"}});
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(process.has_value()) << process.error().message();
  process->Kill(SIGTERM);
  EXPECT_EQ(process->Wait(Seconds(20)).value().signal, SIGTERM);
}

TEST(Spawn, PinsToCores) {
  EXPECT_THAT(OutputOf({.argv = {"grep", "Cpus_allowed_list", "/proc/self/status"}, .cores = {0}}), HasSubstr("\t0\n"));
}

TEST(Spawn, InheritsNoDescriptor) {
  const ProcessOptions list{.argv = {"ls", "/proc/self/fd"}};
  const std::string before = OutputOf(list);
  auto other = Spawn({.argv = {"cat"}, .out = Output::Pipe(), .err = Output::Pipe()});
  ASSERT_TRUE(other.has_value()) << other.error().message();
  EXPECT_EQ(OutputOf(list), before);
}

TEST(Process, DestructorKillsTheWholeGroup) {
  UniqueFd grandchild;
  {
    auto process = Spawn({.argv = {"sh", "-c", "sleep 100 & echo $!; wait"}, .out = Output::Pipe()});
    ASSERT_TRUE(process.has_value()) << process.error().message();
    grandchild = OpenPidFd(std::stoi(process->out_lines()->Next(Seconds(20)).value().value()));
    ASSERT_TRUE(grandchild);
  }
  pollfd ended{grandchild.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 20'000), 1);
}

TEST(Process, DiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    // The child of the child holds `ends` open as its stdout until it dies.
    auto process = Spawn({.argv = {"sleep", "100"}, .out = Output::Descriptor(ends[1])});
    ::_exit(process ? 0 : 1);  // no destructor runs
  }
  ::close(ends[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // end of stream: nobody writes any more
  ::close(ends[0]);
}

TEST(RunCommand, CollectsBothStreamsHoweverLong) {
  const auto output = RunCommand({.argv = {"sh", "-c", "cat; head -c 300000 /dev/zero >&2; exit 3"}, .input = "text"},
                                 Seconds(20));
  ASSERT_TRUE(output.has_value()) << output.error().message();
  EXPECT_EQ(output->out, "text");
  EXPECT_EQ(output->err.size(), 300000U);
  EXPECT_EQ(output->status.code, 3);
}

TEST(RunCommand, KillsWhatTakesTooLong) {
  const auto output = RunCommand({.argv = {"sleep", "100"}}, Seconds(0.01));
  ASSERT_FALSE(output.has_value());
  EXPECT_EQ(output.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(output.error().message(), HasSubstr("run \"sleep 100\""));
}

TEST(CheckCommand, NamesCommandStatusAndFirstLine) {
  const auto output = CheckCommand({.argv = {"sh", "-c", "echo cause >&2; echo more >&2; exit 4"}}, Seconds(20));
  ASSERT_FALSE(output.has_value());
  EXPECT_EQ(output.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(output.error().message(), HasSubstr("exit 4\": exit status 4: cause"));
}

}  // namespace
}  // namespace weft::testbed
