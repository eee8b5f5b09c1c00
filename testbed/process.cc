#include "testbed/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "testbed/pidfd.h"
#include "testbed/spawn_child.h"

namespace weft::testbed {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

/// Waits until `fd` is readable. Errors: kDeadlineExceeded, kCancelled; both name `what`.
Status WaitReadable(int fd, Seconds timeout, const std::stop_token& stop, std::string_view what) {
  UniqueFd stopped;
  if (stop.stop_possible()) stopped.reset(::eventfd(0, EFD_CLOEXEC));
  const std::stop_callback wake(stop, [&] {
    const uint64_t one = 1;
    (void)!::write(stopped.get(), &one, sizeof(one));
  });
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const Seconds left = timeout - (std::chrono::steady_clock::now() - start);
    const int wait_ms = std::isinf(timeout.count()) ? -1 : std::max(0, static_cast<int>(std::ceil(
                                                               std::min(left.count(), 1e6) * 1000)));
    std::array<pollfd, 2> wanted{{{fd, POLLIN, 0}, {stopped.get(), POLLIN, 0}}};
    const int ready = ::poll(wanted.data(), wanted.size(), wait_ms);
    if (ready < 0 && errno != EINTR) return Fail(ErrnoError(fmt::format("wait for {}", what), errno));
    if (wanted[0].revents != 0) return Ok();
    if (stop.stop_requested()) return Fail(Code::kCancelled, fmt::format("wait for {}: asked to stop", what));
    if (ready == 0 && left <= Seconds(0)) {
      return Fail(Code::kDeadlineExceeded, fmt::format("wait for {}: not within {:.3g} s", what, timeout.count()));
    }
  }
}

Result<std::string> ReadAll(int fd) {
  std::string text;
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t got = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(ErrnoError("read a command's output", errno));
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

Result<UniqueFd> MemoryFile(std::string_view text) {
  UniqueFd fd(::memfd_create("weft-testbed", MFD_CLOEXEC));
  if (!fd) return Fail(ErrnoError("memfd_create", errno));
  while (!text.empty()) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written < 0) return Fail(ErrnoError("write a command's input", errno));
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (::lseek(fd.get(), 0, SEEK_SET) < 0) return Fail(ErrnoError("rewind a command's input", errno));
  return fd;
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal != 0) return fmt::format("killed by signal {} ({})", signal, ::strsignal(signal));
  return fmt::format("exit status {}", code);
}

Result<std::optional<std::string>> LineReader::Next(Seconds timeout, std::stop_token stop) {
  while (true) {
    if (const size_t end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    if (ended_) {
      if (buffered_.empty()) return std::nullopt;
      return std::exchange(buffered_, "");
    }
    WEFT_RETURN_IF_ERROR(WaitReadable(fd_.get(), timeout, stop, "a line of a child's output"));
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(ErrnoError("read a child's output", errno));
    ended_ = got == 0;
    buffered_.append(buffer.data(), static_cast<size_t>(got));
  }
}

Process::Process(Process&& other) noexcept { *this = std::move(other); }

Process& Process::operator=(Process&& other) noexcept {
  if (this == &other) return *this;
  End();
  pid_ = std::exchange(other.pid_, -1);
  pidfd_ = std::move(other.pidfd_);
  group_ = other.group_;
  status_ = std::exchange(other.status_, std::nullopt);
  out_ = std::move(other.out_);
  err_ = std::move(other.err_);
  return *this;
}

Process::~Process() { End(); }

void Process::End() {
  if (pid_ < 0 || status_) return;
  Kill(SIGKILL);
  (void)Wait();
}

void Process::Kill(int signal) {
  if (pid_ < 0 || status_) return;
  // Until it is reaped, nobody else can have this pid or process group.
  if (!group_ || ::kill(-pid_, signal) != 0) ::kill(pid_, signal);
}

bool Process::Running() {
  if (pid_ < 0 || status_) return false;
  pollfd wanted{pidfd_.get(), POLLIN, 0};
  return ::poll(&wanted, 1, 0) == 0;
}

Result<ExitStatus> Process::Wait(Seconds timeout, std::stop_token stop) {
  if (status_) return *status_;
  WEFT_RETURN_IF_ERROR(WaitReadable(pidfd_.get(), timeout, stop, fmt::format("process {}", pid_)));
  int status = 0;
  pid_t reaped = -1;
  do {
    reaped = ::waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (reaped < 0) return Fail(ErrnoError(fmt::format("reap process {}", pid_), errno));
  status_ = WIFSIGNALED(status) ? ExitStatus{.code = 0, .signal = WTERMSIG(status)}
                                : ExitStatus{.code = WEXITSTATUS(status), .signal = 0};
  return *status_;
}

Result<Process> Spawn(const ProcessOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const ChildImage image, ChildImage::Make(options));
  UniqueFd input;
  if (options.input) {
    WEFT_ASSIGN_OR_RETURN(input, MemoryFile(*options.input));
  }
  WEFT_ASSIGN_OR_RETURN(ChildStreams streams, ChildStreams::Open(options, std::move(input)));
  Process process;
  WEFT_ASSIGN_OR_RETURN(process.pid_, StartChild(image, streams));
  process.group_ = options.own_process_group;
  process.pidfd_ = OpenPidFd(process.pid_);
  if (!process.pidfd_) {
    const int error = errno;
    ::kill(process.pid_, SIGKILL);
    ::waitpid(std::exchange(process.pid_, -1), nullptr, 0);
    return Fail(ErrnoError("open a handle on a child", error));
  }
  if (streams.out_pipe) process.out_ = std::make_unique<LineReader>(std::move(streams.out_pipe));
  if (streams.err_pipe) process.err_ = std::make_unique<LineReader>(std::move(streams.err_pipe));
  return process;
}

Result<CommandOutput> RunCommand(const ProcessOptions& options, Seconds timeout) {
  // Memory files instead of pipes: a command may print on both as much as it likes, and nobody has to read meanwhile.
  WEFT_ASSIGN_OR_RETURN(const UniqueFd out, MemoryFile(""));
  WEFT_ASSIGN_OR_RETURN(const UniqueFd err, MemoryFile(""));
  ProcessOptions captured = options;
  captured.out = Output::Descriptor(out.get());
  captured.err = Output::Descriptor(err.get());
  WEFT_ASSIGN_OR_RETURN(Process process, Spawn(captured));
  Result<ExitStatus> status = process.Wait(timeout);
  if (!status) return Fail(status.error().WithContext(fmt::format("run \"{}\"", fmt::join(options.argv, " "))));
  CommandOutput result;
  result.status = *status;
  WEFT_ASSIGN_OR_RETURN(result.out, ReadAll(out.get()));
  WEFT_ASSIGN_OR_RETURN(result.err, ReadAll(err.get()));
  return result;
}

Result<std::string> CheckCommand(const ProcessOptions& options, Seconds timeout) {
  WEFT_ASSIGN_OR_RETURN(CommandOutput output, RunCommand(options, timeout));
  if (output.status.ok()) return std::move(output.out);
  const std::string where = options.netns.empty() ? "" : fmt::format(" in \"{}\"", options.netns);
  return Fail(Code::kFailedPrecondition,
              fmt::format("run \"{}\"{}: {}: {}", fmt::join(options.argv, " "), where, output.status.ToString(),
                          output.err.substr(0, output.err.find('\n'))));
}

}  // namespace weft::testbed
