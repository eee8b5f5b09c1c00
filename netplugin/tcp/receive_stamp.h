// When the kernel received what a read returns, whenever that read comes.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace weft::net {

/// Has the kernel note when segments of the TCP socket arrive. Best effort.
void AskReceiveStamps(int fd);

/// As recvmsg(MSG_DONTWAIT). Where something was read, `*at_ns` becomes when the last segment of it arrived, as MeterNs();
/// 0: not known. Segments that waited together may count as one, as of the last of them: the time is that of the newest byte
/// if nothing was left behind it, and no earlier otherwise.
ssize_t ReceiveStamped(int fd, iovec* parts, size_t count, uint64_t* at_ns);

}  // namespace weft::net
