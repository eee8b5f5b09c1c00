#include "netplugin/tcp/connector.h"

#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "netplugin/log.h"

namespace weft::net {
namespace {

Address PeerOf(const Handle& handle) {
  Address address;
  address.family = handle.family == 6 ? AF_INET6 : AF_INET;
  std::memcpy(address.bytes, handle.address, sizeof address.bytes);
  address.port = handle.port;
  return address;
}

constexpr int kTellMs = 500;

}  // namespace

void TellOtherVersion(const Handle& handle, int own_rank) {
  if (handle.magic != kHandleMagic || handle.version == kWireVersion || handle.port == 0) return;
  const Address peer = PeerOf(handle);
  const Fd fd = OpenTcp(peer.family);
  sockaddr_storage storage;
  const socklen_t length = peer.ToSockaddr(&storage);
  if (!fd.valid() || (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 && errno != EINPROGRESS)) return;
  pollfd ready{fd.get(), POLLOUT, 0};
  if (poll(&ready, 1, kTellMs) != 1) return;
  const LaneHello hello{kHelloMagic, kWireVersion, 0, handle.cookie, RandomBits(), own_rank, 0, 0, {}};
  [[maybe_unused]] const ssize_t sent = send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL);
}

const char* CheckHandle(const Handle& handle, uint64_t job_hash) {
  if (handle.magic != kHandleMagic) return "not a handle of this plugin";
  if (handle.version != kWireVersion) return "a handle of another version of this plugin";
  if (handle.family != 4 && handle.family != 6) return "a handle with an unknown address family";
  if (handle.port == 0) return "a handle without a port";
  if (job_hash != 0 && handle.job_hash != 0 && handle.job_hash != job_hash) {
    return "a handle of another job (WEFT_JOB_ID)";
  }
  return nullptr;
}

uint64_t JobHash(const std::string& job) {
  if (job.empty()) return 0;
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : job) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash == 0 ? 1 : hash;
}

Handle MakeHandle(const Address& address, uint64_t cookie, const Environment& environment) {
  Handle handle{};
  handle.magic = kHandleMagic;
  handle.version = kWireVersion;
  handle.family = address.family == AF_INET6 ? 6 : 4;
  std::memcpy(handle.address, address.bytes, sizeof handle.address);
  handle.port = address.port;
  handle.rank = environment.rank;
  handle.cookie = cookie;
  handle.job_hash = JobHash(environment.job_id);
  return handle;
}

int Connector::Start(Handle* handle, const Options& options) {
  const Address peer = PeerOf(*handle);
  Fd fd = OpenTcp(peer.family);
  if (!fd.valid()) {
    Log(nccl::kLogWarn, "connect to %s: socket: %s", peer.Text().c_str(), std::strerror(errno));
    return nccl::kSystemError;
  }
  SetTrafficClass(fd.get(), peer.family, options.traffic_class);
  SetUnsentLimit(fd.get(), services_.environment.unsent_bytes);
  sockaddr_storage storage;
  // Leave from the chosen NIC, with a port of the kernel's choice at connect time. Not where it cannot work.
  if (options.local.family == peer.family && options.local.loopback() == peer.loopback()) {
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    Address source = options.local;
    source.port = 0;
    const socklen_t length = source.ToSockaddr(&storage);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
      Log(nccl::kLogWarn, "connect to %s: bind %s: %s", peer.Text().c_str(), source.Text().c_str(),
          std::strerror(errno));
      return nccl::kSystemError;
    }
  }
  const socklen_t length = peer.ToSockaddr(&storage);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 && errno != EINPROGRESS) {
    Log(nccl::kLogWarn, "connect to %s (rank %d): %s", peer.Text().c_str(), handle->rank, std::strerror(errno));
    return nccl::kRemoteError;
  }
  const uint64_t now = NowNs();
  const std::lock_guard lock(mutex_);
  // NCCL abandons some: of several handles for one connection up to 2.24, and after an abort.
  std::erase_if(under_way_, [now](const auto& entry) { return now - entry.second.asked_ns > kAbandonedNs; });
  handle->ticket = ++last_ticket_;
  under_way_[handle->ticket] = {std::move(fd), now};
  return nccl::kSuccess;
}

int Connector::Step(Handle* handle, const Options& options, std::unique_ptr<SendComm>* comm) {
  if (const char* wrong = CheckHandle(*handle, JobHash(services_.environment.job_id))) {
    Log(nccl::kLogWarn, "connect: %s (magic %08x, version %u, this one has %u)", wrong, handle->magic, handle->version,
        kWireVersion);
    TellOtherVersion(*handle, services_.environment.rank);
    return nccl::kInvalidArgument;
  }
  if (handle->ticket == 0) {
    const int result = Start(handle, options);
    if (result != nccl::kSuccess) return result;
  }
  Fd fd;
  {
    const std::lock_guard lock(mutex_);
    const auto found = under_way_.find(handle->ticket);
    if (found == under_way_.end()) {
      Log(nccl::kLogWarn, "connect: no connection of this process has ticket %llu",
          static_cast<unsigned long long>(handle->ticket));
      return nccl::kInvalidArgument;
    }
    found->second.asked_ns = NowNs();
    pollfd ready{found->second.fd.get(), POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) return nccl::kSuccess;  // ask again
    fd = std::move(found->second.fd);
    under_way_.erase(found);
  }
  handle->ticket = 0;
  return Finish(std::move(fd), *handle, options, comm);
}

int Connector::Finish(Fd fd, const Handle& handle, const Options& options, std::unique_ptr<SendComm>* comm) {
  const Address peer = PeerOf(handle);
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  const uint64_t flow = RandomBits();
  const int rank = services_.environment.rank;
  const LaneHello hello{kHelloMagic, kWireVersion, 0, handle.cookie, flow, rank, options.traffic_class, 0, {}};
  // The buffer of a new connection is empty: it takes 32 bytes at once or something is wrong.
  if (error == 0 && send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) error = errno;
  if (error != 0) {
    Log(nccl::kLogWarn, "connect to %s (rank %d): %s", peer.Text().c_str(), handle.rank, std::strerror(error));
    return nccl::kRemoteError;
  }
  SendComm::Setup setup;
  setup.identity = {.flow = flow,
                    .comm = options.comm_id,
                    .direction = abi::Direction::kSend,
                    .rank = rank,
                    .peer_rank = handle.rank,
                    .device = options.device,
                    .local = LocalAddress(fd.get()),
                    .peer = peer,
                    .peer_port = peer.port};
  setup.lane0 = std::move(fd);
  setup.cookie = handle.cookie;
  setup.listener = peer;
  setup.traffic_class = options.traffic_class;
  *comm = std::make_unique<SendComm>(services_, std::move(setup));
  return nccl::kSuccess;
}

}  // namespace weft::net
