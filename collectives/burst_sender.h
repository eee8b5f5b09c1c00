// The second stream of a replayed iteration: a thread that sends bursts in order while the first one computes.
//
//   BurstSender sender(count, [&](size_t b) { return communicator.AllReduce(part(b)); });
//   sender.Begin();                 // an iteration
//   sender.Release(0);              // burst 0 may be sent
//   sender.Await(0);                // it has been
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>

#include "common/result.h"

namespace weft::collectives {

class BurstSender {
 public:
  /// `send` runs on the sender's own thread, one burst after another; nobody else may use what it uses between Begin() and the
  /// Await() of the last burst.
  BurstSender(size_t bursts, std::function<Status(size_t)> send);
  ~BurstSender();

  /// Requires: all bursts of the iteration before were awaited.
  void Begin();
  /// Bursts up to and with `burst` may be sent.
  void Release(size_t burst);
  /// Until `burst` was sent. Errors: of the first send that failed; after it nothing is sent any more. Requires: released.
  [[nodiscard]] Status Await(size_t burst);

 private:
  void Run(const std::stop_token& stop);

  const std::function<Status(size_t)> send_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  size_t released_ = 0, sent_ = 0;
  Status status_ = Ok();
  std::jthread thread_;  // last: it uses all the others
};

}  // namespace weft::collectives
