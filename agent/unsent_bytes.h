// Takes off a TCP connection whose path has fallen silent what its peer never acknowledged, so that the process can send it over another
// one (netplugin/tcp/send_move.cc). Needs CAP_NET_ADMIN: the kernel's TCP_REPAIR, made to move connections between machines.
#pragma once

#include <cstdint>

#include "common/result.h"
#include "common/unique_fd.h"

namespace weft::agent {

struct UnsentBytes {
  UniqueFd file;       ///< of memory, sealed against writing and growth; begins with the bytes
  uint64_t bytes = 0;
};

/// Of one connection.
inline constexpr uint64_t kMostUnsentBytes = uint64_t{32} << 20;

/// Reads what the kernel holds of `fd` and closes the connection without a word to its peer. Nobody may write to it meanwhile. After an
/// error it is as it was.
///
/// A socket in repair mode lets its owner bind ports that others use. So it is in that mode for the calls in here only, and does not
/// listen when they are over.
///
/// Errors: kInvalidArgument for what is no established TCP connection, kFailedPrecondition where the peer answers, or without
/// CAP_NET_ADMIN in the user namespace of the network namespace, kResourceExhausted past kMostUnsentBytes.
/// Complexity: linear in the bytes. Threads: any.
Result<UnsentBytes> TakeUnsent(int fd);

}  // namespace weft::agent
