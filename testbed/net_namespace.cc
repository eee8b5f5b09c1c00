#include "testbed/net_namespace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "testbed/pidfd.h"

namespace weft::testbed {
namespace {

constexpr std::string_view kDirectory = "/run/netns/";

using NamespaceKey = std::pair<dev_t, ino_t>;

std::set<NamespaceKey> KeysOf(std::span<const std::string> names) {
  std::set<NamespaceKey> keys;
  for (const std::string& name : names) {
    struct stat info{};
    if (::stat((std::string(kDirectory) + name).c_str(), &info) == 0) keys.emplace(info.st_dev, info.st_ino);
  }
  return keys;
}

bool IsIn(pid_t pid, const std::set<NamespaceKey>& keys) {
  struct stat info{};
  return ::stat(fmt::format("/proc/{}/ns/net", pid).c_str(), &info) == 0 &&
         keys.contains(NamespaceKey(info.st_dev, info.st_ino));
}

std::vector<pid_t> ProcessesWithKeys(const std::set<NamespaceKey>& keys) {
  std::vector<pid_t> found;
  if (keys.empty()) return found;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    const auto [rest, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || rest != name.data() + name.size() || pid == ::getpid()) continue;
    if (IsIn(pid, keys)) found.push_back(pid);
  }
  return found;
}

/// Opens a handle on each process and signals it. The handle is checked after it was opened, so that a pid that has
/// been given to somebody else in between is never signalled.
std::vector<UniqueFd> SignalAll(const std::set<NamespaceKey>& keys, int signal) {
  std::vector<UniqueFd> handles;
  for (const pid_t pid : ProcessesWithKeys(keys)) {
    UniqueFd handle = OpenPidFd(pid);
    if (!handle || !IsIn(pid, keys)) continue;
    if (SignalPidFd(handle, signal) == 0) handles.push_back(std::move(handle));
  }
  return handles;
}

void WaitForAll(const std::vector<UniqueFd>& handles, Seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const UniqueFd& handle : handles) {
    const Seconds left = deadline - std::chrono::steady_clock::now();
    pollfd wanted{handle.get(), POLLIN, 0};
    (void)::poll(&wanted, 1, left > Seconds(0) ? static_cast<int>(left.count() * 1000) + 1 : 0);
  }
}

}  // namespace

Result<UniqueFd> OpenNamespace(std::string_view name) {
  const std::string path = std::string(kDirectory) + std::string(name);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(fmt::format("open network namespace \"{}\"", name), errno));
  return fd;
}

bool NamespaceExists(std::string_view name) {
  return ::access((std::string(kDirectory) + std::string(name)).c_str(), F_OK) == 0;
}

int EnterNamespace(int fd, bool own_sysfs) noexcept {
  if (::setns(fd, CLONE_NEWNET) != 0) return errno;
  if (!own_sysfs) return 0;
  // /sys shows the namespace of whoever mounted it; the slave propagation keeps this mount from showing outside.
  if (::unshare(CLONE_NEWNS) != 0) return errno;
  if (::mount("", "/", "none", MS_SLAVE | MS_REC, nullptr) != 0) return errno;
  (void)::umount2("/sys", MNT_DETACH);
  if (::mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0) return errno;
  return 0;
}

Status InNamespace(std::string_view name, const std::function<Status()>& body) {
  WEFT_ASSIGN_OR_RETURN(const UniqueFd fd, OpenNamespace(name));
  Status status;
  std::jthread([&] {
    if (const int error = EnterNamespace(fd.get(), /*own_sysfs=*/false); error != 0) {
      status = Fail(ErrnoError(fmt::format("enter network namespace \"{}\"", name), error));
      return;
    }
    status = body();
  }).join();
  return status;
}

void KillProcessesIn(std::span<const std::string> names, Seconds grace) {
  const std::set<NamespaceKey> keys = KeysOf(names);
  WaitForAll(SignalAll(keys, SIGTERM), grace);
  // Twice, since a process may have forked between being listed and being killed.
  for (int round = 0; round < 2; ++round) WaitForAll(SignalAll(keys, SIGKILL), grace);
}

std::vector<pid_t> ProcessesIn(std::span<const std::string> names) { return ProcessesWithKeys(KeysOf(names)); }

}  // namespace weft::testbed
