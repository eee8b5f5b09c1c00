// Child processes for testbeds: started inside a network namespace, pinned to cores, read line by line, and never left
// behind. The namespace is entered by setns(2) in the child itself: no `ip netns exec` stands between, so that pid and
// signals are the program's own.
//
//   WEFT_ASSIGN_OR_RETURN(auto server, Spawn({.argv = {"iperf3", "-s"}, .netns = host.netns, .out = Output::Pipe()}));
//   WEFT_ASSIGN_OR_RETURN(auto line, server.out_lines()->Next(Seconds(5)));
//   server.Kill(SIGTERM);
//   WEFT_ASSIGN_OR_RETURN(const ExitStatus status, server.Wait(Seconds(1)));
#pragma once

#include <sys/types.h>

#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "common/units.h"

namespace weft::testbed {

inline constexpr Seconds kNoTimeout{std::numeric_limits<double>::infinity()};

/// Where a child's stdout or stderr goes.
struct Output {
  enum class Kind { kInherit, kNull, kFile, kPipe, kDescriptor, kSameAsOut };

  static Output Inherit() { return {Kind::kInherit, "", -1}; }
  static Output Null() { return {Kind::kNull, "", -1}; }
  /// Created or cut to nothing.
  static Output File(std::string path) { return {Kind::kFile, std::move(path), -1}; }
  /// Readable line by line from the Process. Somebody must read it: a full pipe stops the child.
  static Output Pipe() { return {Kind::kPipe, "", -1}; }
  /// An open descriptor of the caller, who keeps it.
  static Output Descriptor(int fd) { return {Kind::kDescriptor, "", fd}; }
  /// For stderr only: wherever stdout goes.
  static Output SameAsOut() { return {Kind::kSameAsOut, "", -1}; }

  Kind kind = Kind::kInherit;
  std::string path;
  int fd = -1;
};

struct ProcessOptions {
  std::vector<std::string> argv;  ///< argv[0] is looked for in PATH unless it holds a slash
  /// Added to, or in place of, the caller's own variables.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string netns;       ///< name under /run/netns; empty: the calling thread's
  std::vector<int> cores;  ///< CPU affinity; empty: the caller's
  Output out = Output::Inherit();
  Output err = Output::Inherit();
  std::optional<std::string> input;  ///< text on stdin; none: /dev/null
  /// SIGKILL for the child when the *thread* that spawned it ends (prctl PR_SET_PDEATHSIG). Spawn long-lived children
  /// from a long-lived thread.
  bool die_with_parent = true;
  /// Its own process group: a terminal's Ctrl-C reaches only the owner, and Kill reaches the child's own children.
  bool own_process_group = true;
  /// In a namespace, mount a sysfs that shows that namespace's /sys/class/net (a private mount namespace).
  bool own_sysfs = true;
};

/// How a process ended.
struct ExitStatus {
  int code = 0;    ///< exit status; meaningless where `signal` is set
  int signal = 0;  ///< the signal that killed it, or 0

  bool ok() const { return code == 0 && signal == 0; }
  /// "exit status 2" or "killed by signal 9 (Killed)".
  std::string ToString() const;
};

/// Reads a pipe line by line. Threads: one at a time.
class LineReader {
 public:
  explicit LineReader(UniqueFd fd) : fd_(std::move(fd)) {}

  /// The next line without its newline; nothing at the end of the stream (a last line without a newline counts).
  /// Errors: kDeadlineExceeded after `timeout`; kCancelled when `stop` is asked for.
  [[nodiscard]] Result<std::optional<std::string>> Next(Seconds timeout = kNoTimeout, std::stop_token stop = {});

 private:
  UniqueFd fd_;
  std::string buffered_;
  bool ended_ = false;
};

/// A child. The destructor kills (SIGKILL, the whole process group) and reaps it. Threads: one at a time.
class Process {
 public:
  Process(Process&&) noexcept;
  Process& operator=(Process&&) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  /// Waits for the end; may be called again afterwards and answers the same.
  /// Errors: kDeadlineExceeded after `timeout`; kCancelled when `stop` is asked for. The child lives on in both cases.
  [[nodiscard]] Result<ExitStatus> Wait(Seconds timeout = kNoTimeout, std::stop_token stop = {});
  /// Whether it is still there; does not block.
  bool Running();
  /// Sends a signal to the child (with its process group, where it has its own); nothing once it was waited for.
  void Kill(int signal);

  /// Set where the option was Output::Pipe().
  LineReader* out_lines() { return out_.get(); }
  LineReader* err_lines() { return err_.get(); }

 private:
  friend Result<Process> Spawn(const ProcessOptions& options);
  Process() = default;
  void End();

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  bool group_ = false;
  std::optional<ExitStatus> status_;
  std::unique_ptr<LineReader> out_;
  std::unique_ptr<LineReader> err_;
};

/// Starts a program. Returns after its exec has succeeded, so that a missing program is an error of this call.
/// Errors: kInvalidArgument for empty argv; kNotFound for the program or namespace; kFailedPrecondition naming the step
/// that failed in the child (enter namespace, set affinity, exec).
[[nodiscard]] Result<Process> Spawn(const ProcessOptions& options);

/// What a finished command said.
struct CommandOutput {
  ExitStatus status;
  std::string out;
  std::string err;
};

/// Runs a program to its end and collects what it printed (`out` and `err` of the options are not used).
/// Errors: those of Spawn; kDeadlineExceeded naming the command, which is then killed. A bad exit status is no error.
[[nodiscard]] Result<CommandOutput> RunCommand(const ProcessOptions& options, Seconds timeout = kNoTimeout);

/// RunCommand that also fails with kFailedPrecondition, naming command, status and first line of stderr, unless the
/// command exits with 0. Returns its stdout.
[[nodiscard]] Result<std::string> CheckCommand(const ProcessOptions& options, Seconds timeout = kNoTimeout);

}  // namespace weft::testbed
