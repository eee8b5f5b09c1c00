#include "agent/qos/dcb.h"

#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::agent {
namespace {

// Of newer kernels than the headers of Debian 12: ieee_attrs after DCB_ATTR_DCB_BUFFER.
constexpr uint16_t kAppTrustTable = DCB_ATTR_DCB_BUFFER + 1;
constexpr int kAnswerMs = 2000;
constexpr size_t kAnswerBytes = 16384;

/// Builds one request; nested attributes are closed in the opposite order.
class Message {
 public:
  Message(uint16_t type, uint8_t command, const std::string& interface, uint32_t sequence) {
    const nlmsghdr header{.nlmsg_len = 0, .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = sequence, .nlmsg_pid = 0};
    Append(&header, sizeof header);
    const dcbmsg dcb{.dcb_family = AF_UNSPEC, .cmd = command, .dcb_pad = 0};
    Append(&dcb, sizeof dcb);
    Put(DCB_ATTR_IFNAME, interface.c_str(), interface.size() + 1);
  }
  void Put(uint16_t type, const void* data, size_t bytes) {
    const nlattr attribute{.nla_len = static_cast<uint16_t>(NLA_HDRLEN + bytes), .nla_type = type};
    Append(&attribute, sizeof attribute);
    Append(data, bytes);
  }
  size_t Begin(uint16_t type) {
    const size_t at = bytes_.size();
    const nlattr attribute{.nla_len = 0, .nla_type = static_cast<uint16_t>(type | NLA_F_NESTED)};
    Append(&attribute, sizeof attribute);
    return at;
  }
  void End(size_t at) {
    const auto length = static_cast<uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &length, sizeof length);
  }
  std::vector<char> Take() {
    const auto length = static_cast<uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &length, sizeof length);
    return std::move(bytes_);
  }

 private:
  void Append(const void* data, size_t bytes) {
    const auto* const begin = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
    bytes_.resize(NLA_ALIGN(bytes_.size()));
  }
  std::vector<char> bytes_;
};

void PutApps(Message& message, const std::set<DcbApp>& apps) {
  if (apps.empty()) return;
  const size_t table = message.Begin(DCB_ATTR_IEEE_APP_TABLE);
  for (const DcbApp& app : apps) {
    const dcb_app entry{.selector = app.selector, .priority = app.priority, .protocol = app.protocol};
    message.Put(DCB_ATTR_IEEE_APP, &entry, sizeof entry);
  }
  message.End(table);
}

/// Calls visit(type, payload) for each attribute; stops at one that claims more than there is.
template <typename Visit>
void ForEach(std::span<const char> data, Visit visit) {
  while (data.size() >= NLA_HDRLEN) {
    nlattr header;
    std::memcpy(&header, data.data(), sizeof header);
    if (header.nla_len < NLA_HDRLEN || header.nla_len > data.size()) return;
    visit(header.nla_type & NLA_TYPE_MASK, data.subspan(NLA_HDRLEN, header.nla_len - NLA_HDRLEN));
    data = data.subspan(std::min<size_t>(NLA_ALIGN(header.nla_len), data.size()));
  }
}

/// Nothing where the kernel's structure is shorter than ours.
template <typename T>
std::optional<T> Struct(std::span<const char> payload) {
  if (payload.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

Error KernelError(int number) {
  if (number == EOPNOTSUPP) return Error(Code::kUnimplemented, "the driver has no DCB");
  return Error(Code::kUnavailable, ErrnoError("dcb", number).message());
}

/// The attributes of an answer of the kernel.
Result<std::span<const char>> Attributes(std::span<const char> message) {
  const auto header = Struct<nlmsghdr>(message);
  if (!header || header->nlmsg_len > message.size() || header->nlmsg_len < NLMSG_HDRLEN) {
    return Fail(Code::kDataLoss, fmt::format("dcb: an answer of {} bytes that is no netlink message", message.size()));
  }
  const std::span<const char> payload = message.subspan(NLMSG_HDRLEN, header->nlmsg_len - NLMSG_HDRLEN);
  if (header->nlmsg_type == NLMSG_ERROR) {
    const auto error = Struct<int>(payload);
    if (!error || *error >= 0) return Fail(Code::kDataLoss, "dcb: an acknowledgement that nobody asked for");
    return Fail(KernelError(-*error));
  }
  if ((header->nlmsg_type != RTM_GETDCB && header->nlmsg_type != RTM_SETDCB) || payload.size() < sizeof(dcbmsg)) {
    return Fail(Code::kDataLoss, fmt::format("dcb: an answer of type {}, expected {} or {}", header->nlmsg_type, RTM_GETDCB,
                                             RTM_SETDCB));
  }
  return payload.subspan(NLMSG_ALIGN(sizeof(dcbmsg)));
}

void ParseIeee(std::span<const char> nested, DcbState* state) {
  ForEach(nested, [&](int type, std::span<const char> payload) {
    if (type == DCB_ATTR_IEEE_ETS) state->ets = Struct<ieee_ets>(payload);
    if (type == DCB_ATTR_IEEE_PFC) state->pfc = Struct<ieee_pfc>(payload);
    if (type == DCB_ATTR_DCB_BUFFER) state->buffers = Struct<dcbnl_buffer>(payload);
    if (type == DCB_ATTR_IEEE_APP_TABLE) {
      ForEach(payload, [&](int, std::span<const char> entry) {
        if (const auto app = Struct<dcb_app>(entry)) state->apps.insert({app->selector, app->priority, app->protocol});
      });
    }
    if (type == kAppTrustTable) {
      state->trust.emplace();
      ForEach(payload, [&](int, std::span<const char> entry) {
        if (!entry.empty()) state->trust->push_back(static_cast<uint8_t>(entry[0]));
      });
    }
  });
}

template <typename T>
bool Differ(const std::optional<T>& a, const std::optional<T>& b) {
  return a && (!b || std::memcmp(&*a, &*b, sizeof(T)) != 0);
}

}  // namespace

bool DcbState::TrustsDscp() const {
  if (trust) return !trust->empty() && trust->front() == IEEE_8021QAZ_APP_SEL_DSCP;
  return std::ranges::any_of(apps, [](const DcbApp& app) { return app.selector == IEEE_8021QAZ_APP_SEL_DSCP; });
}

DcbChange ChangeTo(const DcbState& before, const DcbState& now) {
  DcbChange change;
  std::ranges::set_difference(before.apps, now.apps, std::inserter(change.add, change.add.end()));
  std::ranges::set_difference(now.apps, before.apps, std::inserter(change.remove, change.remove.end()));
  if (Differ(before.ets, now.ets)) change.ets = before.ets;
  if (before.pfc && (!now.pfc || before.pfc->pfc_en != now.pfc->pfc_en)) change.pfc = before.pfc;  // the rest are counters
  if (before.trust && before.trust != now.trust) change.trust = before.trust;
  return change;
}

std::vector<char> DcbGetMessage(const std::string& interface, uint32_t sequence) {
  return Message(RTM_GETDCB, DCB_CMD_IEEE_GET, interface, sequence).Take();
}

std::vector<char> DcbSetMessage(const std::string& interface, const DcbChange& change, uint32_t sequence) {
  Message message(RTM_SETDCB, DCB_CMD_IEEE_SET, interface, sequence);
  const size_t ieee = message.Begin(DCB_ATTR_IEEE);
  if (change.ets) message.Put(DCB_ATTR_IEEE_ETS, &*change.ets, sizeof *change.ets);
  if (change.pfc) message.Put(DCB_ATTR_IEEE_PFC, &*change.pfc, sizeof *change.pfc);
  PutApps(message, change.add);
  if (change.trust) {
    const size_t table = message.Begin(kAppTrustTable);
    for (const uint8_t selector : *change.trust) message.Put(DCB_ATTR_IEEE_APP, &selector, 1);
    message.End(table);
  }
  message.End(ieee);
  return message.Take();
}

std::vector<char> DcbDeleteMessage(const std::string& interface, const std::set<DcbApp>& remove, uint32_t sequence) {
  Message message(RTM_SETDCB, DCB_CMD_IEEE_DEL, interface, sequence);
  const size_t ieee = message.Begin(DCB_ATTR_IEEE);
  PutApps(message, remove);
  message.End(ieee);
  return message.Take();
}

Result<DcbState> ParseDcbState(std::span<const char> message) {
  WEFT_ASSIGN_OR_RETURN(const std::span<const char> attributes, Attributes(message));
  DcbState state;
  bool found = false;
  ForEach(attributes, [&](int type, std::span<const char> payload) {
    if (type != DCB_ATTR_IEEE) return;
    found = true;
    ParseIeee(payload, &state);
  });
  if (!found) return Fail(Code::kDataLoss, "dcb: an answer without IEEE settings");
  return state;
}

Status ParseDcbDone(std::span<const char> message) {
  WEFT_ASSIGN_OR_RETURN(const std::span<const char> attributes, Attributes(message));
  std::optional<int> error;
  ForEach(attributes, [&](int type, std::span<const char> payload) {
    if (type == DCB_ATTR_IEEE && !payload.empty()) error = static_cast<int8_t>(payload[0]);  // the kernel's errno in one byte
  });
  if (!error) return Fail(Code::kDataLoss, "dcb: an answer that does not say whether it was done");
  if (*error != 0) return Fail(KernelError(std::abs(*error)));
  return Ok();
}

Result<DcbSocket> DcbSocket::Open() {
  DcbSocket socket;
  socket.fd_.reset(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket.fd_) return Fail(ErrnoError("open rtnetlink socket", errno));
  return socket;
}

Result<std::vector<char>> DcbSocket::Ask(const std::vector<char>& message, const std::string& what) {
  if (::send(fd_.get(), message.data(), message.size(), 0) < 0) return Fail(ErrnoError(what, errno));
  std::vector<char> answer(kAnswerBytes);
  for (;;) {
    pollfd wait{fd_.get(), POLLIN, 0};
    if (const int ready = ::poll(&wait, 1, kAnswerMs); ready < 0 && errno == EINTR) continue;
    else if (ready <= 0) return Fail(Code::kUnavailable, fmt::format("{}: the kernel does not answer", what));
    const ssize_t got = ::recv(fd_.get(), answer.data(), answer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(ErrnoError(what, errno));
    const auto header = Struct<nlmsghdr>(std::span(answer.data(), static_cast<size_t>(got)));
    if (!header || header->nlmsg_seq != sequence_) continue;  // of a call that was given up
    answer.resize(static_cast<size_t>(got));
    return answer;
  }
}

Result<DcbState> DcbSocket::Read(const std::string& interface) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<char> answer, Ask(DcbGetMessage(interface, ++sequence_), "read DCB of " + interface));
  return ParseDcbState(answer);
}

Status DcbSocket::Write(const std::string& interface, const DcbChange& change) {
  const std::string what = "set DCB of " + interface;
  const auto done = [&](const std::vector<char>& message) -> Status {
    WEFT_ASSIGN_OR_RETURN(const std::vector<char> answer, Ask(message, what));
    if (const Status status = ParseDcbDone(answer); !status) return Fail(status.error().WithContext(what));
    return Ok();
  };
  if (!change.add.empty() || change.ets || change.pfc || change.trust) {
    WEFT_RETURN_IF_ERROR(done(DcbSetMessage(interface, change, ++sequence_)));
  }
  if (change.remove.empty()) return Ok();
  // Drivers may have dropped a DSCP's old entry with the new one.
  WEFT_ASSIGN_OR_RETURN(const DcbState now, Read(interface));
  std::set<DcbApp> left;
  std::ranges::set_intersection(change.remove, now.apps, std::inserter(left, left.end()));
  return left.empty() ? Ok() : done(DcbDeleteMessage(interface, left, ++sequence_));
}

}  // namespace weft::agent
