// Taking back from the kernel what a connection was given and its peer never acknowledged: what that is only the kernel knows, and it
// tells nobody without CAP_NET_ADMIN. So the plugin asks its agent (abi::UnsentRequest).
#pragma once

#include <cstdint>
#include <optional>

#include "netplugin/tcp/socket.h"

namespace weft::net {

class UnsentBytes {
 public:
  struct Answer {
    Fd file;             ///< from its beginning the bytes, for a few seconds; invalid: they were not taken
    uint64_t bytes = 0;
  };

  /// Asks for the bytes of connection `fd`, which nobody may write to until the answer is there; with them it is closed and its peer is told
  /// nothing. After `until_ns` of CLOCK_MONOTONIC they are not taken any more. False: there is nobody to ask. Threads: any; never blocks.
  virtual bool Ask(int fd, uint64_t token, uint64_t until_ns) = 0;
  /// The answer to that question, once. Threads: any.
  virtual std::optional<Answer> Take(uint64_t token) = 0;
  /// Nobody will take that answer. Threads: any.
  virtual void Forget(uint64_t token) = 0;

 protected:
  ~UnsentBytes() = default;
};

}  // namespace weft::net
