// Where calls that plan wait for their turn: a search may take seconds, and the threads on which gRPC brings calls are for all.
//
//   PlanDesk desk(2, 64);
//   if (!desk.Ask([=] { reactor->Plan(); })) ...  // as many wait as may
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::controller {

class PlanDesk {
 public:
  using Work = std::function<void()>;

  /// Requires: threads > 0.
  PlanDesk(size_t threads, size_t most_waiting) : most_waiting_(most_waiting) {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { Run(stop); });
  }
  /// Waits for the work in the making. Requires: none waits.
  ~PlanDesk() = default;
  PlanDesk(const PlanDesk&) = delete;
  PlanDesk& operator=(const PlanDesk&) = delete;

  /// Has `work` done on a thread of the desk, in the order of asking; false: as many wait as may, and it never will be.
  /// Threads: any. Does not block.
  [[nodiscard]] bool Ask(Work work) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.size() >= most_waiting_) return false;
      waiting_.push_back(std::move(work));
    }
    changed_.notify_one();
    return true;
  }

 private:
  void Run(const std::stop_token& stop) {
    for (;;) {
      Work work;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) return;
        work = std::move(waiting_.front());
        waiting_.pop_front();
      }
      work();
    }
  }

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Work> waiting_;           // guarded by mutex_
  std::vector<std::jthread> threads_;  // the last member: they use the others
};

}  // namespace weft::controller
