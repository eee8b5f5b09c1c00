// Handles on processes. glibc 2.36 declares these calls in <sys/pidfd.h>, but without C linkage for C++.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/unique_fd.h"

namespace weft::testbed {

/// No descriptor, and errno set, if there is no such process. Close-on-exec. Async-signal-safe.
inline UniqueFd OpenPidFd(pid_t pid) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

/// Returns 0, or -1 with errno set.
inline int SignalPidFd(const UniqueFd& handle, int signal) {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0));
}

}  // namespace weft::testbed
