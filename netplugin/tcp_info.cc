#include "netplugin/tcp_info.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace weft::net {

uint64_t SampleTcpInfo(int fd, int family, abi::Direction direction, abi::LaneTelemetry* lane) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  const uint64_t header = family == AF_INET6 ? 72 : 52;  // the TCP header carries the 12 bytes of timestamps
  // bytes_sent includes what was sent again (RFC 4898, tcpEStatsPerfHCDataOctetsOut), segs_out as well.
  const uint64_t wire = direction == abi::Direction::kSend
                            ? info.tcpi_bytes_sent + header * info.tcpi_segs_out
                            : info.tcpi_bytes_received + header * info.tcpi_segs_in;
  lane->wire_bytes.store(wire, std::memory_order_relaxed);
  lane->retransmits.store(info.tcpi_total_retrans, std::memory_order_relaxed);
  lane->rtt_us.store(info.tcpi_rtt, std::memory_order_relaxed);
  return info.tcpi_busy_time - std::min<uint64_t>(info.tcpi_busy_time, info.tcpi_rwnd_limited);
}

}  // namespace weft::net
