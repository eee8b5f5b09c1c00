// The kernel's own counters of a connection. Alone in its file because <linux/tcp.h>, the only header that knows the
// newer fields, cannot be included beside <netinet/tcp.h>.
#pragma once

#include "netplugin/abi/segment.h"

namespace weft::net {

/// A sending connection as TCP saw it at one moment.
struct TcpMoment {
  uint64_t time_ns = 0;         ///< 0: never looked at
  uint64_t busy_us = 0;         ///< since it was opened: had bytes unacknowledged while the peer's window was open
  uint64_t received_bytes = 0;  ///< payload, and one for the end of the stream
  uint64_t shut_us = 0;         ///< since it was opened: had bytes to send while the peer's window was shut
  uint64_t draining_ns = 0;     ///< until all that it holds is acknowledged, at the rate of the newest acknowledgements
  uint64_t silent_ns = 0;       ///< since the peer's host last acknowledged anything, be it that its window is closed
  bool in_flight = false;       ///< something is not acknowledged
  bool unanswered = false;      ///< and was sent again on a timeout to which nothing has come back yet
};

/// Follows how long a connection's bytes have gone unanswered: `since` is when it last had nothing in flight or heard of its
/// peer, kept by the caller from one moment to the next (0 at first). Returns 0 unless some were sent again since.
uint64_t UnansweredFor(const TcpMoment& moment, uint64_t* since);

/// Fills wire_bytes, retransmits and rtt_us of `lane` from TCP_INFO of `fd`. wire_bytes counts whole IP packets in the
/// direction of the flow: payload, retransmitted payload, and 52 bytes (72 with IPv6) of IP and TCP header per segment.
/// Returns what TCP says at `now`; a moment of time 0 where TCP_INFO cannot be read.
TcpMoment SampleTcpInfo(int fd, int family, abi::Direction direction, uint64_t now, abi::LaneTelemetry* lane);

/// Bytes on the wire per byte of payload in full segments of the connection: IP and TCP headers added. 1 if TCP does not
/// say.
double WirePerByte(int fd, int family);

/// Bytes that the peer may send though nothing is read: half of what the kernel's accounting lets the window be. 0 if TCP
/// does not say.
uint64_t LeastWindow(int fd);

}  // namespace weft::net
