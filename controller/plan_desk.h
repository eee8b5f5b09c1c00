// Where calls that plan wait for their turn: a search may take seconds, and the threads on which gRPC brings calls are for all.
// Callers are served in turn, one call each, so that who asks for many plans at once waits for himself.
//
//   PlanDesk desk(2);
//   if (const Status taken = desk.Ask(caller, {.gone = gone, .plan = plan, .answer = answer}); !taken) ...  // too many wait
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/result.h"
#include "proto/job.pb.h"

namespace weft::controller {

/// How many calls may wait.
struct PlanDeskLimits {
  size_t waiting = 256;   ///< in all, the first of a caller aside,
  size_t callers = 256;   ///< for which there is so much room besides
  size_t of_caller = 64;  ///< of one caller: an array of jobs finds room
};

class PlanDesk {
 public:
  struct Call {
    std::stop_token gone;                                             ///< asked to stop when the caller has gone
    std::function<Result<v1::JobPlan>(const std::stop_token&)> plan;  ///< may throw, which is kInternal
    std::function<void(Result<v1::JobPlan>)> answer;                  ///< once, on a thread of the desk; must not throw
  };

  /// Requires: threads > 0.
  explicit PlanDesk(size_t threads, const PlanDeskLimits& limits = {});
  /// Waits for the plans in the making. Requires: none waits.
  ~PlanDesk() = default;
  PlanDesk(const PlanDesk&) = delete;
  PlanDesk& operator=(const PlanDesk&) = delete;

  /// Has `call` planned and answered when its caller's turn comes, those of one caller in the order of asking. A call whose caller
  /// has gone meanwhile is answered with kCancelled and not planned. Errors: kResourceExhausted when too many wait; then it never
  /// is answered. Threads: any. Does not block.
  [[nodiscard]] Status Ask(const std::string& caller, Call call);

 private:
  void Run(const std::stop_token& stop);
  Call TakeNext();  // with mutex_ held; requires that one waits

  const PlanDeskLimits limits_;
  std::mutex mutex_;  // guards what follows, up to the threads
  std::condition_variable_any changed_;
  std::map<std::string, std::deque<Call>> waiting_;  // by caller, none empty
  std::deque<std::string> turns_;                    // the callers in it; the front is next
  size_t count_ = 0;                                 // of the calls in it
  std::vector<std::jthread> threads_;                // the last member: they use the others
};

}  // namespace weft::controller
