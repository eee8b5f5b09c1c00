#include "testbed/class_counters.h"

#include <fmt/format.h>
#include <linux/gen_stats.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "testbed/net_namespace.h"

namespace weft::testbed {
namespace {

/// Calls visit(type, payload) for each attribute of `data`; stops at one that claims more than there is.
template <typename Visit>
void ForEachAttribute(std::span<const char> data, Visit visit) {
  while (data.size() >= sizeof(rtattr)) {
    rtattr header;
    std::memcpy(&header, data.data(), sizeof(header));
    if (header.rta_len < sizeof(header) || header.rta_len > data.size()) return;
    visit(header.rta_type & NLA_TYPE_MASK, data.subspan(RTA_LENGTH(0), header.rta_len - RTA_LENGTH(0)));
    data = data.subspan(std::min<size_t>(RTA_ALIGN(header.rta_len), data.size()));
  }
}

/// The kernel's structure, of which an older kernel may send less and a newer one more.
template <typename T>
T ReadStruct(std::span<const char> payload) {
  T value{};
  std::memcpy(&value, payload.data(), std::min(sizeof(T), payload.size()));
  return value;
}

ClassCounters ParseClass(std::span<const char> message) {
  ClassCounters counters;
  const auto header = ReadStruct<tcmsg>(message);
  counters.class_id = header.tcm_handle;
  ForEachAttribute(message.subspan(NLMSG_ALIGN(sizeof(tcmsg))), [&](int type, std::span<const char> statistics) {
    if (type != TCA_STATS2) return;
    ForEachAttribute(statistics, [&](int kind, std::span<const char> payload) {
      if (kind == TCA_STATS_BASIC) {
        const auto basic = ReadStruct<gnet_stats_basic>(payload);
        counters.bytes = static_cast<int64_t>(basic.bytes);
        counters.packets = basic.packets;
      } else if (kind == TCA_STATS_PKT64) {
        counters.packets = ReadStruct<int64_t>(payload);  // sent only once 32 bits no longer hold it
      } else if (kind == TCA_STATS_QUEUE) {
        counters.drops = ReadStruct<gnet_stats_queue>(payload).drops;
      }
    });
  });
  return counters;
}

}  // namespace

Result<ClassCounterReader> ClassCounterReader::Open(std::string_view netns, const std::string& device) {
  ClassCounterReader reader;
  reader.name_ = fmt::format("{}/{}", netns, device);
  WEFT_RETURN_IF_ERROR(InNamespace(netns, [&]() -> Status {
    reader.interface_ = static_cast<int>(::if_nametoindex(device.c_str()));
    if (reader.interface_ == 0) return Fail(ErrnoError(fmt::format("find device \"{}\"", reader.name_), errno));
    reader.socket_.reset(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!reader.socket_) return Fail(ErrnoError("open rtnetlink socket", errno));
    return Ok();
  }));
  return reader;
}

Result<std::vector<ClassCounters>> ClassCounterReader::Read() {
  struct {
    nlmsghdr header{};
    tcmsg body{};
  } request;
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETTCLASS;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.header.nlmsg_seq = ++sequence_;
  request.body.tcm_family = AF_UNSPEC;
  request.body.tcm_ifindex = interface_;
  const auto failed = [&](int error) {
    return Fail(ErrnoError(fmt::format("read class counters of \"{}\"", name_), error));
  };
  if (::send(socket_.get(), &request, sizeof(request), 0) < 0) return failed(errno);
  std::vector<ClassCounters> classes;
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  while (true) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    auto left = static_cast<unsigned>(got);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_seq != sequence_) continue;  // the tail of an answer that an earlier call gave up
      if (message->nlmsg_type == NLMSG_DONE) return classes;
      const std::span<const char> payload(static_cast<const char*>(NLMSG_DATA(message)),
                                          message->nlmsg_len - NLMSG_LENGTH(0));
      if (message->nlmsg_type == NLMSG_ERROR) return failed(-ReadStruct<nlmsgerr>(payload).error);
      if (message->nlmsg_type == RTM_NEWTCLASS && payload.size() >= sizeof(tcmsg)) {
        classes.push_back(ParseClass(payload));
      }
    }
  }
}

}  // namespace weft::testbed
