#include "runtime/execute/streams.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace weft::runtime {

Streams::Streams(size_t streams) : Streams(std::vector<bool>(streams, true)) {}

Streams::Streams(const std::vector<bool>& used) : queues_(used.size()) {
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    threads_.emplace_back([this, i](const std::stop_token& stop) { Work(stop, i); });
  }
}

Streams::~Streams() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

void Streams::Begin(size_t instructions) {
  const std::lock_guard lock(mutex_);
  WEFT_CHECK(under_way_ == 0 || error_, "a step begins before the last one is over");
  over_.assign(instructions, 0);
}

void Streams::Enqueue(size_t stream, int32_t instruction, std::vector<int32_t> after, std::function<Status()> task) {
  {
    const std::lock_guard lock(mutex_);
    queues_[stream].push_back({instruction, std::move(after), std::move(task)});
    ++under_way_;
  }
  changed_.notify_all();
}

bool Streams::Over(const std::vector<int32_t>& instructions) const {
  return std::ranges::all_of(instructions, [&](int32_t i) { return over_[static_cast<size_t>(i)] != 0; });
}

Status Streams::Wait(int32_t instruction) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || over_[static_cast<size_t>(instruction)] != 0; });
  if (error_) return Fail(*error_);
  return Ok();
}

Status Streams::WaitForAll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || under_way_ == 0; });
  if (error_) return Fail(*error_);
  return Ok();
}

void Streams::Work(const std::stop_token& stop, size_t stream) {
  std::unique_lock lock(mutex_);
  std::deque<Task>& queue = queues_[stream];
  const auto ready = [&] { return !queue.empty() && !error_ && Over(queue.front().after); };
  while (changed_.wait(lock, stop, ready) && !stop.stop_requested()) {
    Task task = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    Status status = task.run();
    task.run = nullptr;  // gives back what it held
    lock.lock();
    over_[static_cast<size_t>(task.instruction)] = 1;
    --under_way_;
    if (!status && !error_) error_ = status.error();
    changed_.notify_all();
  }
}

}  // namespace weft::runtime
