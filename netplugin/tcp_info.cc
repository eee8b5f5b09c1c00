#include "netplugin/tcp_info.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace weft::net {
namespace {

// The TCP header carries the 12 bytes of timestamps.
uint64_t HeaderBytes(int family) { return family == AF_INET6 ? 72 : 52; }

constexpr uint32_t kBacklogSegments = 4;  // an acknowledgement may wait for two
constexpr double kWithoutGap = 0.9;       // of the interval: the kernel counts busy time in ticks of up to 4 ms

void Bump(std::atomic<uint64_t>& counter, uint64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

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
  return {.time_ns = now,
          .busy_us = info.tcpi_busy_time - std::min<uint64_t>(info.tcpi_busy_time, info.tcpi_rwnd_limited),
          .acked_bytes = info.tcpi_bytes_acked,
          .received_bytes = info.tcpi_bytes_received,
          .segment = std::max<uint64_t>(1, info.tcpi_snd_mss),
          .backlog = info.tcpi_unacked >= kBacklogSegments,
          .silent_ns = uint64_t{info.tcpi_last_ack_recv} * 1'000'000};
}

void CountBacklog(const TcpMoment& before, const TcpMoment& now, int family, abi::LaneTelemetry* lane) {
  if (before.time_ns == 0 || now.time_ns <= before.time_ns || !before.backlog || !now.backlog) return;
  if (now.acked_bytes < before.acked_bytes || now.busy_us < before.busy_us) return;  // another connection
  const uint64_t interval = now.time_ns - before.time_ns;
  if (static_cast<double>(now.busy_us - before.busy_us) * 1000 < kWithoutGap * static_cast<double>(interval)) return;
  const uint64_t payload = now.acked_bytes - before.acked_bytes;
  Bump(lane->backlog_ns, interval);
  Bump(lane->backlog_bytes, payload + payload * HeaderBytes(family) / now.segment);
}

}  // namespace weft::net
