// The plugin's only thread, one per process: it opens lanes, talks to the agent and samples the kernel's counters, so
// that the data path (NCCL's own threads) never does. Nothing on the data path waits for it.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "netplugin/abi/observations.h"
#include "netplugin/tcp/socket.h"

namespace weft::net {

struct Tick {
  uint64_t now = 0;     ///< CLOCK_MONOTONIC, nanoseconds
  bool sample = false;  ///< every 25 ms: read TCP_INFO
};

/// Something that the thread looks after. Both calls come from the thread and must not block.
class BackgroundTask {
 public:
  virtual void Sweep(const Tick& tick) = 0;
  /// Adds descriptors whose readiness shall start the next sweep early. They may be closed by others meanwhile: that
  /// costs a sweep at worst.
  virtual void Watch(std::vector<pollfd>*) {}

 protected:
  ~BackgroundTask() = default;
};

/// An error in a sweep (memory that cannot be had) ends it: that is logged and shown in `slot`, and the next Start() begins
/// anew.
class Background {
 public:
  static constexpr uint64_t kSampleNs = 24'000'000;
  static constexpr int kSweepMs = 25;
  static constexpr uint64_t kLingerNs = 30'000'000'000;
  static constexpr int kLastLingerMs = 1000;

  /// `slot` tells the agent how the thread is, and outlives this; nullptr: nobody is told.
  explicit Background(abi::BackgroundSlot* slot = nullptr) : slot_(slot ? *slot : own_slot_) {}
  ~Background() { Stop(); }

  /// Does nothing when it runs already; one that an error ended is started anew. Throws std::system_error where the
  /// kernel grants no thread. Threads: one at a time with Stop().
  void Start();
  /// Joins. In a forked child, which has no such thread, it only forgets it.
  void Stop();

  /// After Remove() returned, no sweep of `task` runs or will run. Threads: any but the thread itself.
  void Add(BackgroundTask* task);
  void Remove(BackgroundTask* task);

  /// Starts a sweep now. One system call. Threads: any.
  void Wake();

  /// Ends the sending of a connection and keeps it until the peer has closed its own end: what the peer still says is
  /// read, or the kernel would answer it by a reset, which takes what is on its way to the peer along. For `kLingerNs`,
  /// ten times that if bytes are still on their way, and at the end of the thread for `kLastLingerMs` at most. Closes at
  /// once where the thread does not run. Threads: any but the thread itself.
  void Linger(Fd fd) noexcept;

 private:
  void Run(const std::stop_token& stop);
  void DropClosed(uint64_t now);
  void LetLast();
  void SetState(abi::BackgroundState state);
  void Died(const char* why);

  struct Lingering {
    Fd fd;
    uint64_t until;
  };

  abi::BackgroundSlot own_slot_{};
  abi::BackgroundSlot& slot_;
  Fd event_;
  int owner_pid_ = 0;
  std::mutex mutex_;  // guards tasks_ and lingering_ and is held during a sweep
  std::vector<BackgroundTask*> tasks_;
  std::vector<Lingering> lingering_;
  std::jthread thread_;
};

}  // namespace weft::net
