// A thread that answers the newest question, so that the core's events do not wait for it.
//
//   Worker<PlanPaths, PathsPlanned> worker(plan, tell);
//   worker.Ask(question);     // tell(plan(question, stop)) on the worker's thread
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace weft::controller {

template <typename Question, typename Answer>
class Worker {
 public:
  /// Both called on the worker's thread; what `work` returns goes to `tell`.
  using Work = std::function<Answer(const Question&, const std::stop_token&)>;
  using Tell = std::function<void(const Answer&)>;

  Worker(Work work, Tell tell)
      : work_(std::move(work)), tell_(std::move(tell)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}
  /// Asks work in the making to end and waits for it; nothing is told any more once it returns.
  ~Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// One that still waits is dropped for it. Threads: any. Does not block.
  void Ask(Question question) {
    {
      const std::lock_guard lock(mutex_);
      waiting_ = std::move(question);
    }
    changed_.notify_all();
  }
  /// Likewise, and work in the making is asked to end; its answer is not told.
  void AskInstead(Question question) {
    {
      const std::lock_guard lock(mutex_);
      making_.request_stop();
      waiting_ = std::move(question);
    }
    changed_.notify_all();
  }

 private:
  void Run(const std::stop_token& stop) {
    for (;;) {
      std::optional<Question> question;
      std::stop_source making;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return waiting_.has_value(); })) return;
        question = std::exchange(waiting_, std::nullopt);
        making_ = making;
      }
      const std::stop_callback end(stop, [&making] { making.request_stop(); });
      const Answer answer = work_(*question, making.get_token());
      if (stop.stop_requested()) return;
      if (!making.stop_requested()) tell_(answer);
    }
  }

  const Work work_;
  const Tell tell_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Question> waiting_;    // guarded by mutex_, as is
  std::stop_source making_;            // that of the question that is worked on, or was last
  std::jthread thread_;                // the last member: it uses the others
};

}  // namespace weft::controller
