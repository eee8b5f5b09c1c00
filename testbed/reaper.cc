#include "testbed/reaper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "testbed/net_namespace.h"
#include "testbed/pidfd.h"
#include "testbed/process.h"

namespace weft::testbed {
namespace {

constexpr Seconds kGrace{1};
constexpr Seconds kCommandTimeout{20};

/// The whole life of a reaper process.
[[noreturn]] void WaitAndTearDown(const StateStore& store, const FabricState& state, pid_t owner) {
  ::setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_NAME, "weft-reaper");
  // Nothing of the owner's is kept open: somebody may be waiting for the end of one of its pipes or sockets.
  ::close_range(0, ~0U, 0);
  for (int stream = 0; stream < 3; ++stream) (void)::open("/dev/null", O_RDWR);
  // A handle on the owner, not the end of a pipe: other children of the owner would have inherited the other end.
  const UniqueFd handle = OpenPidFd(owner);
  if (handle && ::getppid() == owner) {
    pollfd wanted{handle.get(), POLLIN, 0};
    while (::poll(&wanted, 1, -1) < 0 && errno == EINTR) {
    }
  }
  // Under the lock it is certain that the fabric is still the dead owner's: nobody has removed it and built another.
  if (const auto lock = store.Lock()) {
    const auto present = store.Read(state.options.id);
    if (present && present->owner == state.owner) (void)TearDown(store, *present);
  }
  ::_exit(0);
}

std::string RemovalScript(const FabricPlan& plan) {
  std::string script;
  // Ports first: a namespace's own devices go some time after its name, but the ports in the root namespace go now.
  for (const FabricHost& host : plan.hosts) {
    if (const std::string port = plan.BridgePort(host); ::if_nametoindex(port.c_str()) != 0) {
      script += fmt::format("link del {}\n", port);
    }
  }
  if (::if_nametoindex(plan.bridge.c_str()) != 0) script += fmt::format("link del {}\n", plan.bridge);
  for (const std::string& name : plan.Namespaces()) {
    if (NamespaceExists(name)) script += fmt::format("netns del {}\n", name);
  }
  return script;
}

}  // namespace

Status TearDown(const StateStore& store, const FabricState& state) {
  WEFT_ASSIGN_OR_RETURN(const FabricPlan plan, FabricPlan::Make(state.options, state.slot));
  KillProcessesIn(plan.Namespaces(), kGrace);
  if (std::string script = RemovalScript(plan); !script.empty()) {
    // -force goes on after a part that has just gone by itself; what really stays is found below.
    (void)RunCommand({.argv = {"ip", "-force", "-batch", "-"}, .input = std::move(script)}, kCommandTimeout);
  }
  if (const std::string left = RemovalScript(plan); !left.empty()) {
    return Fail(Code::kFailedPrecondition, fmt::format("tear down fabric \"{}\": could not \"ip {}\"", plan.options.id,
                                                       left.substr(0, left.find('\n'))));
  }
  return store.Erase(plan.options.id);
}

Reaper::Reaper(Reaper&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Reaper& Reaper::operator=(Reaper&& other) noexcept {
  Dismiss();
  pid_ = std::exchange(other.pid_, -1);
  return *this;
}

Reaper::~Reaper() { Dismiss(); }

Result<Reaper> Reaper::Start(const StateStore& store, const FabricState& state) {
  const pid_t owner = ::getpid();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the owner's handlers must not run in the reaper
  const pid_t pid = ::fork();
  if (pid == 0) WaitAndTearDown(store, state, owner);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return Fail(ErrnoError("fork a reaper", error));
  Reaper reaper;
  reaper.pid_ = pid;
  return reaper;
}

void Reaper::Dismiss() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace weft::testbed
