#include "collectives/burst_sender.h"

#include <algorithm>
#include <utility>

namespace weft::collectives {

BurstSender::BurstSender(size_t bursts, std::function<Status(size_t)> send)
    : send_(std::move(send)), sent_(bursts), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

BurstSender::~BurstSender() = default;

void BurstSender::Begin() {
  const std::lock_guard lock(mutex_);
  released_ = sent_ = 0;
}

void BurstSender::Release(size_t burst) {
  {
    const std::lock_guard lock(mutex_);
    released_ = std::max(released_, burst + 1);
  }
  changed_.notify_all();
}

Status BurstSender::Await(size_t burst) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return sent_ > burst || !status_; });
  return status_;
}

void BurstSender::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return sent_ < released_ && status_.has_value(); })) {
    const size_t burst = sent_;
    lock.unlock();
    Status sent = send_(burst);
    lock.lock();
    if (sent) ++sent_;
    status_ = std::move(sent);
    changed_.notify_all();
  }
}

}  // namespace weft::collectives
