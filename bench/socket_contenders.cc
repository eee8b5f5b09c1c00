#include "bench/socket_contenders.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

#include "collectives/net_plugin.h"

namespace weft::bench {

void Die(Shared* shared, const std::string& what) {
  shared->failed.store(true);
  fmt::print(stderr, "socket_loop: {}\n", what);
  std::_Exit(1);
}

void Side::Check(const Status& status) const {
  if (!status) Die(shared, status.error().message());
}
void Side::Check(bool good, const char* what) const {
  if (!good) Die(shared, fmt::format("{}: {}", what, std::strerror(errno)));
}
void Side::Barrier() const {
  const uint32_t generation = shared->generation.load();
  if (shared->arrived.fetch_add(1) == 1) {
    shared->arrived.store(0);
    shared->generation.fetch_add(1);
    return;
  }
  while (shared->generation.load() == generation) {
    if (shared->failed.load()) std::_Exit(1);
    sched_yield();
  }
}

namespace {

constexpr size_t kSlice = 1 << 20;
constexpr size_t kInFlight = 4;

/// A TCP connection with Nagle off and nothing else set.
int OpenConnection(const Side& side) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, side.address.c_str(), &at.sin_addr);
  socklen_t length = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (side.number == 0) {
    side.Check(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 && listen(fd, 1) == 0, "bind");
    getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length);
    side.shared->port = ntohs(at.sin_port);
    side.Barrier();
    const int listening = std::exchange(fd, accept(fd, nullptr, nullptr));
    close(listening);
  } else {
    side.Barrier();
    at.sin_port = htons(side.shared->port);
    side.Check(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "connect");
  }
  side.Barrier();
  const int on = 1;
  side.Check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "setsockopt");
  return fd;
}

/// One connection for both directions or, as plugins must, one for each.
class BareSocket : public Contender {
 public:
  BareSocket(const Side& side, bool blocking, bool pair)
      : Contender(side), flags_(blocking ? 0 : MSG_DONTWAIT), fds_{OpenConnection(side), pair ? OpenConnection(side) : -1} {
    send_fd_ = pair ? fds_[side.number] : fds_[0];
    receive_fd_ = pair ? fds_[1 - side.number] : fds_[0];
  }
  ~BareSocket() override {
    for (const int fd : fds_) close(fd);
  }

  void Stream(size_t bytes, size_t messages) override {
    for (size_t i = 0; i < messages; ++i) side_.number == 0 ? Send(bytes) : Receive(bytes);
  }
  void PingPong(size_t bytes, size_t messages) override {
    for (size_t i = 0; i < messages; ++i) {
      if (side_.number == 0) Send(bytes);
      Receive(bytes);
      if (side_.number == 1) Send(bytes);
    }
  }

 private:
  void Moved(ssize_t moved, size_t* done) const {
    if (moved > 0) {
      *done += static_cast<size_t>(moved);
    } else if (moved < 0 && errno == EAGAIN) {
      sched_yield();
    } else {
      Die(side_.shared, fmt::format("bare socket: {}", moved == 0 ? "closed" : std::strerror(errno)));
    }
  }
  void Send(size_t bytes) const {
    for (size_t done = 0; done < bytes;) Moved(send(send_fd_, side_.source + done, bytes - done, flags_), &done);
  }
  void Receive(size_t bytes) const {
    for (size_t done = 0; done < bytes;) Moved(recv(receive_fd_, side_.target + done, bytes - done, flags_), &done);
  }

  const int flags_;
  const int fds_[2];
  int send_fd_, receive_fd_;
};

/// A net plugin with one flow in each direction, driven by one thread that yields when nothing moved, as NCCL's does.
class PluginFlows : public Contender {
 public:
  PluginFlows(const Side& side, const std::string& path) : Contender(side) {
    auto plugin = collectives::NetPlugin::Load(path);
    if (!plugin) Die(side.shared, plugin.error().message());
    plugin_ = std::move(*plugin);
    void* listen = nullptr;
    side.Check(plugin_->Listen(0, side.shared->handles[side.number], &listen));
    side.Barrier();
    alignas(8) uint8_t handle[nccl::kHandleMaxBytes];
    std::memcpy(handle, side.shared->handles[1 - side.number], sizeof handle);
    // Some plugins' accept blocks: one direction after the other.
    for (const int sender : {0, 1}) {
      while (sender == side.number && !send_) side.Check(plugin_->Connect(0, handle, &send_));
      while (sender != side.number && !receive_) side.Check(plugin_->Accept(listen, &receive_));
    }
    side.Check(plugin_->CloseListen(listen));
    side.Check(plugin_->Register(send_, side.source, kBatchBytes, &send_handle_));
    side.Check(plugin_->Register(receive_, side.target, kBatchBytes, &receive_handle_));
  }

  void Stream(size_t bytes, size_t messages) override {
    const size_t slices = std::max<size_t>(1, (bytes + kSlice - 1) / kSlice);
    std::deque<void*> flying;
    for (size_t next = 0; next < slices * messages || !flying.empty();) {
      bool moved = false;
      while (next < slices * messages && flying.size() < kInFlight) {
        const size_t offset = next % slices * kSlice;
        void* request = Post(side_.number == 0, offset, std::min(kSlice, bytes - offset));
        if (!request) break;
        flying.push_back(request);
        ++next;
        moved = true;
      }
      while (!flying.empty() && Done(flying.front())) {
        flying.pop_front();
        moved = true;
      }
      if (!moved) sched_yield();
    }
  }

  void PingPong(size_t bytes, size_t messages) override {
    for (size_t i = 0; i < messages; ++i) {
      if (side_.number == 0) One(true, bytes);
      One(false, bytes);
      if (side_.number == 1) One(true, bytes);
    }
  }

 private:
  void* Post(bool send, size_t offset, size_t bytes) {
    void* request = nullptr;
    side_.Check(send ? plugin_->Send(send_, side_.source + offset, bytes, side_.number, send_handle_, &request)
                     : plugin_->Receive(receive_, side_.target + offset, bytes, 1 - side_.number, receive_handle_,
                                        &request));
    return request;
  }
  bool Done(void* request) {
    bool done = false;
    side_.Check(plugin_->Test(request, &done, nullptr));
    return done;
  }
  void One(bool send, size_t bytes) {
    std::deque<void*> flying;
    for (size_t offset = 0; offset < bytes || !flying.empty();) {
      void* request = offset < bytes && flying.size() < kInFlight
                          ? Post(send, offset, std::min(kSlice, bytes - offset)) : nullptr;
      if (request) {
        flying.push_back(request);
        offset += kSlice;
      }
      if (!flying.empty() && Done(flying.front())) {
        flying.pop_front();
      } else if (!request) {
        sched_yield();
      }
    }
  }

  std::unique_ptr<collectives::NetPlugin> plugin_;
  void *send_ = nullptr, *receive_ = nullptr;
  void *send_handle_ = nullptr, *receive_handle_ = nullptr;
};

}  // namespace

std::unique_ptr<Contender> OpenBareSocket(const Side& side, bool blocking, bool pair) {
  return std::make_unique<BareSocket>(side, blocking, pair);
}

std::unique_ptr<Contender> OpenPluginFlows(const Side& side, const std::string& path) {
  return std::make_unique<PluginFlows>(side, path);
}

}  // namespace weft::bench
