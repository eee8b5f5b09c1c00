#include "netplugin/tcp/listener.h"

#include <cerrno>
#include <cstring>

#include "netplugin/abi/segment.h"
#include "netplugin/log.h"
#include "netplugin/tcp/recv_comm.h"

namespace weft::net {

std::shared_ptr<Listener> Listener::Open(const Address& address, Background& background) {
  Fd fd = OpenTcp(address.family);
  sockaddr_storage storage;
  Address any_port = address;
  any_port.port = 0;
  const socklen_t length = any_port.ToSockaddr(&storage);
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return nullptr;
  }
  return std::shared_ptr<Listener>(new Listener(std::move(fd), background));
}

Listener::Listener(Fd fd, Background& background)
    : background_(background), fd_(std::move(fd)), address_(LocalAddress(fd_.get())), cookie_(RandomBits()) {
  background_.Add(this);
}

Listener::~Listener() { background_.Remove(this); }

std::unique_ptr<Arrival> Listener::TakeFlow() {
  const std::lock_guard lock(mutex_);
  if (new_flows_.empty()) Pump(NowNs());
  if (new_flows_.empty()) return nullptr;
  std::unique_ptr<Arrival> arrival = std::move(new_flows_.front());
  new_flows_.pop_front();
  return arrival;
}

uint16_t Listener::other_version() {
  const std::lock_guard lock(mutex_);
  return other_version_;
}

void Listener::AddFlow(RecvComm* flow) {
  {
    const std::lock_guard lock(mutex_);
    flows_[flow->flow()] = flow;
  }
  background_.Wake();  // lanes may be waiting already, and the socket is to be watched now
}

void Listener::RemoveFlow(RecvComm* flow) {
  const std::lock_guard lock(mutex_);
  flows_.erase(flow->flow());
}

void Listener::Sweep(const Tick& tick) {
  const std::lock_guard lock(mutex_);
  accept_failed_ = false;
  if (!flows_.empty()) Pump(tick.now);  // before the first flow, accept() does it
}

void Listener::Watch(std::vector<pollfd>* fds) {
  const std::lock_guard lock(mutex_);
  if (flows_.empty()) return;
  if (!accept_failed_) fds->push_back({fd_.get(), POLLIN, 0});
  for (const Arrival& stranger : strangers_) fds->push_back({stranger.fd.get(), POLLIN, 0});
}

void Listener::Pump(uint64_t now) {
  AcceptAll(now);
  for (auto i = strangers_.begin(); i != strangers_.end();) i = ReadHello(&*i, now) ? strangers_.erase(i) : ++i;
  for (auto i = lanes_.begin(); i != lanes_.end();) i = AttachLane(&*i, now) ? lanes_.erase(i) : ++i;
}

void Listener::AcceptAll(uint64_t now) {
  while (strangers_.size() < kMostStrangers) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    Fd fd(accept4(fd_.get(), reinterpret_cast<sockaddr*>(&storage), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      accept_failed_ = errno != EAGAIN;
      return;
    }
    strangers_.push_back({std::move(fd), FromSockaddr(reinterpret_cast<sockaddr*>(&storage)), {}, 0,
                          now + kPatienceNs});
  }
  accept_failed_ = true;
}

bool Listener::ReadHello(Arrival* arrival, uint64_t now) {
  LaneHello& hello = arrival->hello;
  const ssize_t got = recv(arrival->fd.get(), reinterpret_cast<char*>(&hello) + arrival->hello_bytes,
                           sizeof hello - arrival->hello_bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return now > arrival->deadline;
  if (got <= 0) return true;
  arrival->hello_bytes += static_cast<uint32_t>(got);
  if (arrival->hello_bytes < sizeof hello) return now > arrival->deadline;
  // Only who was given the handle knows the cookie.
  if (hello.magic == kHelloMagic && hello.cookie == cookie_ && hello.version != kWireVersion) other_version_ = hello.version;
  if (hello.magic != kHelloMagic || hello.version != kWireVersion || hello.cookie != cookie_ ||
      hello.lane >= abi::kMaxLanes) {
    Log(nccl::kLogInfo, "connection from %s to %s dropped: not a lane of this listener (version %u, lane %u)",
        arrival->peer.Text().c_str(), address_.Text().c_str(), hello.version, hello.lane);
    return true;
  }
  arrival->deadline = now + kPatienceNs;
  if (hello.lane == 0 && (hello.flags & kHelloContinues) == 0 && !flows_.contains(hello.flow)) {
    new_flows_.push_back(std::make_unique<Arrival>(std::move(*arrival)));
  } else {
    lanes_.push_back(std::move(*arrival));
  }
  return true;
}

bool Listener::AttachLane(Arrival* arrival, uint64_t now) {
  const LaneHello& hello = arrival->hello;
  const auto flow = flows_.find(hello.flow);
  const bool continues = (hello.flags & kHelloContinues) != 0;
  if (flow != flows_.end() && (continues ? flow->second->Offer(hello.lane, &arrival->fd)
                                         : flow->second->AttachLate(hello.lane, &arrival->fd, hello.tos))) {
    return true;
  }
  if (!continues && now <= arrival->deadline) return false;
  const LaneAck refused{kAckMagic, 0};
  send(arrival->fd.get(), &refused, sizeof refused, MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

}  // namespace weft::net
