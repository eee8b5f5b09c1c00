// CanBuildFabric: tries the real thing on a nameless namespace that goes with the thread that made it.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "testbed/fabric.h"
#include "testbed/process.h"

namespace weft::testbed {
namespace {

constexpr Seconds kTimeout{10};

Status NotPossible(std::string_view what, const Error& error) {
  return Fail(Code::kFailedPrecondition, fmt::format("cannot build a namespace fabric: {}: {}", what, error.message()));
}

/// Runs in a namespace that nobody else sees.
Status TryDevices() {
  const auto ip = CheckCommand({.argv = {"ip", "-batch", "-"},
                                .input = "link add weft0 type veth peer name weft1\n"
                                         "link add weftbr type bridge\nlink set weft0 up\nlink set weft1 up\n"},
                               kTimeout);
  if (!ip) return NotPossible("make veth pairs and bridges", ip.error());
  const auto tc = CheckCommand({.argv = {"tc", "-batch", "-"},
                                .input = "qdisc add dev weft0 root handle 1: htb default 20\n"
                                         "class add dev weft0 parent 1: classid 1:20 htb rate 1mbit\n"
                                         "filter add dev weft0 parent 1: protocol ip prio 1 u32 match ip dsfield "
                                         "0x68 0xfc classid 1:20\n"},
                               kTimeout);
  if (!tc) return NotPossible("shape with HTB and u32", tc.error());
  if (const char* fields = "/proc/sys/net/ipv4/fib_multipath_hash_fields"; ::access(fields, W_OK) != 0) {
    return NotPossible("hash flows over paths (Linux 5.14 or later)", ErrnoError(fields, errno));
  }
  return Ok();
}

}  // namespace

Status CanBuildFabric() {
  if (::geteuid() != 0) {
    return Fail(Code::kFailedPrecondition,
                fmt::format("cannot build a namespace fabric: effective user is {}, must be 0 (root)", ::geteuid()));
  }
  for (const char* program : {"ip", "tc"}) {
    const auto version = CheckCommand({.argv = {program, "-V"}}, kTimeout);
    if (!version) return NotPossible("iproute2 is needed", version.error());
  }
  Status status;
  std::jthread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      status = NotPossible("make a network namespace", ErrnoError("unshare", errno));
      return;
    }
    status = TryDevices();
  }).join();
  return status;
}

}  // namespace weft::testbed
