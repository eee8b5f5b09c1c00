#include "netplugin/tcp/tcp_info.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace weft::net {
namespace {

constexpr double kForecast = 0.1;  // seconds: a few samples, each of which says it anew

// The TCP header carries the 12 bytes of timestamps.
uint64_t HeaderBytes(int family) { return family == AF_INET6 ? 72 : 52; }

}  // namespace

TcpMoment SampleTcpInfo(int fd, int family, abi::Direction direction, uint64_t now, abi::LaneTelemetry* lane) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  const uint64_t header = HeaderBytes(family);
  // bytes_sent includes what was sent again (RFC 4898, tcpEStatsPerfHCDataOctetsOut), segs_out as well.
  const uint64_t wire = direction == abi::Direction::kSend
                            ? info.tcpi_bytes_sent + header * info.tcpi_segs_out
                            : info.tcpi_bytes_received + header * info.tcpi_segs_in;
  lane->wire_bytes.store(wire, std::memory_order_relaxed);
  lane->retransmits.store(info.tcpi_total_retrans, std::memory_order_relaxed);
  lane->rtt_us.store(info.tcpi_rtt, std::memory_order_relaxed);
  const uint64_t held = info.tcpi_notsent_bytes + uint64_t{info.tcpi_unacked} * info.tcpi_snd_mss;
  const double rate = static_cast<double>(info.tcpi_delivery_rate);  // bytes per second, 0: none known yet
  return {.time_ns = now,
          .busy_us = info.tcpi_busy_time - std::min<uint64_t>(info.tcpi_busy_time, info.tcpi_rwnd_limited),
          .received_bytes = info.tcpi_bytes_received,
          .shut_us = info.tcpi_rwnd_limited,
          .draining_ns = rate > 0 ? static_cast<uint64_t>(std::min(kForecast, static_cast<double>(held) / rate) * 1e9) : 0,
          .silent_ns = uint64_t{info.tcpi_last_ack_recv} * 1'000'000,
          .in_flight = info.tcpi_unacked > 0,
          .unanswered = info.tcpi_unacked > 0 && info.tcpi_retransmits > 0};
}

uint64_t UnansweredFor(const TcpMoment& moment, uint64_t* since) {
  // The last acknowledgement may be hours older than what is in flight now.
  const uint64_t heard = moment.time_ns - std::min(moment.time_ns, moment.silent_ns);
  *since = moment.in_flight && *since != 0 ? std::max(*since, heard) : moment.time_ns;
  return moment.unanswered ? moment.time_ns - *since : 0;
}

double WirePerByte(int fd, int family) {
  int segment = 0;
  socklen_t length = sizeof segment;
  if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, &length) != 0 || segment <= 0) return 1;
  return 1 + static_cast<double>(HeaderBytes(family)) / segment;
}

uint64_t LeastWindow(int fd) {
  int buffer = 0;
  socklen_t length = sizeof buffer;
  if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, &length) != 0 || buffer < 0) return 0;
  return static_cast<uint64_t>(buffer) / 4;  // half of it is the kernel's own
}

}  // namespace weft::net
