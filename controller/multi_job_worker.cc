#include "controller/multi_job_worker.h"

#include <utility>

namespace weft::controller {

MultiJobWorker::MultiJobWorker(Answer answer)
    : answer_(std::move(answer)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

MultiJobWorker::~MultiJobWorker() = default;

void MultiJobWorker::Ask(PlanJobs question) {
  {
    const std::lock_guard lock(mutex_);
    if (busy_with_ == question.digest) {
      waiting_.reset();
      return;
    }
    waiting_ = std::move(question);
  }
  changed_.notify_all();
}

void MultiJobWorker::Run(const std::stop_token& stop) {
  for (;;) {
    PlanJobs question;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return waiting_.has_value(); })) return;
      question = *std::exchange(waiting_, std::nullopt);
      busy_with_ = question.digest;
    }
    auto plan = std::make_shared<const planner::MultiJobPlan>(planner::PlanMultiJob(*question.problem, stop));
    if (stop.stop_requested()) return;
    {
      const std::lock_guard lock(mutex_);
      busy_with_.reset();
    }
    answer_({question.digest, std::move(plan)});
  }
}

}  // namespace weft::controller
