// connect(): a state machine that NCCL calls again and again with the same handle memory. The handle carries a ticket;
// the connection under way is kept here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "netplugin/comm.h"
#include "netplugin/tcp/send_comm.h"
#include "netplugin/tcp/wire.h"

namespace weft::net {

/// FNV-1a of a job id; 0 for none.
uint64_t JobHash(const std::string& job);

/// What is wrong with a handle that NCCL carried here, or nullptr. `job_hash`: of this process, 0 for none.
const char* CheckHandle(const Handle& handle, uint64_t job_hash);

/// Tells the listener of a handle of another version why nobody connects, so that its rank fails too and does not wait for ever.
/// Best effort; blocks for at most half a second.
void TellOtherVersion(const Handle& handle, int own_rank);

/// Fills what listen() gives away.
Handle MakeHandle(const Address& address, uint64_t cookie, const Environment& environment);

class Connector {
 public:
  explicit Connector(const Services& services) : services_(services) {}

  struct Options {
    uint32_t device = 0;
    Address local;          ///< of the device; the port is the kernel's choice
    uint64_t comm_id = 0;
    uint8_t traffic_class = 0;
  };

  /// One step; never blocks. `*comm` stays nullptr while the connection is under way. Returns an NCCL code; after an
  /// error the handle can start afresh. Threads: any, one at a time per handle.
  int Step(Handle* handle, const Options& options, std::unique_ptr<SendComm>* comm);

 private:
  int Start(Handle* handle, const Options& options);
  int Finish(Fd fd, const Handle& handle, const Options& options, std::unique_ptr<SendComm>* comm);

  const Services services_;
  std::mutex mutex_;  // guards what follows
  struct UnderWay {
    Fd fd;
    uint64_t asked_ns = 0;  // when NCCL last asked for it
  };
  std::map<uint64_t, UnderWay> under_way_;
  uint64_t last_ticket_ = 0;
};

}  // namespace weft::net
