// What the core does about restarts: after every change it has the running jobs looked at, one at a time, and keeps what comes of it.
#include <fmt/format.h>

#include "common/parse_units.h"
#include "controller/core.h"
#include "controller/job_advice.h"

namespace weft::controller {
namespace {

constexpr double kAnswerTimeout = 30;      // seconds

}  // namespace

/// One that has just begun was just planned: it is looked at from the next change on.
bool Core::WantsAdvice(const std::string& job_id, const Job& job) {
  if (!job.submitted || job.state != JobState::kRunning || !CanBeAdvised(job.spec, job.plan)) return false;
  return advice_.try_emplace(job_id, Advice{.fabric = {}, .advice = {}, .looked = changes_, .change = {}}).first->second.looked < changes_;
}

AdviseRestart Core::QuestionOf(const std::string& job_id, const Job& job) const {
  AdviseRestart question{.spec = job.spec, .plan = job.plan, .view = Placement(job_id), .iteration_s = 0, .looked_at = {},
                         .left = LeftOf(job_id, job), .listens = Listens(job_id, job)};
  question.spec.set_model_config_json(job.model_config_json);
  question.plan.clear_operations();
  question.plan.clear_files();
  question.plan.clear_change();
  const auto rhythm = rhythms_.find(job_id);
  if (rhythm != rhythms_.end()) question.iteration_s = rhythm->second.period_s;
  // Rank 0 knows better than bursts on the wire, of which an iteration may have many.
  if (question.listens && listeners_.at(job_id).iteration_s > 0) question.iteration_s = listeners_.at(job_id).iteration_s;
  return question;
}

void Core::MaybeAdvise() {
  std::erase_if(advice_, [&](const auto& one) {
    const Job* job = jobs_.Find(one.first);
    return job == nullptr || job->state == JobState::kReleased;
  });
  if (!advising_.empty() && now_s_ - advising_since_s_ < kAnswerTimeout) return;
  advising_.clear();
  for (const auto& [id, job] : jobs_.jobs()) {
    if (!WantsAdvice(id, job)) continue;
    Advice& advice = advice_[id];
    advice.looked = changes_;
    AdviseRestart question = QuestionOf(id, job);
    question.looked_at = advice.fabric;
    actions_.emplace_back(std::move(question));
    advising_ = id;
    advising_since_s_ = now_s_;
    return;
  }
}

void Core::On(const JobAdvised& event) {
  if (event.job_id != advising_) {
    ++ignored_;
    return;
  }
  advising_.clear();
  const auto known = advice_.find(event.job_id);
  if (known == advice_.end() || event.unchanged) return;
  Advice& advice = known->second;
  const std::string before = advice.advice ? advice.advice->strategy() : "";
  advice.fabric = event.fabric;
  advice.advice = event.advice;
  const bool same = advice.change && event.change && advice.change->strategy() == event.change->strategy();
  if (!same) advice.change_since_s = now_s_;
  advice.change = event.change;
  if (!advice.advice) {
    if (!before.empty()) Decide("advice", event.job_id, fmt::format("no restart is advised any more: {}", event.fabric));
    return;
  }
  advice.advice->set_decided_s(now_s_);
  if (advice.advice->strategy() == before) return;
  Decide("advice", event.job_id,
         fmt::format("restarted as {} an iteration would take {} in place of {}, as {}; a restart of {} pays for itself {} after it",
                     advice.advice->strategy(), FormatDuration(Seconds(advice.advice->iteration_then_s())),
                     FormatDuration(Seconds(advice.advice->iteration_now_s())), event.fabric,
                     FormatDuration(Seconds(advice.advice->restart_s())), FormatDuration(Seconds(advice.advice->pays_after_s()))));
}

}  // namespace weft::controller
