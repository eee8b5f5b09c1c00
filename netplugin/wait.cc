#include "netplugin/abi/wait.h"

#include <poll.h>

#include <cerrno>
#include <ctime>

#include "netplugin/comm.h"
#include "netplugin/net.h"

namespace weft::net {

int Wait(void* const* requests, int count, int64_t most_ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  if (!requests || count <= 0 || most_ns < 0) return -1;
  PollList fds;
  for (int i = 0; i < count; ++i) {
    const auto* request = static_cast<Request*>(requests[i]);
    if (!request) return -1;
    if (request->done) return 1;
    const size_t before = fds.size();
    request->comm->AddTo(&fds);
    if (fds.size() == before) return -1;
  }
  const timespec most{static_cast<time_t>(most_ns / kSecond), static_cast<long>(most_ns % kSecond)};
  const int ready = ppoll(fds.data(), fds.size(), &most, nullptr);
  if (ready < 0 && errno != EINTR) return -1;
  return ready > 0 ? 1 : 0;
}

}  // namespace weft::net
