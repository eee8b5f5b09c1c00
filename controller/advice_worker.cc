#include "controller/advice_worker.h"

#include <utility>

namespace weft::controller {

AdviceWorker::AdviceWorker(Look look, Answer answer)
    : look_(std::move(look)), answer_(std::move(answer)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

AdviceWorker::~AdviceWorker() = default;

void AdviceWorker::Ask(AdviseRestart question) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = std::move(question);
  }
  changed_.notify_all();
}

void AdviceWorker::Run(const std::stop_token& stop) {
  for (;;) {
    AdviseRestart question;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return waiting_.has_value(); })) return;
      question = *std::exchange(waiting_, std::nullopt);
    }
    const JobAdvised answer = look_(question, stop);
    if (stop.stop_requested()) return;
    answer_(answer);
  }
}

}  // namespace weft::controller
