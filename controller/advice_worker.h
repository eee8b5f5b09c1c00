// The thread on which running jobs are looked at for a restart, one after another: each is a search of a second or two.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "controller/events.h"

namespace weft::controller {

class AdviceWorker {
 public:
  /// Both called on the worker's thread; what `look` returns goes to `answer`.
  using Look = std::function<JobAdvised(const AdviseRestart&, const std::stop_token&)>;
  using Answer = std::function<void(const JobAdvised&)>;

  AdviceWorker(Look look, Answer answer);
  /// Asks a search in the making to end; nothing is answered any more once it returns.
  ~AdviceWorker();
  AdviceWorker(const AdviceWorker&) = delete;
  AdviceWorker& operator=(const AdviceWorker&) = delete;

  /// One that still waits is dropped for it. Threads: any. Does not block.
  void Ask(AdviseRestart question);

 private:
  void Run(const std::stop_token& stop);

  const Look look_;
  const Answer answer_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<AdviseRestart> waiting_;  // guarded by mutex_
  std::jthread thread_;                   // the last member: it uses the others
};

}  // namespace weft::controller
