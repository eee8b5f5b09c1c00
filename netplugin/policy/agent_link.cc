#include "netplugin/policy/agent_link.h"

#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "netplugin/log.h"

namespace weft::net {
namespace {

/// Takes the descriptors out of a received message: the first is kept, others are closed.
Fd TakeDescriptor(msghdr* message) {
  Fd first;
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      Fd owned(fd);
      if (!first.valid()) first = std::move(owned);
    }
  }
  return first;
}

}  // namespace

void AgentLink::Drop(uint64_t retry_at) {
  const std::lock_guard lock(questions_mutex_);
  fd_.Reset();
  retry_at_ = retry_at;
  RefuseQuestions();
}

/// Nobody will answer them any more.
void AgentLink::RefuseQuestions() {
  for (auto& [token, answer] : questions_) {
    if (!answer) answer.emplace();
  }
}

bool AgentLink::Ask(int fd, uint64_t token, uint64_t until_ns) {
  const std::lock_guard lock(questions_mutex_);
  if (!fd_.valid() || unsent_unknown_ || questions_.size() >= kMostQuestions) return false;
  const abi::UnsentRequest request{token, until_ns};
  if (!SendWithFd(abi::MessageType::kUnsentRequest, &request, sizeof request, fd)) return false;
  questions_[token] = std::nullopt;
  return true;
}

std::optional<UnsentBytes::Answer> AgentLink::Take(uint64_t token) {
  const std::lock_guard lock(questions_mutex_);
  const auto found = questions_.find(token);
  if (found == questions_.end()) return Answer{};
  if (!found->second) return std::nullopt;
  std::optional<Answer> answer = std::move(found->second);
  questions_.erase(found);
  return answer;
}

void AgentLink::Forget(uint64_t token) {
  const std::lock_guard lock(questions_mutex_);
  questions_.erase(token);
}

void AgentLink::TakeUnsent(const abi::MessageHeader& header, const char* body, Fd fd) {
  if (header.body_bytes != sizeof(abi::UnsentReply)) return;
  abi::UnsentReply reply;
  std::memcpy(&reply, body, sizeof reply);
  const std::lock_guard lock(questions_mutex_);
  const auto found = questions_.find(reply.token);
  if (found == questions_.end() || found->second) return;
  if (!fd.valid()) {
    std::string reason(reply.reason, strnlen(reply.reason, sizeof reply.reason));
    for (char& c : reason) c = c >= ' ' && c <= '~' ? c : '?';
    if (reason != last_unsent_reason_) {
      Log(nccl::kLogWarn, "the agent does not take the bytes of a silent lane from the kernel: %s", reason.c_str());
    }
    last_unsent_reason_ = std::move(reason);
  }
  found->second.emplace(std::move(fd), reply.bytes);
}

void AgentLink::Connect(uint64_t now) {
  retry_at_ = now + kRetryNs;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = environment_.run_dir + "/" + abi::kSocketName;
  if (path.size() >= sizeof address.sun_path) {
    Log(nccl::kLogWarn, "agent socket path \"%s\" is longer than %zu bytes; running without an agent", path.c_str(),
        sizeof address.sun_path - 1);
    retry_at_ = UINT64_MAX;
    return;
  }
  path.copy(address.sun_path, path.size());
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid() || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EAGAIN) TellNoAgent(path, errno);  // its queue is full: there is one
    return;
  }
  {
    const std::lock_guard lock(questions_mutex_);
    fd_ = std::move(fd);
  }
  if (!SendHello()) {
    Drop(now + kRetryNs);
    return;
  }
  Log(nccl::kLogInfo, "connected to the agent at %s", path.c_str());
  if (environment_.job_id.empty() && !std::exchange(job_told_, true)) {
    Log(nccl::kLogWarn, "WEFT_JOB_ID is not set: each process that names no job counts as a job of its own; set it to the same on all ranks "
                        "of a job (weft submit and Slurm's plugin do)");
  }
}

void AgentLink::TellNoAgent(const std::string& path, int error) {
  if (std::exchange(none_told_, true)) return;
  const bool forbidden = error == EACCES || error == EPERM;
  const char* next = forbidden ? "let this user open it: the folder needs mode 755, agent.sock 666"
                     : error == ECONNREFUSED
                         ? "nobody listens there any more: start weft-agent again"
                         : "start weft-agent on this host; in a container, mount its folder (WEFT_RUN_DIR names it)";
  Log(forbidden ? nccl::kLogWarn : nccl::kLogInfo,
      "no agent at %s (%s): working with default settings, looking again every half second. To have one %s", path.c_str(),
      std::strerror(error), next);
}

void AgentLink::TellPolicy() {
  if (policy_told_ || policies_.current()->generation() == 0) return;
  policy_told_ = true;
  const abi::PolicyTable& table = policies_.current()->table();
  Log(nccl::kLogInfo, "policy in force: epoch %llu, %u flows",
      static_cast<unsigned long long>(table.epoch.load(std::memory_order_relaxed)),
      table.count.load(std::memory_order_relaxed));
}

bool AgentLink::SendHello() {
  abi::Hello hello{};
  hello.segment_version = abi::kSegmentVersion;
  hello.rank = environment_.rank;
  environment_.job_id.copy(hello.job, sizeof hello.job - 1);
  return SendWithFd(abi::MessageType::kHello, &hello, sizeof hello, telemetry_.fd());
}

bool AgentLink::SendWithFd(abi::MessageType type, const void* body, uint32_t bytes, int fd) {
  abi::MessageHeader header{abi::kSocketMagic, abi::kSocketVersion, static_cast<uint16_t>(type), bytes, 0};
  iovec parts[] = {{&header, sizeof header}, {const_cast<void*>(body), bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  return sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof header + bytes);
}

bool AgentLink::Receive(uint64_t now) {
  alignas(abi::MessageHeader) char bytes[sizeof(abi::MessageHeader) + sizeof(abi::EnvironmentReply)];
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  iovec part{bytes, sizeof bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t length = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (length <= 0) {
    Log(nccl::kLogInfo, "the agent is gone; keeping the last policy");
    Drop(now + kRetryNs);
    return false;
  }
  Fd fd = TakeDescriptor(&message);
  abi::MessageHeader header{};
  std::memcpy(&header, bytes, std::min<size_t>(length, sizeof header));
  if (static_cast<size_t>(length) < sizeof header || header.magic != abi::kSocketMagic ||
      header.version != abi::kSocketVersion || header.body_bytes != length - sizeof header) {
    Log(nccl::kLogWarn, "message of %zd bytes from the agent has version %u, expected %u; trying again in 10 s", length,
        header.version, abi::kSocketVersion);
    Drop(now + kRetryRefusedNs);
    return false;
  }
  Handle(header, bytes + sizeof header, std::move(fd), now);
  return fd_.valid();
}

void AgentLink::Handle(const abi::MessageHeader& header, const char* body, Fd fd, uint64_t now) {
  switch (static_cast<abi::MessageType>(header.type)) {
    case abi::MessageType::kPolicy:
      AdoptPolicy(fd.get());
      break;
    case abi::MessageType::kReject: {
      std::string reason(body, strnlen(body, std::min<size_t>(header.body_bytes, sizeof(abi::Reject))));
      for (char& c : reason) c = c >= ' ' && c <= '~' ? c : '?';
      if (reason != last_reject_) {
        Log(nccl::kLogWarn, "the agent refused this process: %s; working with default settings, asking again every 10 s",
            reason.c_str());
      }
      last_reject_ = reason;
      {
        const std::lock_guard lock(questions_mutex_);
        unsent_unknown_ = unsent_unknown_ || std::ranges::any_of(questions_, [](const auto& question) { return !question.second; });
      }
      Drop(now + kRetryRefusedNs);
      break;
    }
    case abi::MessageType::kUnsentReply:
      TakeUnsent(header, body, std::move(fd));
      break;
    default:
      break;  // a newer agent may say more than this plugin knows
  }
}

void AgentLink::AdoptPolicy(int fd) {
  std::string why;
  auto mapping = PolicyMapping::Map(fd, &why);
  if (!mapping) {
    Log(nccl::kLogWarn, "policy segment refused: %s; keeping the last policy", why.c_str());
    Bump(telemetry_.process().policy_rejected, 1);  // this thread is its only writer
    return;
  }
  policies_.Offer(std::move(mapping));
  if (!std::exchange(attached_told_, true)) {
    Log(nccl::kLogInfo, "attached: the agent reads this process's telemetry; its job's policy holds once the controller has "
                        "decided");
  }
}

void AgentLink::Sweep(const Tick& tick) {
  if (telemetry_.fd() < 0) return;
  if (environment_.run_dir.empty()) {
    if (!std::exchange(none_told_, true)) {
      Log(nccl::kLogInfo, "WEFT_RUN_DIR is empty: no agent is looked for, working with default settings");
    }
    return;
  }
  // A forked child has its parent's segment and connection: they stay the parent's.
  if (telemetry_.process().pid != getpid()) {
    const std::lock_guard lock(questions_mutex_);
    fd_.Reset();
    return;
  }
  if (!fd_.valid() && tick.now >= retry_at_) Connect(tick.now);
  while (fd_.valid() && Receive(tick.now)) {
  }
  telemetry_.observed.store(fd_.valid(), std::memory_order_relaxed);
  policies_.Turn();
  TellPolicy();
  telemetry_.process().policy_epoch.store(policies_.current()->table().epoch.load(std::memory_order_relaxed),
                                          std::memory_order_relaxed);
}

void AgentLink::Watch(std::vector<pollfd>* fds) {
  if (fd_.valid()) fds->push_back({fd_.get(), POLLIN, 0});
}

}  // namespace weft::net
