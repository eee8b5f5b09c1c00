#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "netplugin/log.h"
#include "netplugin/rdma/transport.h"
#include "netplugin/tcp/connector.h"

namespace weft::net::rdma {

std::unique_ptr<RdmaListenComm> RdmaListenComm::Open(const Services& services, const LocalEnd& end, Handle* handle) {
  Fd fd = OpenTcp(end.address.family);
  sockaddr_storage storage;
  Address any_port = end.address;
  any_port.port = 0;
  const socklen_t length = any_port.ToSockaddr(&storage);
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return nullptr;
  }
  std::unique_ptr<RdmaListenComm> made(new RdmaListenComm(services, end, std::move(fd)));
  *handle = MakeHandle(made->address_, made->cookie_, services.environment);
  handle->magic = kRdmaHandleMagic;
  handle->version = kRdmaWireVersion;
  return made;
}

RdmaListenComm::RdmaListenComm(const Services& services, const LocalEnd& end, Fd fd)
    : services_(services),
      end_(end),
      fd_(std::move(fd)),
      address_(LocalAddress(fd_.get())),
      cookie_(RandomBits()) {}

int RdmaListenComm::Accept(std::unique_ptr<Comm>* comm) {
  const uint64_t now = NowNs();
  AcceptAll(now);
  for (size_t i = 0; i < arrivals_.size() && !*comm;) {
    if (Advance(arrivals_[i], now, comm) && !*comm) {
      ++i;
    } else {
      arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return nccl::kSuccess;
}

void RdmaListenComm::AcceptAll(uint64_t now) {
  while (arrivals_.size() < kMostStrangers) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    Fd fd(accept4(fd_.get(), reinterpret_cast<sockaddr*>(&storage), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    TuneControl(fd.get(), services_.environment.rdma.recovery_s);
    Arrival arrival;
    arrival.control = std::make_unique<ControlChannel>(std::move(fd));
    arrival.peer = FromSockaddr(reinterpret_cast<sockaddr*>(&storage));
    arrival.deadline = now + kPatienceNs;
    arrivals_.push_back(std::move(arrival));
  }
}

bool RdmaListenComm::Advance(Arrival& arrival, uint64_t now, std::unique_ptr<Comm>* comm) {
  ControlMessage message;
  const char* wrong = nullptr;
  switch (arrival.control->Receive(&message, &wrong)) {
    case ControlChannel::Got::kNothing:
      return now <= arrival.deadline;
    case ControlChannel::Got::kClosed:
      return false;
    case ControlChannel::Got::kNonsense:
      break;
    case ControlChannel::Got::kMessage:
      if (!arrival.pairs && message.type == ControlType::kHello && message.cookie == cookie_) {
        arrival.hello = message;
        return Answer(arrival);
      }
      if (arrival.pairs && message.type == ControlType::kReady) {
        *comm = Finish(arrival);
        return true;
      }
      wrong = "not a flow of this listener";
  }
  Log(nccl::kLogInfo, "connection from %s to %s dropped: %s", arrival.peer.Text().c_str(), address_.Text().c_str(),
      wrong);
  return false;
}

bool RdmaListenComm::Answer(Arrival& arrival) {
  std::string why;
  PortChoice choice(end_.port, arrival.hello.flow);
  const std::shared_ptr<Port>& port = choice.Choose(*end_.port, PortChoice::Reason::kOther, NowNs());
  arrival.pairs = QueuePairs::Make(port, arrival.hello.lanes, true, &why);
  if (arrival.pairs) {
    // Acknowledgements and credits leave with ports of their own, which the other direction's policy does not touch.
    const auto ports = DefaultPorts(~arrival.hello.flow, kMaxParts + 1);
    for (uint32_t lane = 0; lane <= kControlLane; ++lane) arrival.pairs->SetUdpPort(lane, ports[lane]);
    arrival.pairs->SetTrafficClasses(arrival.hello.port.traffic_class, arrival.hello.port.control_traffic_class);
    if (!arrival.pairs->Connect(arrival.hello, &why)) arrival.pairs.reset();
  }
  if (arrival.pairs) {
    ControlMessage welcome{};
    welcome.magic = kControlMagic;
    welcome.version = kRdmaWireVersion;
    welcome.type = ControlType::kWelcome;
    welcome.rank = services_.environment.rank;
    welcome.flow = arrival.hello.flow;
    arrival.pairs->Describe(&welcome);
    welcome.port.others = static_cast<uint8_t>(std::min(choice.Others(*port, NowNs()), 255u));
    if (arrival.control->Send(welcome)) return true;
    why = std::strerror(errno);
  }
  Log(nccl::kLogWarn, "accept from rank %d at %s over %s: %s", arrival.hello.rank, arrival.peer.Text().c_str(),
      port->name().c_str(), why.c_str());
  return false;
}

std::unique_ptr<Comm> RdmaListenComm::Finish(Arrival& arrival) {
  Flow::Setup setup;
  setup.identity = {.flow = arrival.hello.flow,
                    .comm = end_.comm_id,
                    .direction = abi::Direction::kReceive,
                    .rank = services_.environment.rank,
                    .peer_rank = arrival.hello.rank,
                    .device = end_.device,
                    .local = LocalAddress(arrival.control->fd()),
                    .peer = arrival.peer};
  setup.control = std::move(arrival.control);
  setup.home = end_.port;
  setup.pairs = std::move(arrival.pairs);
  setup.peer = arrival.hello;
  return std::make_unique<RecvFlow>(services_, std::move(setup));
}

}  // namespace weft::net::rdma
