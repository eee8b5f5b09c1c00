// Named network namespaces as `ip netns` keeps them, from inside one process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "common/units.h"

namespace weft::testbed {

/// Errors: kNotFound naming the namespace.
[[nodiscard]] Result<UniqueFd> OpenNamespace(std::string_view name);
bool NamespaceExists(std::string_view name);

/// Moves the calling thread into the namespace open at `fd` and gives it a sysfs of its own if `own_sysfs`.
/// Returns 0 or errno. Async-signal-safe: for a child between fork and exec.
int EnterNamespace(int fd, bool own_sysfs) noexcept;

/// Runs `body` on a thread of its own inside the namespace, so that the caller's threads stay where they are. There,
/// /proc/sys/net and new sockets are the namespace's. Blocks until it is done; returns its status.
[[nodiscard]] Status InNamespace(std::string_view name, const std::function<Status()>& body);

/// Ends all processes whose main thread is in one of the namespaces, the calling process excepted: SIGTERM, and SIGKILL
/// for what is left after `grace`. Names that do not exist are skipped.
void KillProcessesIn(std::span<const std::string> names, Seconds grace);

/// Process ids whose main thread is in one of the namespaces, the calling process excepted.
std::vector<pid_t> ProcessesIn(std::span<const std::string> names);

}  // namespace weft::testbed
