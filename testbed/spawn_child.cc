#include "testbed/spawn_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "testbed/net_namespace.h"

namespace weft::testbed {
namespace {

/// What the child writes to its parent if it does not get as far as exec.
struct ChildFailure {
  enum Step : int { kParentGone, kStreams, kNamespace, kAffinity, kExec };
  Step step;
  int error;
};

std::string_view StepName(ChildFailure::Step step) {
  switch (step) {
    case ChildFailure::kParentGone: return "bind to parent";
    case ChildFailure::kStreams: return "set up streams";
    case ChildFailure::kNamespace: return "enter network namespace";
    case ChildFailure::kAffinity: return "set CPU affinity";
    case ChildFailure::kExec: return "exec";
  }
  return "start";
}

/// Moves `from` to the number `to`, without close-on-exec.
bool MoveStream(int from, int to) noexcept {
  if (from == to) return ::fcntl(from, F_SETFD, 0) == 0;
  return ::dup2(from, to) == to;
}

/// Runs in the child. Only async-signal-safe calls from here on.
[[noreturn]] void BecomeImage(const ChildImage& image, const ChildStreams& streams, char* const* argv,
                              char* const* environment, pid_t parent, int report) noexcept {
  const auto fail = [report](ChildFailure::Step step, int error) {
    const ChildFailure failure{step, error};
    (void)!::write(report, &failure, sizeof(failure));
    ::_exit(127);
  };
  // The parent's handlers and blocked signals are its own; a child that inherits a blocked SIGTERM could not be ended.
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (image.own_process_group) ::setpgid(0, 0);
  if (image.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) fail(ChildFailure::kParentGone, ESRCH);
  }
  if (!MoveStream(streams.in, 0) || !MoveStream(streams.out, 1) || !MoveStream(streams.err, 2)) {
    fail(ChildFailure::kStreams, errno);
  }
  if (image.netns) {
    if (const int error = EnterNamespace(image.netns.get(), image.own_sysfs); error != 0) {
      fail(ChildFailure::kNamespace, error);
    }
  }
  if (image.pinned && ::sched_setaffinity(0, sizeof(image.cores), &image.cores) != 0) {
    fail(ChildFailure::kAffinity, errno);
  }
  ::execve(image.path(), argv, environment);
  fail(ChildFailure::kExec, errno);
  ::_exit(127);
}

Result<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view folders = path != nullptr && *path != '\0' ? path : "/usr/sbin:/usr/bin:/sbin:/bin";
  // ip and tc lie in sbin, which an ordinary shell's PATH lacks.
  for (std::string_view rest : {folders, std::string_view("/usr/sbin:/sbin")}) {
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      std::string candidate = std::string(rest.substr(0, end)) + "/" + name;
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return Fail(Code::kNotFound, fmt::format("program \"{}\" not found in PATH", name));
}

std::vector<std::string> MergedEnvironment(const std::vector<std::pair<std::string, std::string>>& additions) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [key, value] : additions) replaced = replaced || key == name;
    if (!replaced) merged.emplace_back(text);
  }
  for (const auto& [key, value] : additions) merged.push_back(key + "=" + value);
  return merged;
}

/// The descriptor for one output; a pipe's reading end goes to `read_end`.
Result<int> OpenOutput(const Output& output, int inherited, int out, UniqueFd& read_end, std::vector<UniqueFd>& owned) {
  const auto open = [&](const std::string& path, int flags) -> Result<int> {
    UniqueFd fd(::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC, 0644));
    if (!fd) return Fail(ErrnoError(fmt::format("open \"{}\" for output", path), errno));
    owned.push_back(std::move(fd));
    return owned.back().get();
  };
  switch (output.kind) {
    case Output::Kind::kInherit: return inherited;
    case Output::Kind::kNull: return open("/dev/null", 0);
    case Output::Kind::kFile: return open(output.path, O_CREAT | O_TRUNC);
    case Output::Kind::kDescriptor: return output.fd;
    case Output::Kind::kSameAsOut: return out;
    case Output::Kind::kPipe: break;
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(ErrnoError("make a pipe", errno));
  read_end.reset(ends[0]);
  owned.emplace_back(ends[1]);
  return ends[1];
}

}  // namespace

std::vector<char*> ChildImage::Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

Result<ChildImage> ChildImage::Make(const ProcessOptions& options) {
  if (options.argv.empty()) return Fail(Code::kInvalidArgument, "spawn: empty argv, expected a program");
  ChildImage image;
  image.argv_ = options.argv;
  WEFT_ASSIGN_OR_RETURN(image.path_, FindProgram(options.argv.front()));
  image.environment_ = MergedEnvironment(options.environment);
  if (!options.netns.empty()) {
    WEFT_ASSIGN_OR_RETURN(image.netns, OpenNamespace(options.netns));
  }
  image.own_sysfs = options.own_sysfs;
  CPU_ZERO(&image.cores);
  for (const int core : options.cores) {
    if (core < 0 || core >= CPU_SETSIZE) {
      return Fail(Code::kInvalidArgument, fmt::format("spawn \"{}\": core {}, must be 0 to {}", options.argv.front(),
                                                      core, CPU_SETSIZE - 1));
    }
    CPU_SET(core, &image.cores);
    image.pinned = true;
  }
  image.die_with_parent = options.die_with_parent;
  image.own_process_group = options.own_process_group;
  return image;
}

Result<ChildStreams> ChildStreams::Open(const ProcessOptions& options, UniqueFd input) {
  ChildStreams streams;
  if (!input) input.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input) return Fail(ErrnoError("open \"/dev/null\"", errno));
  streams.in = input.get();
  streams.owned.push_back(std::move(input));
  WEFT_ASSIGN_OR_RETURN(streams.out, OpenOutput(options.out, 1, 1, streams.out_pipe, streams.owned));
  WEFT_ASSIGN_OR_RETURN(streams.err, OpenOutput(options.err, 2, streams.out, streams.err_pipe, streams.owned));
  return streams;
}

Result<pid_t> StartChild(const ChildImage& image, const ChildStreams& streams) {
  const std::vector<char*> argv = image.Argv();
  const std::vector<char*> environment = image.Environment();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(ErrnoError("make a pipe", errno));
  UniqueFd report(ends[0]);
  UniqueFd child_report(ends[1]);

  // With all signals blocked, none of the parent's handlers can run in the child.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    BecomeImage(image, streams, argv.data(), environment.data(), parent, child_report.get());
  }
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return Fail(ErrnoError(fmt::format("fork for \"{}\"", image.name()), fork_error));

  child_report.reset();
  ChildFailure failure{};
  ssize_t got = -1;
  do {
    got = ::read(report.get(), &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got == 0) return pid;  // close-on-exec closed it: the program runs
  ::waitpid(pid, nullptr, 0);
  return Fail(ErrnoError(fmt::format("spawn \"{}\": {}", image.name(), StepName(failure.step)), failure.error));
}

}  // namespace weft::testbed
