#include "agent/ask/agent_request.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/unique_fd.h"
#include "common/launch_variable.h"
#include "netplugin/abi/agent_socket.h"

namespace weft::agent {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

constexpr std::chrono::milliseconds kAskAgain{20};

template <typename Body>
struct Message {
  abi::MessageHeader header;
  Body body;
};
using Question = Message<abi::EnvironmentRequest>;
using Report = Message<abi::StrategyRequest>;
struct Answer {
  abi::MessageHeader header;
  abi::EnvironmentReply body;
};
static_assert(sizeof(Question) == sizeof(abi::MessageHeader) + sizeof(abi::EnvironmentRequest));
static_assert(sizeof(Report) == sizeof(abi::MessageHeader) + sizeof(abi::StrategyRequest));
static_assert(sizeof(Answer) == sizeof(abi::MessageHeader) + sizeof(abi::EnvironmentReply));

int MillisecondsUntil(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

Error Context(const AgentRequest& request, const Error& error) {
  return Error(error.code(), "agent at \"" + request.socket_path + "\": " + error.message());
}

Status WaitFor(int fd, short events, Deadline deadline) {
  pollfd entry = {.fd = fd, .events = events, .revents = 0};
  while (true) {
    const int ready = ::poll(&entry, 1, MillisecondsUntil(deadline));
    if (ready > 0) return Ok();
    if (ready == 0) return Fail(Code::kDeadlineExceeded, "no answer in time");
    if (errno != EINTR) return Fail(ErrnoError("poll", errno));
  }
}

Result<UniqueFd> Connect(const std::string& path, Deadline deadline) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Fail(Code::kInvalidArgument,
                "path longer than " + std::to_string(sizeof(address.sun_path) - 1) + " characters");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Fail(ErrnoError("socket", errno));
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    // EAGAIN: the agent's backlog is full, and a Unix socket cannot be polled for room in it.
    if (errno != EAGAIN && errno != EINTR) {
      return Fail(Code::kUnavailable, ErrnoError("connect", errno).message());
    }
    if (MillisecondsUntil(deadline) == 0) return Fail(Code::kDeadlineExceeded, "no connection in time");
    ::poll(nullptr, 0, 1);
  }
  return fd;
}

Result<Environment> ReadAnswer(int fd) {
  Answer answer = {};
  const ssize_t got = ::recv(fd, &answer, sizeof(answer), MSG_TRUNC);
  if (got < 0) return Fail(Code::kUnavailable, ErrnoError("receive", errno).message());
  if (got == 0) return Fail(Code::kUnavailable, "closed the connection without an answer");
  const auto size = static_cast<size_t>(got);
  const size_t fixed = sizeof(abi::MessageHeader) + offsetof(abi::EnvironmentReply, text);
  if (size < fixed || size > sizeof(answer) || answer.header.magic != abi::kSocketMagic ||
      answer.header.type != static_cast<uint16_t>(abi::MessageType::kEnvironmentReply)) {
    return Fail(Code::kDataLoss, "answered " + std::to_string(size) + " bytes that are no environment reply");
  }
  if (answer.header.version != abi::kSocketVersion) {
    return Fail(Code::kDataLoss, "speaks version " + std::to_string(answer.header.version) + ", expected " +
                                     std::to_string(abi::kSocketVersion));
  }
  if (answer.body.bytes > sizeof(answer.body.text) || answer.body.bytes > size - fixed) {
    return Fail(Code::kDataLoss, "announces " + std::to_string(answer.body.bytes) + " bytes of text, sent " +
                                     std::to_string(size - fixed));
  }
  if (answer.body.found == 0) return Fail(Code::kNotFound, "knows no plan for the job");
  return ParseEnvironment(std::string_view(answer.body.text, answer.body.bytes));
}

template <typename Body>
Result<Environment> AskOnce(const AgentRequest& request, const Message<Body>& question, Deadline deadline) {
  WEFT_ASSIGN_OR_RETURN(const UniqueFd fd, Connect(request.socket_path, deadline));
  if (::send(fd.get(), &question, sizeof(question), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(question))) {
    return Fail(Code::kUnavailable, ErrnoError("send", errno).message());
  }
  WEFT_RETURN_IF_ERROR(WaitFor(fd.get(), POLLIN, deadline));
  return ReadAnswer(fd.get());
}

/// A message about the job on the host.
template <typename Body>
Result<Message<Body>> Address(const AgentRequest& request, abi::MessageType type) {
  Message<Body> message = {};
  message.header = {.magic = abi::kSocketMagic,
                    .version = abi::kSocketVersion,
                    .type = static_cast<uint16_t>(type),
                    .body_bytes = sizeof(message.body),
                    .reserved = 0};
  if (request.job.size() >= sizeof(message.body.job) || request.host.size() >= sizeof(message.body.host)) {
    return Fail(Context(request, Error(Code::kInvalidArgument, "job \"" + request.job + "\" or host \"" +
                                                                   request.host + "\" is longer than 63 characters")));
  }
  std::memcpy(message.body.job, request.job.data(), request.job.size());
  std::memcpy(message.body.host, request.host.data(), request.host.size());
  return message;
}

bool IsName(std::string_view name) {
  const auto letter = [](char c) { return c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

Result<Environment> RequestEnvironment(const AgentRequest& request, std::chrono::milliseconds timeout) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  WEFT_ASSIGN_OR_RETURN(const Question question, Address<abi::EnvironmentRequest>(request, abi::MessageType::kEnvironmentRequest));
  while (true) {
    auto environment = AskOnce(request, question, deadline);
    if (environment) return environment;
    if (environment.error().code() != Code::kNotFound) return Fail(Context(request, environment.error()));
    // Another question makes sense only if there is time for its answer.
    if (MillisecondsUntil(deadline) <= 2 * kAskAgain.count()) return Fail(Context(request, environment.error()));
    ::poll(nullptr, 0, kAskAgain.count());
  }
}

Result<Environment> TellStrategy(const AgentRequest& request, const RunningStrategy& running, std::chrono::milliseconds timeout) {
  WEFT_ASSIGN_OR_RETURN(Report report, Address<abi::StrategyRequest>(request, abi::MessageType::kStrategyRequest));
  report.body.epoch = running.epoch;
  report.body.digest = running.digest;
  report.body.iteration_s = running.iteration_s;
  report.body.refused = running.refused ? 1 : 0;
  running.reason.copy(report.body.reason, sizeof report.body.reason - 1);
  auto environment = AskOnce(request, report, std::chrono::steady_clock::now() + timeout);
  if (!environment) return Fail(Context(request, environment.error()));
  return environment;
}

Result<Environment> ParseEnvironment(std::string_view text) {
  Environment environment;
  size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || !IsName(line.substr(0, equals)) ||
        line.find('\0') != std::string_view::npos) {
      return Fail(Code::kDataLoss, "environment line " + std::to_string(line_number) + ": \"" + std::string(line) +
                                       "\", expected NAME=VALUE");
    }
    environment.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return environment;
}

std::vector<std::string> TakeForbidden(Environment* environment) {
  std::vector<std::string> names;
  std::erase_if(*environment, [&](const auto& variable) {
    const bool forbidden = !MayLaunchWith(variable.first, variable.second);
    if (forbidden) names.push_back(variable.first);
    return forbidden;
  });
  return names;
}

std::string ExpandNodeName(std::string_view pattern, std::string_view node) {
  std::string path(pattern);
  for (size_t at = 0; (at = path.find("%n", at)) != std::string::npos; at += node.size()) path.replace(at, 2, node);
  return path;
}

}  // namespace weft::agent
