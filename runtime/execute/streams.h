// One thread per communicator, each with a queue in the order of the list: what overlaps computation, and what overlaps other
// communication. A task waits for earlier instructions, then runs; whoever needs it waits for its number. No torch here.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/result.h"

namespace weft::runtime {

/// Threads: all calls from one, but for the tasks themselves.
class Streams {
 public:
  explicit Streams(size_t streams);
  /// With a thread only where `used`: nothing may be enqueued on the others.
  explicit Streams(const std::vector<bool>& used);
  /// Ends after the tasks under way.
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// A step of so many instructions begins: none is over. Requires: all tasks of the step before are.
  void Begin(size_t instructions);
  /// Runs `task` on a stream once the instructions `after` are over. Requires: those were begun before.
  void Enqueue(size_t stream, int32_t instruction, std::vector<int32_t> after, std::function<Status()> task);
  /// Blocks until an instruction that was enqueued is over. Errors: those of any task so far.
  [[nodiscard]] Status Wait(int32_t instruction);
  /// The same for all.
  [[nodiscard]] Status WaitForAll();

 private:
  struct Task {
    int32_t instruction;
    std::vector<int32_t> after;
    std::function<Status()> run;
  };

  struct Queue {
    std::condition_variable ready;
    std::deque<Task> tasks;
  };
  static constexpr int32_t kNothing = -2, kAll = -1;

  void Work(Queue* queue);
  void End();
  bool Ready(const Queue& queue) const;
  bool Met() const;
  Status WaitUntilMet(int32_t awaited);
  void WakeThoseReady();

  // With more ranks than cores, needless wake-ups cost much of the processors' time: each waiter has a condition of its own.
  std::mutex mutex_;
  std::condition_variable met_;
  std::vector<Queue> queues_;             // by stream
  std::vector<uint8_t> over_;             // by instruction
  size_t under_way_ = 0;                  // queued or running
  int32_t awaited_ = kNothing;            // by the caller: an instruction, kAll
  bool ending_ = false;
  std::optional<Error> error_;
  std::vector<std::jthread> threads_;  // last: they use the rest
};

}  // namespace weft::runtime
