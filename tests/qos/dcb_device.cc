// For tests: a network interface with DCB, for programs that are started with this library preloaded (LD_PRELOAD). No kernel of the
// testbed has one. Requests of rtnetlink's DCB part for the interface that DCB_DEVICE names are answered as the kernel's
// net/dcb/dcbnl.c answers them for a driver that has all of it, from a state that all such programs share: the file
// DCB_DEVICE_STATE.
// iproute2's `dcb` and Weft's agent both speak to it, so each checks what the other makes of the same bytes.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int kMostApps = 256;

struct State {
  ieee_ets ets;
  ieee_pfc pfc;
  dcbnl_buffer buffers;
  int apps = 0;
  dcb_app app[kMostApps];
};

std::mutex mutex;
std::map<int, std::vector<char>> waiting;  // answers by descriptor

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

const char* Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The shared state, locked as long as this lives and written when it goes.
class Shared {
 public:
  Shared() : fd_(open(Environment("DCB_DEVICE_STATE"), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    flock(fd_, LOCK_EX);
    if (pread(fd_, &state, sizeof state, 0) == static_cast<ssize_t>(sizeof state)) return;
    state = {};
    state.ets.ets_cap = 8;
    state.pfc.pfc_cap = 8;
    for (int i = 0; i < 8; ++i) state.ets.prio_tc[i] = static_cast<unsigned char>(i);
  }
  ~Shared() {
    if (pwrite(fd_, &state, sizeof state, 0) != static_cast<ssize_t>(sizeof state)) std::abort();
    close(fd_);
  }
  State state;

 private:
  int fd_;
};

void Put(std::vector<char>& to, uint16_t type, const void* data, size_t bytes) {
  const nlattr attribute{static_cast<uint16_t>(NLA_HDRLEN + bytes), type};
  const auto* head = reinterpret_cast<const char*>(&attribute);
  to.insert(to.end(), head, head + sizeof attribute);
  to.insert(to.end(), static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
  to.resize(NLA_ALIGN(to.size()));
}

template <typename Visit>
void ForEach(const char* data, size_t bytes, Visit visit) {
  while (bytes >= NLA_HDRLEN) {
    nlattr header;
    std::memcpy(&header, data, sizeof header);
    if (header.nla_len < NLA_HDRLEN || header.nla_len > bytes) return;
    visit(header.nla_type & NLA_TYPE_MASK, data + NLA_HDRLEN, header.nla_len - NLA_HDRLEN);
    const size_t step = std::min<size_t>(NLA_ALIGN(header.nla_len), bytes);
    data += step;
    bytes -= step;
  }
}

int Find(const State& state, const dcb_app& wanted) {
  for (int i = 0; i < state.apps; ++i) {
    if (std::memcmp(&state.app[i], &wanted, sizeof wanted) == 0) return i;
  }
  return -1;
}

int AddApp(State& state, const dcb_app& app) {
  if (Find(state, app) >= 0) return -EEXIST;
  if (state.apps == kMostApps) return -ENOMEM;
  state.app[state.apps++] = app;
  return 0;
}

int DeleteApp(State& state, const dcb_app& app) {
  const int at = Find(state, app);
  if (at < 0) return -ENOENT;
  state.app[at] = state.app[--state.apps];
  return 0;
}

/// What a driver refuses.
int CheckEts(const ieee_ets& ets) {
  int shares = 0;
  bool any = false;
  for (int i = 0; i < 8; ++i) {
    if (ets.prio_tc[i] >= ets.ets_cap) return -EINVAL;
    if (ets.tc_tsa[i] != IEEE_8021QAZ_TSA_ETS) continue;
    any = true;
    shares += ets.tc_tx_bw[i];
  }
  return any && shares != 100 ? -EINVAL : 0;
}

int Change(State& state, int command, const char* ieee, size_t bytes) {
  int error = 0;
  ForEach(ieee, bytes, [&](int type, const char* data, size_t length) {
    if (error != 0) return;
    if (type == DCB_ATTR_IEEE_ETS && length >= sizeof(ieee_ets)) {
      ieee_ets ets;
      std::memcpy(&ets, data, sizeof ets);
      ets.ets_cap = state.ets.ets_cap;
      error = CheckEts(ets);
      if (error == 0) state.ets = ets;
    }
    if (type == DCB_ATTR_IEEE_PFC && length >= sizeof(ieee_pfc)) {
      ieee_pfc pfc;
      std::memcpy(&pfc, data, sizeof pfc);
      state.pfc.pfc_en = pfc.pfc_en;
      state.pfc.delay = pfc.delay;
      state.pfc.mbc = pfc.mbc;
    }
    if (type == DCB_ATTR_IEEE_APP_TABLE) {
      ForEach(data, length, [&](int, const char* entry, size_t size) {
        if (error != 0 || size < sizeof(dcb_app)) return;
        dcb_app app;
        std::memcpy(&app, entry, sizeof app);
        error = command == DCB_CMD_IEEE_DEL ? DeleteApp(state, app) : AddApp(state, app);
      });
    }
  });
  return error;
}

std::vector<char> Settings(const State& state) {
  std::vector<char> nested, table;
  Put(nested, DCB_ATTR_IEEE_ETS, &state.ets, sizeof state.ets);
  Put(nested, DCB_ATTR_IEEE_PFC, &state.pfc, sizeof state.pfc);
  for (int i = 0; i < state.apps; ++i) Put(table, DCB_ATTR_IEEE_APP, &state.app[i], sizeof state.app[i]);
  Put(nested, DCB_ATTR_IEEE_APP_TABLE, table.data(), table.size());
  Put(nested, DCB_ATTR_DCB_BUFFER, &state.buffers, sizeof state.buffers);
  return nested;
}

/// Whether the message is for the device; its answer then waits at `fd`.
bool Answer(int fd, const void* data, size_t bytes) {
  if (*Environment("DCB_DEVICE") == '\0' || bytes < NLMSG_HDRLEN + sizeof(dcbmsg)) return false;
  nlmsghdr header;
  std::memcpy(&header, data, sizeof header);
  if ((header.nlmsg_type != RTM_GETDCB && header.nlmsg_type != RTM_SETDCB) || header.nlmsg_len != bytes) return false;
  dcbmsg dcb;
  std::memcpy(&dcb, static_cast<const char*>(data) + NLMSG_HDRLEN, sizeof dcb);
  std::string name;
  const char* ieee = nullptr;
  size_t ieee_bytes = 0;
  ForEach(static_cast<const char*>(data) + NLMSG_HDRLEN + sizeof dcb, bytes - NLMSG_HDRLEN - sizeof dcb,
          [&](int type, const char* at, size_t length) {
    if (type == DCB_ATTR_IFNAME) name.assign(at, strnlen(at, length));
    if (type == DCB_ATTR_IEEE) ieee = at, ieee_bytes = length;
  });
  if (name != Environment("DCB_DEVICE")) return false;

  Shared shared;
  std::vector<char> answer(NLMSG_HDRLEN + sizeof dcb);
  std::memcpy(answer.data() + NLMSG_HDRLEN, &dcb, sizeof dcb);
  if (header.nlmsg_type == RTM_GETDCB) {
    Put(answer, DCB_ATTR_IFNAME, name.c_str(), name.size() + 1);
    const std::vector<char> settings = Settings(shared.state);
    Put(answer, DCB_ATTR_IEEE, settings.data(), settings.size());
  } else {
    const auto error = static_cast<char>(ieee == nullptr ? -EINVAL : Change(shared.state, dcb.cmd, ieee, ieee_bytes));
    Put(answer, DCB_ATTR_IEEE, &error, 1);
  }
  const nlmsghdr out{static_cast<uint32_t>(answer.size()), header.nlmsg_type, 0, header.nlmsg_seq, 0};
  std::memcpy(answer.data(), &out, sizeof out);
  if ((header.nlmsg_flags & NLM_F_ACK) != 0) {
    const struct {
      nlmsghdr header;
      nlmsgerr error;
    } done{{sizeof done, NLMSG_ERROR, 0, header.nlmsg_seq, 0}, {0, header}};
    answer.insert(answer.end(), reinterpret_cast<const char*>(&done), reinterpret_cast<const char*>(&done) + sizeof done);
  }
  const std::lock_guard lock(mutex);
  waiting[fd] = std::move(answer);
  return true;
}

/// The answer that waits at `fd`; -1: none.
ssize_t Take(int fd, void* to, size_t bytes) {
  const std::lock_guard lock(mutex);
  const auto found = waiting.find(fd);
  if (found == waiting.end()) return -1;
  const size_t length = std::min(bytes, found->second.size());
  std::memcpy(to, found->second.data(), length);
  waiting.erase(found);
  return static_cast<ssize_t>(length);
}

}  // namespace

extern "C" {

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  static const auto real = Next<ssize_t (*)(int, const void*, size_t, int)>("send");
  return Answer(fd, data, bytes) ? static_cast<ssize_t>(bytes) : real(fd, data, bytes, flags);
}

ssize_t sendto(int fd, const void* data, size_t bytes, int flags, const sockaddr* to, socklen_t length) {
  static const auto real = Next<ssize_t (*)(int, const void*, size_t, int, const sockaddr*, socklen_t)>("sendto");
  return Answer(fd, data, bytes) ? static_cast<ssize_t>(bytes) : real(fd, data, bytes, flags, to, length);
}

ssize_t recv(int fd, void* to, size_t bytes, int flags) {
  static const auto real = Next<ssize_t (*)(int, void*, size_t, int)>("recv");
  const ssize_t got = Take(fd, to, bytes);
  return got >= 0 ? got : real(fd, to, bytes, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto real = Next<ssize_t (*)(int, msghdr*, int)>("recvmsg");
  const ssize_t got = message->msg_iovlen == 1 ? Take(fd, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len) : -1;
  if (got < 0) return real(fd, message, flags);
  message->msg_flags = 0;
  message->msg_controllen = 0;
  if (message->msg_name != nullptr && message->msg_namelen >= sizeof(sockaddr_nl)) {
    const sockaddr_nl kernel{AF_NETLINK, 0, 0, 0};
    std::memcpy(message->msg_name, &kernel, sizeof kernel);
    message->msg_namelen = sizeof kernel;
  }
  return got;
}

int poll(pollfd* fds, nfds_t count, int timeout) {
  static const auto real = Next<int (*)(pollfd*, nfds_t, int)>("poll");
  if (count == 1 && (fds->events & POLLIN) != 0) {
    const std::lock_guard lock(mutex);
    if (waiting.contains(fds->fd)) return fds->revents = POLLIN, 1;
  }
  return real(fds, count, timeout);
}

}  // extern "C"
