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
    Fd file;             ///< from its beginning the bytes; invalid: the connection is as it was
    uint64_t bytes = 0;
  };

  /// Asks for the bytes of connection `fd`, which nobody may write to until the answer is there; with them it is closed and its peer is told
  /// nothing. False: there is nobody to ask. Threads: any; never blocks.
  virtual bool Ask(int fd, uint64_t token) = 0;
  /// The answer to that question, once. Threads: any.
  virtual std::optional<Answer> Take(uint64_t token) = 0;

 protected:
  ~UnsentBytes() = default;
};

}  // namespace weft::net
