// The kernel's own counters of a connection. Alone in its file because <linux/tcp.h>, the only header that knows the
// newer fields, cannot be included beside <netinet/tcp.h>.
#pragma once

#include "netplugin/abi/segment.h"

namespace weft::net {

/// Fills wire_bytes, retransmits and rtt_us of `lane` from TCP_INFO of `fd`. wire_bytes counts whole IP packets in the
/// direction of the flow: payload, retransmitted payload, and 52 bytes (72 with IPv6) of IP and TCP header per segment.
/// Returns the microseconds since the connection was opened in which it had bytes that the peer had not acknowledged
/// while the peer's window was open; 0 where TCP_INFO cannot be read.
uint64_t SampleTcpInfo(int fd, int family, abi::Direction direction, abi::LaneTelemetry* lane);

}  // namespace weft::net
