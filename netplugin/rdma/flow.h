// What both ends of an RDMA flow have in common: the queue pairs, the TCP connection on which the ends agree about
// them, and how a flow begins anew when a queue pair failed.
//
// Who may touch what: all state belongs to whoever holds the flow (Hold). NCCL's thread tries once and otherwise says
// "not yet"; the background thread tries for some microseconds and otherwise comes again. Neither waits for the other.
//
// Beginning anew (and, the same way, changing traffic class or paths): the sender stops its queue pairs and says
// kReset; the receiver stops its own, so that nothing can arrive any more, and answers which parts of which messages
// are there; the sender writes the others again. A buffer that was given back to NCCL is never written to.
//
// While it is stopped each end may take queue pairs on another port of its host (port_choice.h): its own went down, or
// came back, or nothing gets through although it is up. Then the ends change in turn until something does, and the sender
// says whose turn it is.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "netplugin/comm.h"
#include "netplugin/rdma/port_choice.h"
#include "netplugin/rdma/queue_pairs.h"
#include "netplugin/rdma/wire.h"
#include "netplugin/tcp/socket.h"

namespace weft::net::rdma {

/// A connection of the rendezvous: whole ControlMessages in and out, never blocking.
class ControlChannel {
 public:
  explicit ControlChannel(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  /// False (errno set) when the kernel does not take the whole message: it is small, so the peer is gone or stuck.
  bool Send(const ControlMessage& message);
  enum class Got { kNothing, kMessage, kClosed, kNonsense };
  /// The next whole message. kNonsense: `*wrong` says what is wrong with it.
  Got Receive(ControlMessage* message, const char** wrong);

 private:
  Fd fd_;
  ControlMessage incoming_{};
  uint32_t have_ = 0;
};

/// A TCP socket for a ControlChannel: notices within `patience_s` that the peer's host is gone.
void TuneControl(int fd, int patience_s);

class Flow : public Comm, public BackgroundTask {
 public:
  struct Setup {
    FlowIdentity identity;
    std::unique_ptr<ControlChannel> control;
    std::shared_ptr<Port> home;  ///< the port of the device that NCCL asked for
    std::unique_ptr<QueuePairs> pairs;
    ControlMessage peer;  ///< its hello or welcome
  };

  int RegMr(void* data, size_t size, int type, void** mhandle) override;
  int RegMrDmaBuf(void* data, size_t size, int type, uint64_t offset, int fd, void** mhandle) override;
  int DeregMr(void* mhandle) override;

  const abi::FlowSlot* slot() const override { return slot_; }

  void Sweep(const Tick& tick) override;
  void Watch(std::vector<pollfd>* fds) override;

 protected:
  enum class State : uint8_t {
    kRunning,
    kFailed,   ///< the data thread saw a failure; the background thread shall act
    kWaiting,  ///< stopped, until the peer has answered
  };

  /// Tries to become the one who may touch the flow.
  class Hold {
   public:
    explicit Hold(Flow& flow, int tries = 1);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    explicit operator bool() const { return held_; }

   private:
    Flow& flow_;
    bool held_ = false;
  };

  Flow(const Services& services, Setup setup);
  ~Flow() override;

  /// Under the hold, on the background thread.
  virtual void OnMessage(const ControlMessage& message) = 0;
  virtual void Work(const Tick& tick) = 0;
  /// Each sweep that samples, without the hold.
  virtual void Sample(uint64_t /*now*/) {}
  /// Under the hold, on either thread.
  virtual void OnCompletion(const ibv_wc& completion) = 0;

  /// Takes what completed: some of it, or all when nothing good can follow. Under the hold.
  void Poll();
  /// Whether anybody reads what is measured.
  bool Observed() const { return services_.telemetry.observed.load(std::memory_order_relaxed); }
  /// Of what Poll() is handing out: when it was taken, and when nothing had completed yet (MeterNs(), 0: not known).
  uint64_t taken_ns() const { return taken_ns_; }
  uint64_t empty_ns() const { return empty_ns_; }
  /// Nobody answers to what `lane` holds: it is to go another way, or its acknowledgements are.
  virtual void Unanswered(uint32_t lane) = 0;
  /// From a completion: leaves the rest to the background thread.
  void LaneFailed(uint32_t lane, ibv_wc_status status);
  /// Stops the pairs and, once all that was posted has ended, sets them back for `generation`: then OnStopped(), in this
  /// call if the device is quick, else in a sweep to come. What completes meanwhile is counted.
  void Stop(uint32_t generation);
  virtual void OnStopped() = 0;
  /// The pairs are on another port now, with memory of their own: keys of buffers in flight are others, too.
  virtual void OnMoved(PortChoice::Reason reason) = 0;
  /// Whether all buffers in flight could be registered with `port`.
  virtual bool ReachesAllFrom(const std::shared_ptr<Port>& port) = 0;
  /// By how much longer to wait, in doublings, before giving up once more: not for the first three times, as another way is drawn each time.
  static uint32_t Patience(uint32_t given_up) { return std::min(given_up > 2 ? given_up - 2 : 0, 5u); }
  /// What the coming stop is for.
  void Because(PortChoice::Reason reason) { reason_ = reason; }
  /// From now on each sweep tries to connect to what `peer` describes, until it works: a port that is down, or a route
  /// that is not back yet, is what a flow is set up anew for. Then OnConnected(peer).
  void ConnectWhenPossible(const ControlMessage& peer);
  virtual void OnConnected(const ControlMessage& peer) = 0;
  /// Says what is constant about this end.
  ControlMessage Message(ControlType type) const;
  bool Say(const ControlMessage& message);
  void Fail(int code, const char* what);
  /// `region` as the present port knows it; nullptr if it cannot: then the flow leaves this port for another, or waits for
  /// one, and fails when that takes too long.
  ibv_mr* On(MemoryRegion* region) {
    return pairs_->port() == ports_.home() ? region->mr : Elsewhere(region);
  }
  /// Tells the background thread that there is a better port.
  virtual void WantAnotherPort() = 0;
  /// Of the connection that is made, or is to be made once the pairs have stopped.
  uint32_t AwaitedGeneration() const { return stopping_ ? next_generation_ : pairs_->generation(); }
  /// Tries to connect, on another port from now on if there is a better one: while the peer has not been told of this
  /// one. Requires: connecting().
  void Relocate(PortChoice::Reason reason);
  bool stopping() const { return stopping_; }
  bool connecting() const { return connecting_; }
  /// For a second no connection could be made to where the peer says it is.
  bool Unreachable(uint64_t now) const { return connecting_ && now > connecting_since_ + kUnreachableNs; }
  /// Something got through: a failure before it is over.
  void Progressed() {
    if (state_ == State::kRunning) failed_since_ = fruitless_ = 0;
  }
  void PublishLanes();
  const char* direction() const;

  const Services services_;
  const uint64_t flow_;
  const Address peer_address_;
  FlowRecorder recorder_;
  const abi::FlowSlot* const slot_;
  const std::unique_ptr<ControlChannel> control_;
  PortChoice ports_;
  std::unique_ptr<QueuePairs> pairs_;
  uint64_t peer_memory_;
  uint32_t peer_memory_key_;
  uint8_t peer_others_;        ///< ports that the peer could use in place of its own

  State state_ = State::kRunning;
  int error_ = nccl::kSuccess;
  bool peer_gone_ = false;
  uint32_t failed_lane_ = 0;
  ibv_wc_status failed_status_ = IBV_WC_SUCCESS;
  uint64_t failed_since_ = 0;  ///< first failure without progress since; 0: none
  uint64_t fruitless_ = 0;     ///< failures without progress since
  bool times_completions_ = false;  ///< taken_ns() and empty_ns() are wanted

 private:
  static constexpr uint64_t kUnreachableNs = 1'000'000'000;
  static constexpr uint64_t kTryAgainNs = 10'000'000, kTryAgainLatestNs = 320'000'000;

  ibv_mr* Elsewhere(MemoryRegion* region);
  bool MoveTo(const std::shared_ptr<Port>& port, PortChoice::Reason reason, std::string* why);
  void ReadControl();
  void TryConnect();
  void ContinueStop();
  void LookForStandstill(uint64_t now);

  uint64_t taken_ns_ = 0, empty_ns_ = 0;
  uint64_t seen_completed_ = 0;
  uint64_t moved_ns_ = NowNs();  ///< when completed() last grew, or nothing was in flight

  bool stopping_ = false;
  uint32_t next_generation_ = 0;

  ControlMessage wanted_peer_{};
  bool connecting_ = false;
  PortChoice::Reason reason_ = PortChoice::Reason::kOther;
  const MemoryRegion* unregistered_ = nullptr;  // that could not be used away from home
  uint64_t unregistered_since_ = 0;
  uint64_t connecting_since_ = 0;
  uint64_t connect_not_before_ = 0, connect_pause_ns_ = 0;  // between tries
  std::string why_not_;                                     // of the last one
  std::atomic<bool> held_{false};  // acquire and release: what one holder wrote the next one sees
};

}  // namespace weft::net::rdma
