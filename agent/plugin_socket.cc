#include "agent/plugin_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "agent/monotonic.h"
#include "agent/plugin_packets.h"
#include "common/log.h"

namespace weft::agent {
namespace {

using abi::MessageType;

/// The answer to whoever asks for a job's environment; nullopt: there is none.
Status SendEnvironment(int socket, const std::optional<std::string>& text) {
  abi::EnvironmentReply reply{};
  if (text && text->size() <= sizeof reply.text) {
    reply.found = 1;
    reply.bytes = static_cast<uint32_t>(text->copy(reply.text, sizeof reply.text));
  }
  return SendPacket(socket, MessageType::kEnvironmentReply, &reply, sizeof reply, -1);
}

}  // namespace

Result<std::unique_ptr<PluginSocket>> PluginSocket::Listen(const std::string& run_dir, PluginHandlers handlers,
                                                           const PluginLimits& limits) {
  std::unique_ptr<PluginSocket> socket(new PluginSocket(limits));
  socket->handlers_ = std::move(handlers);
  socket->silent_lanes_ = std::make_unique<SilentLanes>(socket->handlers_.take_unsent);
  if (!socket->users_.all_mapped()) {
    LogWarn("agent", "runs in a user namespace that does not map all users: processes of the others are refused",
            {{"next", "run it in the host's user namespace, or map the users of the jobs"}});
  }
  WEFT_RETURN_IF_ERROR(socket->Lock(run_dir));
  WEFT_RETURN_IF_ERROR(socket->Bind());
  socket->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!socket->wake_) return Fail(ErrnoError("make eventfd", errno));
  PluginSocket* const raw = socket.get();
  socket->thread_ = std::jthread([raw](const std::stop_token& stop) { raw->Run(stop); });
  return socket;
}

Status PluginSocket::Lock(const std::string& run_dir) {
  std::error_code failed;
  std::filesystem::create_directories(run_dir, failed);
  if (failed) {
    return Fail(Code::kFailedPrecondition, fmt::format("make run directory \"{}\": {}", run_dir, failed.message()));
  }
  const std::string path = run_dir + "/agent.lock";
  for (;;) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return Fail(ErrnoError("open \"" + path + "\"", errno));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      char owner[16] = "";
      const ssize_t got = ::pread(fd.get(), owner, sizeof owner - 1, 0);
      const std::string pid(owner, static_cast<size_t>(std::max<ssize_t>(got, 0)));
      return Fail(Code::kAlreadyExists, fmt::format("another agent (pid {}) runs with run directory \"{}\"",
                                                    pid.empty() ? "unknown" : pid, run_dir));
    }
    // A leaving agent may have removed the file between our open and our lock: then we hold a lock on nothing.
    struct stat held{}, named{};
    const bool same = ::fstat(fd.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
                      held.st_ino == named.st_ino && held.st_dev == named.st_dev;
    if (!same) continue;
    const std::string pid = std::to_string(::getpid());
    if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
      return Fail(ErrnoError("write \"" + path + "\"", errno));
    }
    lock_ = std::move(fd);
    lock_path_ = path;
    path_ = run_dir + "/" + abi::kSocketName;
    return Ok();
  }
}

Status PluginSocket::Bind() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) {
    return Fail(Code::kFailedPrecondition, fmt::format("socket path \"{}\" has {} bytes, expected at most {}", path_,
                                                       path_.size(), sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  ::unlink(path_.c_str());  // a dead agent's: we hold the lock
  listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return Fail(ErrnoError("make socket", errno));
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path_.c_str(), 0666) != 0 || ::listen(listener_.get(), 128) != 0) {
    return Fail(ErrnoError("listen on \"" + path_ + "\"", errno));
  }
  return Ok();
}

PluginSocket::~PluginSocket() {
  if (thread_.joinable()) {
    thread_.request_stop();
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  if (!lock_) return;  // not ours
  ::unlink(path_.c_str());
  ::unlink(lock_path_.c_str());
}

void PluginSocket::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}, {silent_lanes_->event_fd(), POLLIN, 0}};
    // At the limit new peers wait in the listen queue.
    const int idle_ms = CutIdle();
    const bool full = connections_.size() >= limits_.connections || out_of_descriptors_;
    if (full) fds[1].events = 0;
    for (const auto& [fd, connection] : connections_) fds.push_back({fd, POLLIN, 0});
    const int empty_ms = silent_lanes_->NextMs(MonotonicNs());
    const int next_ms = idle_ms < 0 || (empty_ms >= 0 && empty_ms < idle_ms) ? empty_ms : idle_ms;
    const int timeout_ms = out_of_descriptors_ ? 100 : next_ms;
    out_of_descriptors_ = false;
    if (::poll(fds.data(), fds.size(), timeout_ms) < 0 && errno != EINTR) {
      LogError("agent", "plugin socket stopped", {{"error", ErrnoError("poll", errno).message()}});
      return;
    }
    if (fds[0].revents != 0) continue;
    for (const auto& [reason, lines] : refusal_lines_.TakeLeftOut(MonotonicNs())) {
      LogWarn("agent", "left out lines about refused peers", {{"reason", reason}, {"lines", lines}});
    }
    AnswerSilentLanes();
    for (size_t i = 3; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      const auto it = connections_.find(fds[i].fd);
      if (Receive(it->second)) continue;
      Close(it->second);
      connections_.erase(it);
    }
    if (fds[1].revents != 0) Accept();
  }
}

void PluginSocket::Accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    out_of_descriptors_ = errno == EMFILE || errno == ENFILE;
    return;
  }
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return;
  const int key = fd.get();
  Connection connection{.fd = std::move(fd), .peer = {{credentials.pid, credentials.uid}, next_connection_++},
                        .heard_ns = MonotonicNs()};
  const auto of_user = static_cast<size_t>(std::ranges::count_if(
      connections_, [&](const auto& other) { return other.second.peer.uid == credentials.uid; }));
  if (of_user >= limits_.of_user) {
    return Refuse(connection, "quota", fmt::format("uid {} has {} connections, expected at most that", credentials.uid, of_user));
  }
  connections_[key] = std::move(connection);
}

int PluginSocket::CutIdle() {
  const uint64_t now = MonotonicNs();
  const auto idle_ns = static_cast<uint64_t>(limits_.idle.count() * 1e9);
  uint64_t next_ns = UINT64_MAX;
  std::erase_if(connections_, [&](const auto& entry) {
    const Connection& connection = entry.second;
    if (connection.attached) return false;
    if (now < connection.heard_ns + idle_ns) {
      next_ns = std::min(next_ns, connection.heard_ns + idle_ns - now);
      return false;
    }
    Refuse(connection, "idle", fmt::format("nothing said for {} s", limits_.idle.count()));
    return true;
  });
  return next_ns == UINT64_MAX ? -1 : static_cast<int>(next_ns / 1'000'000 + 1);
}

void PluginSocket::Close(Connection& connection) {
  if (connection.attached) handlers_.detach(connection.peer);
  connection.attached.reset();
}

bool PluginSocket::Receive(Connection& connection) {
  Packet packet;
  Received received = ReceivePacket(connection.fd.get(), &packet);
  if (received.bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (received.bytes == 0) return false;
  connection.heard_ns = MonotonicNs();
  Status status = CheckPacket(packet, received);
  if (status) {
    UniqueFd fd = received.fds.size() == 1 ? std::move(received.fds[0]) : UniqueFd();
    status = Handle(connection, packet.header, packet.body, std::move(fd));
  }
  if (status) return true;
  Refuse(connection, RejectionLabel(status.error().code()), status.error().message());
  return false;
}

void PluginSocket::Refuse(const Connection& connection, const char* label, const std::string& reason) {
  if (refusal_lines_.Take(label, MonotonicNs())) {
    LogWarn("agent", "refused peer", {{"pid", connection.peer.pid}, {"uid", connection.peer.uid}, {"reason", reason}});
  }
  handlers_.rejected(label);
  abi::Reject reject{};
  reason.copy(reject.reason, sizeof reject.reason - 1);
  (void)SendPacket(connection.fd.get(), MessageType::kReject, &reject, sizeof reject, -1);  // it is cut off either way
}

Status PluginSocket::Handle(Connection& connection, const abi::MessageHeader& header, const char* body, UniqueFd fd) {
  switch (static_cast<MessageType>(header.type)) {
    case MessageType::kHello: {
      WEFT_ASSIGN_OR_RETURN(const auto hello, ReadBody<abi::Hello>(header, body, "hello"));
      return HandleHello(connection, hello, std::move(fd));
    }
    case MessageType::kEnvironmentRequest: {
      WEFT_ASSIGN_OR_RETURN(const auto request,
                            ReadBody<abi::EnvironmentRequest>(header, body, "environment request"));
      return HandleEnvironment(connection, request);
    }
    case MessageType::kStrategyRequest: {
      WEFT_ASSIGN_OR_RETURN(const auto request, ReadBody<abi::StrategyRequest>(header, body, "strategy request"));
      return HandleStrategy(connection, request);
    }
    case MessageType::kUnsentRequest: {
      WEFT_ASSIGN_OR_RETURN(const auto request, ReadBody<abi::UnsentRequest>(header, body, "unsent request"));
      return HandleUnsent(connection, request, std::move(fd));
    }
    default:
      return Fail(Code::kInvalidArgument, fmt::format("message type {} is not for the agent", header.type));
  }
}

Status PluginSocket::CheckIdentity(const Connection& connection, const TelemetryMap& map) const {
  const Peer& peer = connection.peer;
  if (!users_.Tells(peer.uid)) {
    return Fail(Code::kUnauthenticated,
                fmt::format("the user of process {} is not mapped into the agent's user namespace (uid {} stands for all such "
                            "users): run the agent outside, or map that user", peer.pid, peer.uid));
  }
  for (const auto& [fd, other] : connections_) {
    if (other.attached != map.memory()) continue;
    return Fail(Code::kUnauthenticated, fmt::format("telemetry segment was brought by process {} already, which still runs; "
                                                    "process {} needs one of its own", other.peer.pid, peer.pid));
  }
  return Ok();
}

Status PluginSocket::HandleHello(Connection& connection, const abi::Hello& hello, UniqueFd fd) {
  if (connection.attached) return Fail(Code::kInvalidArgument, "second hello on one connection");
  if (hello.segment_version < abi::kOldestSegmentVersion || hello.segment_version > abi::kSegmentVersion) {
    return Fail(Code::kUnimplemented, fmt::format("telemetry segment version {}, this agent speaks {} to {}",
                                                  hello.segment_version, abi::kOldestSegmentVersion,
                                                  abi::kSegmentVersion));
  }
  if (!fd) return Fail(Code::kInvalidArgument, "hello without exactly one descriptor");
  WEFT_ASSIGN_OR_RETURN(auto map, TelemetryMap::Attach(std::move(fd), connection.peer));
  WEFT_RETURN_IF_ERROR(CheckIdentity(connection, *map));
  const std::optional<std::string> job = CheckedJobId(hello.job, sizeof hello.job);
  if (!job || *job != map->stated_job()) {
    return Fail(Code::kUnauthenticated, fmt::format("hello and telemetry segment name different jobs, the latter \"{}\"",
                                                    map->job()));
  }
  if (map->segment_version() != hello.segment_version) {
    return Fail(Code::kInvalidArgument, fmt::format("hello names segment version {}, the telemetry segment has {}",
                                                    hello.segment_version, map->segment_version()));
  }
  const MemoryId memory = map->memory();
  WEFT_ASSIGN_OR_RETURN(const UniqueFd policy, handlers_.attach(connection.peer, std::move(map)));
  connection.attached = memory;
  const abi::Policy answer{.segment_version = hello.segment_version};
  return SendPacket(connection.fd.get(), MessageType::kPolicy, &answer, sizeof answer, policy.get());
}

Status PluginSocket::CountQuestion(Connection& connection) const {
  if (++connection.questions <= limits_.questions) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("{} questions on one connection, expected at most {}", connection.questions,
                                                  limits_.questions));
}

Status PluginSocket::HandleEnvironment(Connection& connection, const abi::EnvironmentRequest& request) {
  const std::optional<std::string> job = CheckedJobId(request.job, sizeof request.job);
  const std::optional<std::string> host = CheckedJobId(request.host, sizeof request.host);
  if (!job || !host) return Fail(Code::kInvalidArgument, "environment request with a malformed job or host");
  WEFT_RETURN_IF_ERROR(CountQuestion(connection));
  WEFT_ASSIGN_OR_RETURN(const std::optional<std::string> text, handlers_.environment(connection.peer, *job, *host));
  return SendEnvironment(connection.fd.get(), text);
}

Status PluginSocket::HandleStrategy(Connection& connection, const abi::StrategyRequest& request) {
  const std::optional<std::string> job = CheckedJobId(request.job, sizeof request.job);
  const std::optional<std::string> host = CheckedJobId(request.host, sizeof request.host);
  if (!job || !host) return Fail(Code::kInvalidArgument, "strategy request with a malformed job or host");
  WEFT_RETURN_IF_ERROR(CountQuestion(connection));
  const bool measured = std::isfinite(request.iteration_s) && request.iteration_s > 0;
  StrategyNews news{.epoch = request.epoch, .digest = request.digest, .iteration_s = measured ? request.iteration_s : 0,
                    .refused = request.refused != 0, .reason = {}};
  news.reason.assign(request.reason, ::strnlen(request.reason, sizeof request.reason));
  std::ranges::replace_if(news.reason, [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  WEFT_ASSIGN_OR_RETURN(const std::optional<std::string> text, handlers_.strategy(connection.peer, *job, *host, news));
  return SendEnvironment(connection.fd.get(), text);
}

Status PluginSocket::HandleUnsent(Connection& connection, const abi::UnsentRequest& request, UniqueFd fd) {
  if (!connection.attached) return Fail(Code::kInvalidArgument, "unsent request without a segment");
  if (!fd) return Fail(Code::kInvalidArgument, "unsent request without exactly one descriptor");
  Status asked = Fail(Code::kFailedPrecondition, "the agent's configuration says silent_lanes: wait");
  if (handlers_.take_unsent) {
    asked = silent_lanes_->Ask(connection.peer.uid, connection.peer.connection, request.token, std::move(fd), request.until_ns, MonotonicNs());
  }
  if (!asked) AnswerUnsent(connection, request.token, Fail(asked.error()));
  return Ok();
}

/// Refusing costs the peer nothing but its lane: it is told, and not cut off.
void PluginSocket::AnswerUnsent(const Connection& connection, uint64_t token, const Result<UnsentBytes>& taken) {
  abi::UnsentReply reply{.token = token};
  handlers_.silent_lane(static_cast<bool>(taken));
  if (taken) reply.bytes = taken->bytes;
  else taken.error().message().copy(reply.reason, sizeof reply.reason - 1);
  (void)SendPacket(connection.fd.get(), MessageType::kUnsentReply, &reply, sizeof reply, taken ? taken->file.get() : -1);
}

void PluginSocket::AnswerSilentLanes() {
  for (const SilentLanes::Answer& answer : silent_lanes_->TakeAnswers(MonotonicNs())) {
    const auto connection = std::ranges::find(connections_, answer.connection, [](const auto& entry) { return entry.second.peer.connection; });
    if (connection != connections_.end()) AnswerUnsent(connection->second, answer.token, answer.taken);
  }
}

}  // namespace weft::agent
