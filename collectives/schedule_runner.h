// Executes one Program over open connections: dataflow, slice by slice. Sends and receives of one connection are issued
// in (step, slice) order on both sides, several in flight; sums and copies run as soon as their slice is ready. The
// thread polls round robin, yields when idle, and when idle for long sleeps until something comes, or naps where the
// plugin cannot tell.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/connections.h"
#include "collectives/net_plugin.h"
#include "collectives/program.h"

namespace weft::collectives {

struct RunnerOptions {
  int32_t rank = 0;
  DataType type = DataType::kFloat32;
  ReduceOperation operation = ReduceOperation::kSum;
  Seconds stall_timeout{60};
  Seconds idle_spin{200e-6};
  /// How long a wait past idle_spin usually takes; kept by the caller from run to run. Null: nothing is expected.
  std::chrono::nanoseconds* usual_wait = nullptr;
  /// Asked now and then while idle; its error ends the run.
  std::function<Status()> check_peers;
};

/// The rank's memory for one run, by planner::BufferKind.
struct RunBuffers {
  std::array<std::byte*, 3> base{};
  std::array<size_t, 3> bytes{};
};

/// One run. Requires: all pairs of the program that touch this rank are open.
class ScheduleRunner {
 public:
  ScheduleRunner(const Program& program, const RunBuffers& buffers, NetPlugin& plugin, Connections& connections,
                 const RunnerOptions& options);

  /// Returns when this rank's steps are done. Errors: kUnavailable or kDeadlineExceeded naming the peer, step and
  /// bytes; afterwards requests may be in flight: close the connections before the buffers go.
  [[nodiscard]] Status Run();

  /// Payload handed to the plugin.
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Slice {
    int32_t step;
    int64_t slice;
    size_t bytes;
    void* request;  // null: empty, nothing travels
  };

  /// One direction of one pair: the steps in order, how far they are issued, what is in flight.
  struct Lane {
    int32_t peer;
    bool sends;
    void* comm = nullptr;
    std::array<void*, 3> mhandles{};
    std::vector<int32_t> steps;
    size_t next_step = 0;
    int64_t next_slice = 0;
    std::deque<Slice> flying;
  };

  void AddToLane(int32_t step);
  Status RegisterLanes();
  bool Ready(const ProgramStep& step, int64_t slice) const;
  Result<bool> Issue(Lane* lane);
  Result<bool> Post(Lane* lane, int32_t step, int64_t slice);
  Result<bool> Poll(Lane* lane);
  bool RunLocal();
  void Compute(const ProgramStep& step, int64_t slice) const;
  void Finish(int32_t step);
  void QueueLocal(int32_t step);
  Status Idle();
  void Rest(std::chrono::nanoseconds idle);
  std::chrono::nanoseconds NextNap(std::chrono::nanoseconds idle) const;
  void EndWait();

  int64_t SliceElements(const ProgramStep& step, int64_t slice) const;
  std::byte* At(const Operand& operand, int64_t slice) const;
  std::string Describe(const Lane& lane, int32_t step, size_t bytes) const;
  Error StallError() const;

  // Requests outstanding per connection; every plugin takes as many (v6 no more).
  static constexpr size_t kMaxFlying = 8;

  const Program& program_;
  const RunBuffers buffers_;
  NetPlugin& plugin_;
  Connections& connections_;
  const RunnerOptions options_;
  std::vector<Lane> lanes_;
  std::vector<int64_t> done_;       // slices finished, of each step: always the first ones
  std::deque<int32_t> local_;       // sums and copies with a slice ready
  std::vector<bool> queued_;        // whether the step is in local_
  int64_t remaining_ = 0;           // slices of all steps
  int64_t bytes_sent_ = 0;

  bool idle_ = false;
  std::chrono::steady_clock::time_point idle_since_;
  std::chrono::steady_clock::time_point next_check_;
};

}  // namespace weft::collectives
