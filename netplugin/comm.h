// What send and receive communicators have in common.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "netplugin/abi/nccl_net.h"
#include "netplugin/background.h"
#include "netplugin/environment.h"
#include "netplugin/policy/policy.h"
#include "netplugin/policy/unsent.h"
#include "netplugin/telemetry/telemetry.h"

namespace weft::net {

/// What every communicator may use; outlives them all.
struct Services {
  const Environment& environment;
  Telemetry& telemetry;
  PolicyStore& policies;
  Background& background;
  UnsentBytes* unsent = nullptr;  ///< nullptr: lanes whose path is silent stay there
};

class Comm;

/// Descriptors to be waited for, a bounded number.
class PollList {
 public:
  void Add(int fd, short events) {
    if (count_ < fds_.size()) fds_[count_++] = {fd, events, 0};
  }
  pollfd* data() { return fds_.data(); }
  size_t size() const { return count_; }

 private:
  std::array<pollfd, 64> fds_;
  size_t count_ = 0;
};

/// What NCCL holds as a request: a slot of its communicator's pool.
struct Request {
  Comm* comm = nullptr;
  uint64_t size = 0;      ///< send: of the message; receive: of the buffer, or of all buffers of a group
  uint64_t posted_ns = 0;
  uint32_t sequence = 0;  ///< of the message
  bool taken = false;     ///< from isend or irecv until test() said done
  bool done = false;
};

/// A connect() that nobody has asked for that long is given up: NCCL never says that it has abandoned one.
inline constexpr uint64_t kAbandonedNs = 300'000'000'000;

/// What a communicator has taken and not yet finished, as the watchdog sees it. Counted by the thread that uses the
/// communicator, read by the background thread; relaxed: nothing is published by it.
struct InFlight {
  std::atomic<bool> given_up{false};  ///< by the watchdog: every further call is a remote error
  std::atomic<bool> failed{false};    ///< NCCL was told of an error

  void Posted(uint64_t size) { Bump(sum_, kOne + size); }
  void Done(uint64_t size) { Bump(sum_, -(kOne + size)); }
  uint64_t requests() const { return sum_.load(std::memory_order_relaxed) / kOne; }
  uint64_t bytes() const { return sum_.load(std::memory_order_relaxed) % kOne; }

 private:
  // Requests above 50 bits of bytes, so that a message costs one addition at each end: 32 groups of 8 of 1 TiB fit.
  static constexpr uint64_t kOne = uint64_t{1} << 50;
  static_assert(kMaxRecvs * nccl::kMaxMessageBytes <= kOne / (2 * nccl::kMaxRequests));

  std::atomic<uint64_t> sum_{0};
};

/// One direction of one connection, over whatever transport: what NCCL holds as sendComm or recvComm is a `Comm*`. Used
/// by one of NCCL's threads at a time. All return NCCL codes and never block. The defaults are a transport's that needs
/// no registration.
class Comm {
 public:
  virtual ~Comm() = default;

  /// Contract of isend() and irecv() of one buffer: `*request` stays nullptr when it cannot be taken now. `tag` names
  /// the sender's rank; `mhandle` is what RegMr() gave for memory that holds `data`.
  virtual int Isend(const void*, uint64_t, int /*tag*/, void* /*mhandle*/, Request**) { return nccl::kInvalidUsage; }
  virtual int Irecv(void*, uint64_t, int /*tag*/, void* /*mhandle*/, Request**) { return nccl::kInvalidUsage; }
  /// Irecv() into memory that is polled while it is written: its bytes must appear in order.
  virtual int IrecvPolled(void* data, uint64_t size, int tag, void* mhandle, Request** request) {
    return Irecv(data, size, tag, mhandle, request);
  }
  /// Contract of irecv() of 1 to kMaxRecvs buffers: each takes the next message of its tag.
  virtual int IrecvGroup(int /*n*/, void** /*data*/, const uint64_t* /*sizes*/, const int* /*tags*/,
                         void** /*mhandles*/, Request**) {
    return nccl::kInvalidUsage;
  }
  /// Contract of iflush() of one buffer: nullptr in `*request` says that there is nothing to wait for.
  virtual int Iflush(void*, uint64_t, void* /*mhandle*/, Request** request) {
    *request = nullptr;
    return nccl::kSuccess;
  }
  /// Contract of test(): moves what can be moved, never blocks. `size`: one per buffer. Returns an NCCL code.
  virtual int Test(Request* request, int* done, int* size) = 0;

  /// Adds descriptors whose readiness lets Test() move bytes of what is in flight; none where something else than the kernel's
  /// buffers holds it up. The thread that uses the communicator.
  virtual void AddTo(PollList*) {}

  virtual int RegMr(void* /*data*/, size_t, int type, void** mhandle) {
    if (type != nccl::kPtrHost) return nccl::kInvalidUsage;
    *mhandle = this;  // host memory needs no registration; any value that is not nullptr will do
    return nccl::kSuccess;
  }
  virtual int RegMrDmaBuf(void* /*data*/, size_t, int /*type*/, uint64_t /*offset*/, int /*fd*/, void** /*mhandle*/) {
    return nccl::kInvalidUsage;
  }
  virtual int DeregMr(void* /*mhandle*/) { return nccl::kSuccess; }

  /// Its telemetry, from which the watchdog sees whether bytes move; nullptr: it is not watched.
  virtual const abi::FlowSlot* slot() const { return nullptr; }
  /// How long the peer's host has not answered on any lane, as last sampled; UINT64_MAX: not known. Background thread.
  virtual uint64_t SilentNs() const { return UINT64_MAX; }

  InFlight in_flight;  ///< counted where NCCL's calls come in (net.cc)
};

/// What NCCL holds as listenComm.
class ListenComm {
 public:
  virtual ~ListenComm() = default;

  /// Contract of accept(): `*comm` stays nullptr until a peer is there; never blocks. Returns an NCCL code.
  virtual int Accept(std::unique_ptr<Comm>* comm) = 0;
};

}  // namespace weft::net
