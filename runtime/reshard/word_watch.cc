#include "runtime/reshard/word_watch.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

namespace weft::runtime {
namespace {

constexpr std::chrono::milliseconds kEvery{1000}, kPatience{1000};

}  // namespace

WordWatch::WordWatch(agent::AgentRequest agent, agent::RunningStrategy running)
    : agent_(std::move(agent)), running_(std::move(running)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

std::optional<Word> WordWatch::Newest() const {
  const std::lock_guard lock(mutex_);
  if (!newest_ || newest_->epoch <= running_.epoch) return std::nullopt;
  return newest_;
}

void WordWatch::Tell(agent::RunningStrategy running) {
  const std::lock_guard lock(mutex_);
  running_ = std::move(running);
  news_ = true;
  changed_.notify_all();
}

void WordWatch::Measured(Seconds iteration) {
  const std::lock_guard lock(mutex_);
  running_.iteration_s = iteration.count();
}

void WordWatch::Run(const std::stop_token& stop) {
  bool said = false;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const agent::RunningStrategy running = running_;
    news_ = false;
    lock.unlock();
    const auto environment = agent::TellStrategy(agent_, running, kPatience);
    // An agent that does not know the job yet will hear of it.
    if (!environment && !std::exchange(said, true))
      std::fprintf(stderr, "weft-train: rank 0: no word of other strategies for now: %s\n", environment.error().message().c_str());
    lock.lock();
    if (environment) newest_ = WordOf(*environment);
    changed_.wait_for(lock, stop, kEvery, [this] { return news_; });
  }
}

}  // namespace weft::runtime
