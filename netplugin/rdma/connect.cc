#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "netplugin/log.h"
#include "netplugin/rdma/transport.h"
#include "netplugin/tcp/connector.h"

namespace weft::net::rdma {
namespace {

Address PeerOf(const Handle& handle) {
  Address address;
  address.family = handle.family == 6 ? AF_INET6 : AF_INET;
  std::memcpy(address.bytes, handle.address, sizeof address.bytes);
  address.port = handle.port;
  return address;
}

int Refused(const Handle& handle, int code, const char* why) {
  Log(nccl::kLogWarn, "connect to rank %d at %s: %s", handle.rank, PeerOf(handle).Text().c_str(), why);
  return code;
}

}  // namespace

int RdmaConnector::Step(Handle* handle, const LocalEnd& end, std::unique_ptr<Comm>* comm) {
  if (const char* wrong = CheckRdmaHandle(*handle, JobHash(services_.environment.job_id))) {
    Log(nccl::kLogWarn, "connect: %s (magic %08x, version %u)", wrong, handle->magic, handle->version);
    return nccl::kInvalidArgument;
  }
  Collect(NowNs());
  std::unique_ptr<Pending> pending;
  if (handle->ticket == 0) {
    pending = std::make_unique<Pending>();
    if (const int code = Start(handle, end, pending.get())) return code;
    const std::lock_guard lock(mutex_);
    handle->ticket = ++last_ticket_;
  } else {
    const std::lock_guard lock(mutex_);
    const auto found = under_way_.find(handle->ticket);
    if (found == under_way_.end()) return Refused(*handle, nccl::kInvalidArgument, "no connection has this ticket");
    pending = std::move(found->second);
    under_way_.erase(found);
  }
  int code = nccl::kSuccess;
  pollfd ready{pending->control->fd(), static_cast<short>(pending->pairs ? POLLIN : POLLOUT), 0};
  if (poll(&ready, 1, 0) > 0) {
    ControlMessage welcome;
    const char* wrong = nullptr;
    if (!pending->pairs) {
      code = SayHello(*handle, end, pending.get());
    } else if (const auto got = pending->control->Receive(&welcome, &wrong); got == ControlChannel::Got::kMessage) {
      code = Finish(*handle, end, pending.get(), welcome, comm);
    } else if (got != ControlChannel::Got::kNothing) {
      code = Refused(*handle, nccl::kRemoteError, wrong ? wrong : "the peer closed the connection");
    }
  }
  if (code != nccl::kSuccess || *comm) {
    handle->ticket = 0;
    return code;
  }
  pending->asked_ns = NowNs();
  const std::lock_guard lock(mutex_);
  under_way_.emplace(handle->ticket, std::move(pending));
  return code;
}

size_t RdmaConnector::Collect(uint64_t now) {
  std::vector<std::unique_ptr<Pending>> abandoned;  // before the lock: their queue pairs are given back after it
  const std::lock_guard lock(mutex_);
  for (auto it = under_way_.begin(); it != under_way_.end();) {
    if (now < it->second->asked_ns + kAbandonedNs) {
      ++it;
      continue;
    }
    abandoned.push_back(std::move(it->second));
    it = under_way_.erase(it);
  }
  return under_way_.size();
}

int RdmaConnector::Start(Handle* handle, const LocalEnd& end, Pending* pending) {
  const Address peer = PeerOf(*handle);
  Fd fd = OpenTcp(peer.family);
  if (!fd.valid()) return Refused(*handle, nccl::kSystemError, std::strerror(errno));
  TuneControl(fd.get(), services_.environment.rdma.recovery_s);
  sockaddr_storage storage;
  if (end.address.family == peer.family && end.address.loopback() == peer.loopback()) {
    Address source = end.address;
    source.port = 0;
    const socklen_t length = source.ToSockaddr(&storage);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
      return Refused(*handle, nccl::kSystemError, std::strerror(errno));
    }
  }
  const socklen_t length = peer.ToSockaddr(&storage);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 && errno != EINPROGRESS) {
    return Refused(*handle, nccl::kRemoteError, std::strerror(errno));
  }
  pending->control = std::make_unique<ControlChannel>(std::move(fd));
  return nccl::kSuccess;
}

int RdmaConnector::SayHello(const Handle& handle, const LocalEnd& end, Pending* pending) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(pending->control->fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return Refused(handle, nccl::kRemoteError, std::strerror(error));
  const RdmaEnvironment& environment = services_.environment.rdma;
  const auto lanes = static_cast<uint32_t>(environment.queue_pairs);
  std::string why;
  pending->flow = RandomBits();
  PortChoice choice(end.port, pending->flow);
  const std::shared_ptr<Port>& port = choice.Choose(*end.port, PortChoice::Reason::kOther, NowNs());
  pending->pairs = QueuePairs::Make(port, lanes, false, &why);
  if (!pending->pairs) return Refused(handle, nccl::kSystemError, why.c_str());
  const auto ports = SpreadPorts(pending->flow, lanes, port->path_probe());
  for (uint32_t lane = 0; lane < lanes; ++lane) pending->pairs->SetUdpPort(lane, ports[lane]);
  pending->pairs->SetUdpPort(kControlLane, ports[lanes]);
  pending->traffic_class = end.traffic_class;
  const int own = environment.traffic_class;
  const uint8_t data_class = own >= 0 ? static_cast<uint8_t>(own) : end.traffic_class;
  const int control = environment.control_traffic_class;
  pending->pairs->SetTrafficClasses(data_class, control >= 0 ? static_cast<uint8_t>(control) : data_class);
  ControlMessage hello{};
  hello.magic = kControlMagic;
  hello.version = kRdmaWireVersion;
  hello.type = ControlType::kHello;
  hello.rank = services_.environment.rank;
  hello.cookie = handle.cookie;
  hello.flow = pending->flow;
  pending->pairs->Describe(&hello);
  hello.port.others = static_cast<uint8_t>(std::min(choice.Others(*port, NowNs()), 255u));
  if (pending->control->Send(hello)) return nccl::kSuccess;
  return Refused(handle, nccl::kRemoteError, std::strerror(errno));
}

int RdmaConnector::Finish(const Handle& handle, const LocalEnd& end, Pending* pending, const ControlMessage& welcome,
                          std::unique_ptr<Comm>* comm) {
  std::string why;
  if (welcome.type != ControlType::kWelcome || welcome.lanes != pending->pairs->lanes()) {
    return Refused(handle, nccl::kInternalError, "the peer's answer does not fit");
  }
  if (!pending->pairs->Connect(welcome, &why)) return Refused(handle, nccl::kSystemError, why.c_str());
  ControlMessage ready{};
  ready.magic = kControlMagic;
  ready.version = kRdmaWireVersion;
  ready.type = ControlType::kReady;
  ready.flow = pending->flow;
  if (!pending->control->Send(ready)) return Refused(handle, nccl::kRemoteError, std::strerror(errno));
  Flow::Setup setup;
  setup.identity = {.flow = pending->flow,
                    .comm = end.comm_id,
                    .direction = abi::Direction::kSend,
                    .rank = services_.environment.rank,
                    .peer_rank = handle.rank,
                    .device = end.device,
                    .local = LocalAddress(pending->control->fd()),
                    .peer = PeerOf(handle)};
  setup.control = std::move(pending->control);
  setup.home = end.port;
  setup.pairs = std::move(pending->pairs);
  setup.peer = welcome;
  *comm = std::make_unique<SendFlow>(services_, std::move(setup), pending->traffic_class);
  return nccl::kSuccess;
}

}  // namespace weft::net::rdma
