#include "netplugin/background.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "netplugin/log.h"

namespace weft::net {

void Background::Start() {
  if (thread_.joinable()) return;
  if (!event_.valid()) event_.Reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  owner_pid_ = getpid();
  // The application's signals are not for a thread that it does not know.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) {
    try {
      Run(stop);
    } catch (...) {
      Log(nccl::kLogWarn, "background thread ended: out of memory; flows keep the lanes and weights they have");
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Background::Stop() {
  if (!thread_.joinable()) return;
  if (getpid() != owner_pid_) {
    thread_.detach();  // not a thread of this process: joining it would hang
    return;
  }
  thread_.request_stop();
  Wake();
  thread_.join();
}

void Background::Add(BackgroundTask* task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(task);
}

void Background::Remove(BackgroundTask* task) {
  const std::lock_guard lock(mutex_);
  std::erase(tasks_, task);
}

void Background::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof one);
}

void Background::Run(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "weft-background");
  std::vector<pollfd> watched;
  uint64_t next_sample = 0;
  while (!stop.stop_requested()) {
    watched.assign(1, {event_.get(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      const uint64_t now = NowNs();
      const Tick tick{now, now >= next_sample};
      if (tick.sample) next_sample = now + kSampleNs;
      for (BackgroundTask* task : tasks_) task->Sweep(tick);
      for (BackgroundTask* task : tasks_) task->Watch(&watched);
    }
    poll(watched.data(), watched.size(), kSweepMs);
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = read(event_.get(), &count, sizeof count);
  }
}

}  // namespace weft::net
