// What send and receive communicators have in common.
#pragma once

#include <cstdint>

#include "netplugin/abi/nccl_net.h"
#include "netplugin/background.h"
#include "netplugin/environment.h"
#include "netplugin/policy.h"
#include "netplugin/telemetry.h"

namespace weft::net {

/// What every communicator may use; outlives them all.
struct Services {
  const Environment& environment;
  Telemetry& telemetry;
  PolicyStore& policies;
  Background& background;
};

class Comm;

/// What NCCL holds as a request: a slot of its communicator's pool.
struct Request {
  Comm* comm = nullptr;
  uint64_t size = 0;      ///< send: of the message; receive: of the buffer
  uint64_t posted_ns = 0;
  uint32_t sequence = 0;  ///< of the message
  bool taken = false;     ///< from isend or irecv until test() said done
  bool done = false;
};

/// One direction of one connection. Used by one of NCCL's threads at a time.
class Comm {
 public:
  virtual ~Comm() = default;

  /// Contract of test(): moves what can be moved, never blocks. Returns an NCCL code.
  virtual int Test(Request* request, int* done, int* size) = 0;
};

}  // namespace weft::net
