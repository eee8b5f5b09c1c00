// What the core does about restarts: after every change it has the running jobs looked at, one at a time, and keeps what comes of it.
#include <fmt/format.h>

#include <cmath>

#include "common/parse_units.h"
#include "controller/core.h"
#include "controller/job_advice.h"

namespace weft::controller {
namespace {

constexpr double kAnswerTimeout = 30;      // seconds
constexpr double kLookAgain = 5;           // seconds
constexpr double kOtherIteration = 0.25;   // relative change, from which on what pays is another question

}  // namespace

/// What an iteration takes may follow a change of its links by some iterations: a look that came before knew only what it took until then.
bool Core::IterationChanged(const std::string& job_id, const Job& job, const Advice& advice) const {
  const double now = IterationOf(job_id, job);
  return now > 0 && now_s_ - advice.looked_s >= kLookAgain && std::abs(now - advice.iteration_s) > kOtherIteration * advice.iteration_s;
}

/// One that has just begun was just planned: it is looked at from the next change on.
bool Core::WantsAdvice(const std::string& job_id, const Job& job) {
  if (!job.submitted || job.state != JobState::kRunning || !CanBeAdvised(job.spec, job.plan)) return false;
  const auto [known, began] = advice_.try_emplace(job_id, Advice{.fabric = {}, .advice = {}, .looked = changes_, .change = {}});
  const Advice& advice = known->second;
  return !began && (advice.looked < changes_ || (!advice.fabric.empty() && IterationChanged(job_id, job, advice)));
}

double Core::SaidByRank0(const std::string& job_id, const Job& job) const {
  return Listens(job_id, job) ? listeners_.at(job_id).iteration_s : 0;
}

/// 0: not known.
double Core::IterationOf(const std::string& job_id, const Job& job) const {
  // Rank 0 knows better than bursts on the wire, of which an iteration may have many.
  if (const double said = SaidByRank0(job_id, job); said > 0) return said;
  const auto rhythm = rhythms_.find(job_id);
  return rhythm == rhythms_.end() ? 0 : rhythm->second.period_s;
}

AdviseRestart Core::QuestionOf(const std::string& job_id, const Job& job) const {
  AdviseRestart question{.spec = job.spec, .plan = job.plan, .view = Placement(job_id), .iteration_s = IterationOf(job_id, job), .looked_at = {},
                         .left = LeftOf(job_id, job), .listens = Listens(job_id, job)};
  question.spec.set_model_config_json(job.model_config_json);
  question.plan.clear_operations();
  question.plan.clear_files();
  question.plan.clear_change();
  return question;
}

std::map<std::pair<std::string, std::string>, double> Core::MeasuredIterations() const {
  std::map<std::string, double> carried;   // per period, by all flows of a job, whoever says that they are its
  for (const auto& [id, flow] : table_.flows()) {
    if (flow.meter.known) carried[flow.identity.job_id()] += flow.meter.bytes_each;
  }
  std::map<std::pair<std::string, std::string>, double> iterations;
  for (const auto& [id, job] : jobs_.jobs()) {
    if (!job.submitted || job.state != JobState::kRunning || !job.plan.has_strategy() || job.model_config_json.empty()) continue;
    const auto framework = planner::ParseFramework(job.spec.framework());
    double planned = 0;
    for (const auto& [ends, bytes] : job.planned_traffic) planned += bytes;
    const bool as_planned = framework && *framework != planner::Framework::kAny && planned > 0 && carried[id] > 0.75 * planned && carried[id] < 1.33 * planned;
    const double iteration_s = as_planned ? IterationOf(id, job) : SaidByRank0(id, job);
    if (iteration_s > 0) iterations[{id, job.plan.strategy().text()}] = iteration_s;
  }
  return iterations;
}

std::optional<AdviseRestart> Core::RunningJob(const std::string& job_id) const {
  const Job* job = jobs_.Find(job_id);
  if (job == nullptr || !MeasuredIterations().contains({job_id, job->plan.strategy().text()})) return std::nullopt;
  return QuestionOf(job_id, *job);
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
    AdviseRestart question = QuestionOf(id, job);
    if (!IterationChanged(id, job, advice)) question.looked_at = advice.fabric;
    advice.looked = changes_;
    advice.looked_s = now_s_;
    advice.iteration_s = question.iteration_s;
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
