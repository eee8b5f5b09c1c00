#include "tests/fire/cable.h"

#include <sched.h>

#include <cstdlib>
#include <ctime>

namespace weft::net::fire {
namespace {

bool Run(const std::string& command, std::string* why) {
  if (std::system((command + " >/dev/null 2>&1").c_str()) == 0) return true;  // NOLINT(concurrency-mt-unsafe)
  if (why) *why = command;
  return false;
}

std::string In(pid_t process, const std::string& command) {
  return "nsenter --target " + std::to_string(process) + " --net -- " + command;
}

}  // namespace

bool Cable::Isolate() { return unshare(CLONE_NEWNET) == 0; }

bool Cable::Lay(std::array<pid_t, 2> processes, std::string* why) {
  const std::string name = kInterface;
  if (!Run(In(processes[0], "ip link add " + name + " type veth peer name " + name + " netns " +
                                std::to_string(processes[1])),
           why)) {
    return false;
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    if (!Run(In(processes[i], "ip address add 10.99.0." + std::to_string(i + 1) + "/24 dev " + name), why) ||
        !Run(In(processes[i], "ip link set " + name + " up"), why)) {
      return false;
    }
  }
  holder_ = processes[0];
  // The kernel says a little later that the link is there; without it there is no device.
  for (const pid_t process : processes) {
    const std::string look = In(process, "ip link show " + name + " | grep -q 'state UP'");
    int tries = 0;
    while (!Run(look, why) && ++tries < 500) {
      const timespec nap{0, 10'000'000};
      nanosleep(&nap, nullptr);
    }
    if (tries == 500) return false;
  }
  return true;
}

bool Cable::Set(bool up) {
  return Run(In(holder_, std::string("ip link set ") + kInterface + (up ? " up" : " down")), nullptr);
}

}  // namespace weft::net::fire
