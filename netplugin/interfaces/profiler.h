// The profiler face on one implementation: what NCCL tells about its collectives becomes counters, a ring of finished
// operations and sums of who waited for whom, in the communicator's slot of the telemetry segment.
//
// On the event path nothing is allocated, locked or logged; times are CLOCK_MONOTONIC through the vDSO. An operation's own
// stop only says that it is enqueued: it is over when its last network operation has been, and nobody says which is the
// last. So the background thread takes stock: an operation that was stopped and has had no live child for kQuietNs is
// finished at the moment its last child was. One that never had a child (all inside the node) is given kAloneNs.
//
// What NCCL is asked for (its activation mask) follows the level: the process's own (WEFT_PROFILE), or what the agent wrote
// into the policy segment as long as its lease lasts.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "netplugin/abi/nccl_profiler.h"
#include "netplugin/background.h"
#include "netplugin/interfaces/event_pool.h"
#include "netplugin/policy/policy.h"
#include "netplugin/telemetry/observer.h"

namespace weft::net {

/// The activation mask of a level.
int MaskOf(abi::ProfileLevel level);

/// The level at `now`: the agent's while its lease lasts (at most abi::kLongestLeaseNs ahead), else `own`.
abi::ProfileLevel LevelAt(const abi::PolicyTable& table, abi::ProfileLevel own, uint64_t now);

/// What a descriptor of any version says, as far as it is used.
struct EventStart {
  uint64_t type = 0;        ///< nccl::kEvent…
  uint64_t parent = 0;      ///< handle
  abi::Operation operation = abi::Operation::kPointToPoint;
  uint64_t sequence = 0, bytes = 0;
  uint32_t algorithm = UINT32_MAX, protocol = UINT32_MAX, channels = 0;
  int peer = -1;
  int pid = 0;
  uint64_t gpu_ns = 0;
};

/// Names as NCCL writes them; kPointToPoint and UINT32_MAX for any other text or nullptr.
abi::Operation OperationOf(const char* function);
uint32_t AlgorithmOf(const char* name);
uint32_t ProtocolOf(const char* name);
/// Bytes of an element of NCCL's type, by its name; 1 if unknown.
uint64_t ElementBytes(const char* datatype);
/// By its number, as version 1 of the interface has it.
uint64_t ElementBytes(uint8_t datatype);

class Profiler final : public BackgroundTask {
 public:
  static constexpr uint64_t kQuietNs = 20'000'000;
  static constexpr uint64_t kAloneNs = 1'000'000'000;
  /// So long after its communicator was closed an event that was never stopped is given up: NCCL stops none of an aborted one.
  static constexpr uint64_t kAbandonedNs = 60'000'000'000;

  /// `own`: the level without an agent. All outlive the profiler.
  Profiler(Observer& observer, const PolicyStore& policies, abi::ProfileLevel own)
      : observer_(observer), policies_(policies), own_(own), level_(own) {}

  /// What NCCL holds as a communicator's context.
  struct Context {
    Profiler* profiler;
    /// nullptr: all slots are taken, or the communicator is not named yet.
    std::atomic<abi::CommunicatorSlot*> slot;
    const uint32_t number;              ///< of this process's contexts, from 1
    std::atomic<bool> refused{false};   ///< no slot was free for it
  };

  /// `mask` is NCCL's and outlives every context. Threads: any.
  Context* Open(const CommunicatorIdentity& identity, int* mask);
  /// Of versions 1 to 3, which name a communicator with its events only: Name() is to follow. Those releases number only what is
  /// profiled: for numbers that ranks can compare the level is the process's own for good.
  Context* OpenUnnamed(int* mask);
  /// Gives a context of OpenUnnamed() its slot; nothing where it has one. Threads: any.
  void Name(Context& context, const CommunicatorIdentity& identity);
  void Close(Context* context);

  /// The handle of a new event, or 0: of no interest, or no room. Threads: any.
  uint64_t Start(const Context& context, const EventStart& start, uint64_t now);
  void Stop(uint64_t handle, uint64_t now);
  /// `gpu_ns`: for kStateKernelChStop.
  void State(uint64_t handle, int state, uint64_t gpu_ns, uint64_t now);

  /// Background thread: the level, and what has finished.
  void Sweep(const Tick& tick) override;

 private:
  Context* OpenNext(int* mask);
  uint64_t StartOperation(const Context& context, const EventStart& start, uint64_t now);
  uint64_t StartChild(const Context& context, const EventStart& start, EventKind kind, uint64_t now);
  void StopProxyOp(Event* event, uint64_t now);
  void StopKernel(Event* event, uint64_t now);
  void EndChild(Event* event, uint64_t handle, uint64_t now);
  void Finish(Event* event);
  void GiveUpAbandoned(uint64_t now);
  void SetLevel(abi::ProfileLevel level);

  Observer& observer_;
  const PolicyStore& policies_;
  const abi::ProfileLevel own_;
  EventPool pool_;

  std::mutex mutex_;  // guards the rest; never taken on the event path
  int* mask_ = nullptr;
  int contexts_ = 0;
  bool fixed_ = false;  // a version below 4 is in use
  abi::ProfileLevel level_;
  std::vector<abi::CommunicatorSlot*> open_;
  uint32_t opened_ = 0;
  struct Closed {
    uint32_t context = 0;
    uint64_t seen_ns = 0;  // by the background thread; 0: not yet
  };
  std::vector<Closed> closed_;  // of the last kAbandonedNs
};

/// The faces, for the tables of profiler_v1.cc to profiler_v6.cc.
int OpenProfiler(void** context, int* mask, const CommunicatorIdentity& identity, nccl::Logger logger);
/// Versions 1 to 3, which name no communicator and bring no logger.
int OpenUnnamedProfiler(void** context, int* mask);
/// Says whose events are to come, before the first operation's start. Nothing without a context.
void NameCommunicator(void* context, const CommunicatorIdentity& identity);
int StartProfilerEvent(void* context, void** event, const EventStart& start);
int StopProfilerEvent(void* event);
int RecordProfilerState(void* event, int state, nccl::ProfilerStateArgumentsV4* arguments);
int CloseProfiler(void* context);

}  // namespace weft::net
