#include "netplugin/background.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>

#include "netplugin/log.h"

namespace weft::net {

namespace {

int UnackedBytes(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

/// The application's signals are not for a thread that it does not know: those started in this scope block them all.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

// Relaxed: the agent reads it as one word, and Start() and Stop() are ordered with the thread by its start and join.
void Background::SetState(abi::BackgroundState state) {
  slot_.state.store(static_cast<uint32_t>(state), std::memory_order_relaxed);
}

void Background::Start() {
  if (thread_.joinable() && getpid() != owner_pid_) {
    thread_.detach();  // of the process that this one was forked from, as in Stop()
  } else if (thread_.joinable()) {
    if (slot_.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(abi::BackgroundState::kRuns)) return;
    thread_.join();
  }
  if (!event_.valid()) event_.Reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  owner_pid_ = getpid();
  SetState(abi::BackgroundState::kRuns);
  try {
    const SignalsBlocked blocked;
    thread_ = std::jthread([this](const std::stop_token& stop) {
      try {
        Run(stop);
      } catch (const std::exception& error) {
        Died(error.what());
      } catch (...) {
        Died("unknown error");
      }
    });
  } catch (...) {
    SetState(abi::BackgroundState::kFailed);
    throw;
  }
}

void Background::Died(const char* why) {
  SetState(abi::BackgroundState::kFailed);
  Log(nccl::kLogWarn, "background thread ended: %s; flows keep the lanes and weights they have", why);
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
  LetLast();
  SetState(abi::BackgroundState::kNone);
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

void Background::Linger(Fd fd) noexcept try {
  if (getpid() != owner_pid_) return;  // the parent's connection too: its end is not ours to say
  const std::lock_guard lock(mutex_);
  shutdown(fd.get(), SHUT_WR);
  if (slot_.state.load(std::memory_order_relaxed) != static_cast<uint32_t>(abi::BackgroundState::kRuns)) return;
  lingering_.push_back({std::move(fd), NowNs() + kLingerNs});
} catch (...) {
  // No memory: it is closed at once.
}

void Background::DropClosed(uint64_t now) {
  std::erase_if(lingering_, [now](const Lingering& lingering) {
    char ignored[4096];
    ssize_t got = 1;
    for (int reads = 0; got > 0 && reads < 4; ++reads) {
      got = recv(lingering.fd.get(), ignored, sizeof ignored, MSG_DONTWAIT);
    }
    if (got > 0) return now >= lingering.until + 9 * kLingerNs;  // there is more
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return true;
    return now >= lingering.until && (UnackedBytes(lingering.fd.get()) == 0 || now >= lingering.until + 9 * kLingerNs);
  });
}

/// At the end: what is on its way gets there.
void Background::LetLast() {
  const std::lock_guard lock(mutex_);
  const auto on_its_way = [](const Lingering& lingering) { return UnackedBytes(lingering.fd.get()) > 0; };
  for (int ms = 0; ms < kLastLingerMs && std::ranges::any_of(lingering_, on_its_way); ++ms) {
    DropClosed(NowNs());
    poll(nullptr, 0, 1);
  }
  lingering_.clear();
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
      slot_.swept_ns.store(now, std::memory_order_relaxed);
      for (BackgroundTask* task : tasks_) task->Sweep(tick);
      if (!lingering_.empty()) DropClosed(now);
      for (BackgroundTask* task : tasks_) task->Watch(&watched);
    }
    poll(watched.data(), watched.size(), kSweepMs);
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = read(event_.get(), &count, sizeof count);
  }
}

}  // namespace weft::net
