#include "runtime/execute/streams.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "runtime/priority.h"

namespace weft::runtime {

Streams::Streams(size_t streams) : Streams(std::vector<bool>(streams, true)) {}

Streams::Streams(const std::vector<bool>& used) : queues_(used.size()) {
  try {
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i]) threads_.emplace_back([this, i] { Work(&queues_[i]); });
    }
  } catch (...) {
    End();  // those that have begun
    throw;
  }
}

Streams::~Streams() { End(); }

void Streams::End() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  for (Queue& queue : queues_) queue.ready.notify_one();
}

void Streams::Begin(size_t instructions) {
  const std::lock_guard lock(mutex_);
  WEFT_CHECK(under_way_ == 0 || error_, "a step begins before the last one is over");
  over_.assign(instructions, 0);
}

void Streams::Enqueue(size_t stream, int32_t instruction, std::vector<int32_t> after, std::function<Status()> task) {
  const std::lock_guard lock(mutex_);
  Queue& queue = queues_[stream];
  queue.tasks.push_back({instruction, std::move(after), std::move(task)});
  ++under_way_;
  if (queue.tasks.size() == 1 && Ready(queue)) queue.ready.notify_one();
}

Status Streams::Wait(int32_t instruction) { return WaitUntilMet(instruction); }

Status Streams::WaitForAll() { return WaitUntilMet(kAll); }

Status Streams::WaitUntilMet(int32_t awaited) {
  std::unique_lock lock(mutex_);
  WEFT_CHECK(awaited_ == kNothing, "one caller waits at a time");
  awaited_ = awaited;
  met_.wait(lock, [&] { return Met(); });
  awaited_ = kNothing;
  if (error_) return Fail(*error_);
  return Ok();
}

/// Whether what the caller waits for is over, or never will be.
bool Streams::Met() const {
  if (awaited_ == kNothing) return false;
  return error_ || (awaited_ == kAll ? under_way_ == 0 : over_[static_cast<size_t>(awaited_)] != 0);
}

/// Whether the first task of a queue may run.
bool Streams::Ready(const Queue& queue) const {
  return !error_ && !queue.tasks.empty() &&
         std::ranges::all_of(queue.tasks.front().after, [&](int32_t i) { return over_[static_cast<size_t>(i)] != 0; });
}

void Streams::WakeThoseReady() {
  for (Queue& queue : queues_) {
    if (Ready(queue)) queue.ready.notify_one();
  }
  if (Met()) met_.notify_one();
}

void Streams::Work(Queue* queue) {
  PreferShortTurns();
  std::unique_lock lock(mutex_);
  while (true) {
    queue->ready.wait(lock, [&] { return ending_ || Ready(*queue); });
    if (ending_) return;
    Task task = std::move(queue->tasks.front());
    queue->tasks.pop_front();
    lock.unlock();
    Status status = task.run();
    task.run = nullptr;  // gives back what it held
    lock.lock();
    over_[static_cast<size_t>(task.instruction)] = 1;
    --under_way_;
    if (!status && !error_) error_ = status.error();
    WakeThoseReady();
  }
}

}  // namespace weft::runtime
