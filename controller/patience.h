// A search that answers with the best until then once it has taken long enough, or nobody waits for it any more.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "common/units.h"

namespace weft::controller {

/// Asks for the end when patience does, or `earlier`.
class Patience {
 public:
  explicit Patience(Seconds patience, const std::stop_token& earlier = {})
      : with_(earlier, [this] { late_.request_stop(); }), timer_([this, patience](const std::stop_token& done) {
          std::mutex mutex;
          std::condition_variable_any never;
          std::unique_lock lock(mutex);
          never.wait_for(lock, done, patience, [] { return false; });
          if (!done.stop_requested()) late_.request_stop();
        }) {}
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  std::stop_token token() const { return late_.get_token(); }

 private:
  std::stop_source late_;
  std::stop_callback<std::function<void()>> with_;
  std::jthread timer_;
};

}  // namespace weft::controller
