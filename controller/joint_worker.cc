#include "controller/joint_worker.h"

#include <utility>

namespace weft::controller {

JointWorker::JointWorker(Answer answer)
    : answer_(std::move(answer)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

JointWorker::~JointWorker() = default;

void JointWorker::Ask(PlanJobs question) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = std::move(question);
  }
  changed_.notify_all();
}

void JointWorker::Run(const std::stop_token& stop) {
  for (;;) {
    PlanJobs question;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return waiting_.has_value(); })) return;
      question = *std::exchange(waiting_, std::nullopt);
    }
    auto plan = std::make_shared<const planner::JointPlan>(planner::PlanJointly(*question.problem));
    if (stop.stop_requested()) return;
    answer_({question.digest, std::move(plan)});
  }
}

}  // namespace weft::controller
