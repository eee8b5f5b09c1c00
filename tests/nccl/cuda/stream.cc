#include "tests/nccl/cuda/stream.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace weft::cuda_stand_in {

uint64_t Event::Record() {
  const std::lock_guard lock(mutex_);
  return ++recorded_;
}

uint64_t Event::recorded() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

void Event::Reach(uint64_t record) {
  {
    const std::lock_guard lock(mutex_);
    reached_ = std::max(reached_, record);
  }
  changed_.notify_all();
}

void Event::Wait(uint64_t record) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached_ >= record; });
}

bool Event::reached() const {
  const std::lock_guard lock(mutex_);
  return reached_ >= recorded_;
}

struct Stream::State {
  std::mutex mutex;
  std::condition_variable added, done;
  std::deque<std::function<void()>> tasks;
  uint64_t taken_in = 0, finished = 0;
  bool started = false, ended = false;
};

namespace {
std::atomic<uint64_t> next_id{16};  // small numbers are CUDA's names of its default streams
}

Stream::Stream() : state_(std::make_shared<State>()), id_(next_id++) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->added.notify_all();
}

void Stream::Add(std::function<void()> task) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
    ++state_->taken_in;
    if (!state_->started) {
      state_->started = true;
      std::thread(Run, state_).detach();
    }
  }
  state_->added.notify_one();
}

void Stream::Synchronize() {
  std::unique_lock lock(state_->mutex);
  const uint64_t until = state_->taken_in;
  state_->done.wait(lock, [&] { return state_->finished >= until; });
}

bool Stream::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->finished == state_->taken_in;
}

void Stream::Run(const std::shared_ptr<State>& state) {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(state->mutex);
      state->added.wait(lock, [&] { return !state->tasks.empty() || state->ended; });
      if (state->tasks.empty()) return;
      task = std::move(state->tasks.front());
      state->tasks.pop_front();
    }
    task();
    {
      const std::lock_guard lock(state->mutex);
      ++state->finished;
    }
    state->done.notify_all();
  }
}

}  // namespace weft::cuda_stand_in
