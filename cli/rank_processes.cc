#include "cli/rank_processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "common/exit_code.h"
#include "common/unique_fd.h"

namespace weft::cli {
namespace {

// How long the survivors of a failure may take to say what they saw, before they are killed.
constexpr int kGraceMs = 200;

struct RankProcess {
  int rank;
  pid_t pid;
  UniqueFd report;      // the rank's message; closed by its death
  std::string message;
};

[[noreturn]] void BeRank(int rank, int report, pid_t parent, const std::function<RankOutcome(int)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);  // it died before it could take us along
  const RankOutcome outcome = body(rank);
  std::fflush(nullptr);
  size_t written = 0;
  while (written < outcome.message.size()) {
    const ssize_t n = write(report, outcome.message.data() + written, outcome.message.size() - written);
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  // No destructors of the parent's objects here.
  _exit(outcome.exit_code);
}

/// The outcome of a process whose report has ended.
RankOutcome Reap(RankProcess* process) {
  int status = 0;
  while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR) {
  }
  process->pid = -1;
  if (WIFSIGNALED(status)) {
    return {kExitFailed, fmt::format("rank {} was killed by signal {} ({})", process->rank, WTERMSIG(status),
                                     strsignal(WTERMSIG(status)))};
  }
  if (WEXITSTATUS(status) == kExitDone) return {};
  if (process->message.empty()) {
    process->message = fmt::format("rank {} exited with status {}", process->rank, WEXITSTATUS(status));
  }
  return {WEXITSTATUS(status), process->message};
}

class Supervisor {
 public:
  ~Supervisor() { KillAll(); }

  /// False when the process cannot be made.
  bool Fork(int rank, const std::function<RankOutcome(int)>& body) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    UniqueFd read_end(ends[0]), write_end(ends[1]);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return false;
    if (pid == 0) {
      read_end.reset();
      for (RankProcess& other : processes_) other.report.reset();
      BeRank(rank, write_end.release(), parent, body);
    }
    processes_.push_back({rank, pid, std::move(read_end), {}});
    return true;
  }

  RankOutcome Wait() {
    while (Poll(failed_ ? kGraceMs : -1)) {
    }
    return killed_ ? *killed_ : failed_ ? *failed_ : RankOutcome{};
  }

 private:
  /// Waits for the next report or death; false when none is left, or none came in time.
  bool Poll(int timeout_ms) {
    std::vector<pollfd> polls;
    std::vector<RankProcess*> waiting;
    for (RankProcess& process : processes_) {
      if (process.pid < 0) continue;
      polls.push_back({process.report.get(), POLLIN, 0});
      waiting.push_back(&process);
    }
    if (polls.empty()) return false;
    const int ready = poll(polls.data(), polls.size(), timeout_ms);
    if (ready < 0) return errno == EINTR;
    if (ready == 0) return false;
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents != 0) Read(waiting[i]);
    }
    return true;
  }

  void Read(RankProcess* process) {
    char text[4096];
    const ssize_t n = read(process->report.get(), text, sizeof text);
    if (n > 0) {
      process->message.append(text, static_cast<size_t>(n));
      return;
    }
    const RankOutcome outcome = Reap(process);
    if (outcome.exit_code == kExitDone) return;
    const bool killed = outcome.message.find("was killed by signal") != std::string::npos;
    if (killed && !killed_) killed_ = outcome;
    if (!failed_) failed_ = outcome;
  }

  void KillAll() {
    for (RankProcess& process : processes_) {
      if (process.pid > 0) kill(process.pid, SIGKILL);
    }
    for (RankProcess& process : processes_) {
      if (process.pid > 0) (void)Reap(&process);
    }
  }

  std::vector<RankProcess> processes_;
  std::optional<RankOutcome> failed_;  // the first
  std::optional<RankOutcome> killed_;  // the first by a signal
};

}  // namespace

RankOutcome RunRankProcesses(int ranks, const std::function<RankOutcome(int rank)>& body) {
  std::fflush(nullptr);  // or every rank would print what is still buffered
  Supervisor supervisor;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!supervisor.Fork(rank, body)) {
      return {kExitFailed, fmt::format("cannot start rank {}: {}", rank, std::strerror(errno))};
    }
  }
  return supervisor.Wait();
}

}  // namespace weft::cli
