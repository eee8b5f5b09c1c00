// The thread on which all jobs are planned together, so that samples and paths do not wait for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "controller/events.h"

namespace weft::controller {

class MultiJobWorker {
 public:
  /// Called on the worker's thread with every answer.
  using Answer = std::function<void(const JobsPlanned&)>;

  explicit MultiJobWorker(Answer answer);
  /// Waits for a plan in the making; nothing is answered any more once it returns.
  ~MultiJobWorker();
  MultiJobWorker(const MultiJobWorker&) = delete;
  MultiJobWorker& operator=(const MultiJobWorker&) = delete;

  /// Plans `question` next; one that still waits is dropped for it, and one whose answer is in the
  /// making is not planned again. Threads: any. Does not block.
  void Ask(PlanJobs question);

 private:
  void Run(const std::stop_token& stop);

  const Answer answer_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<PlanJobs> waiting_;    // guarded by mutex_
  std::optional<uint64_t> busy_with_;  // digest of the question in the making; guarded by mutex_
  std::jthread thread_;                // the last member: it uses the others
};

}  // namespace weft::controller
