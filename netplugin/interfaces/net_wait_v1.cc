// For drivers that would rather sleep than poll.
#include "netplugin/abi/wait.h"
#include "netplugin/net.h"

extern "C" {
[[gnu::visibility("default")]] int weftNetWait_v1(void* const* requests, int count, int64_t most_ns) noexcept {
  return weft::net::Wait(requests, count, most_ns);
}
}
