#include "planner/jobs/multi_job_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/flows/priority.h"
#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/search.h"
#include "planner/jobs/multi_job_bound.h"
#include "planner/jobs/multi_job_group.h"
#include "planner/jobs/multi_job_reasons.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kWindowSlack = 0.02;     // of the period, that a window is open longer than the pause between bursts

/// Decides one group and writes what was found out.
class GroupPlanner {
 public:
  GroupPlanner(const MultiJobProblem& problem, std::vector<size_t> members, const DecideBudget& budget, MultiJobPlan* plan)
      : problem_(problem), group_(GroupOf(problem, std::move(members))), plan_(plan) {
    for (const RoutableJob& job : situation_.jobs) report_.gpus += job.gpus;
    report_.decision = DecideJobs(situation_, budget);
    report_.trial = MakeTrial(situation_, report_.decision);
    report_.outcome = Judge(report_.trial);
    report_.intensity = CorrectedIntensity(situation_.capacity, report_.trial.jobs);
  }

  void Write() {
    const Decision& decision = report_.decision;
    plan_->complete &= decision.complete;
    if (decision.simulated) plan_->worst_margin = plan_->modelled == 0 ? decision.margin : std::min(plan_->worst_margin, decision.margin);
    plan_->modelled += static_cast<int64_t>(members_.size());
    plan_->gpu_use += report_.outcome.gpu_use * report_.gpus;
    plan_->gpu_use_present += Judge(AsTheyGo()).gpu_use * report_.gpus;
    plan_->gpu_use_default += decision.default_use * report_.gpus;
    for (size_t i = 0; i < members_.size(); ++i) WriteJob(i, &plan_->jobs[members_[i]]);
    FindContenders(members_, report_.trial.jobs, plan_);
    WriteReasons(problem_, members_, report_, plan_);
  }

 private:
  Outcome Judge(const TrialPlan& trial) const {
    return report_.decision.simulated ? Evaluate(situation_, trial, kPlanHorizon) : Estimate(situation_, trial);
  }

  /// What is in force, where nobody decided paths those that a hash picked.
  TrialPlan AsTheyGo() const {
    JobPaths paths;
    for (const RoutableJob& job : situation_.jobs) paths.emplace_back(job.flows.size(), 0);
    TrialPlan plan = InForce(situation_, paths);
    plan.jobs = group_.now;
    return plan;
  }

  void WriteJob(size_t i, MultiJobJobPlan* job) const {
    const PeriodicJob& model = report_.trial.jobs[i];
    const Gate& gate = report_.trial.gates[i];
    job->modelled = true;
    job->group = members_.front();
    job->traffic_class = report_.trial.classes[i];
    if (problem_.options.paths) job->shares = group_.SharesOn(problem_, i, report_.trial.paths[i]);
    job->intensity = report_.intensity[i];
    const double raw = GpuIntensity(situation_.capacity, model);
    job->correction = std::isfinite(raw) && raw > 0 ? report_.intensity[i] / raw : 1;
    job->communication = CommunicationAlone(situation_.capacity, model);
    job->predicted = report_.outcome.slowdown[i] * situation_.alone[i];
    if (!(gate.period.count() > 0)) return;
    job->shifted = true;
    job->shift = Seconds(std::fmod((gate.first - situation_.state->now()).count(), gate.period.count()));
    job->period = gate.period;
    job->window = (report_.decision.pause + kWindowSlack) * gate.period;
    job->burst = job->shift + model.release;
  }

  const MultiJobProblem& problem_;
  const MultiJobGroup group_;
  const std::vector<size_t>& members_ = group_.members;
  const Situation& situation_ = group_.situation;
  GroupReport report_;
  MultiJobPlan* plan_;
};

}  // namespace

MultiJobPlan PlanMultiJob(const MultiJobProblem& problem, const std::stop_token& stop) {
  MultiJobPlan plan;
  plan.jobs.resize(problem.jobs.size());
  for (MultiJobJobPlan& job : plan.jobs) job.traffic_class = problem.options.classes - 1;
  double gpus = 0;
  for (std::vector<size_t>& members : MultiJobGroups(problem)) {
    for (const size_t j : members) gpus += static_cast<double>(std::max<int64_t>(1, problem.jobs[j].gpus));
    const double part = static_cast<double>(members.size()) / static_cast<double>(problem.jobs.size());
    const DecideBudget budget{problem.options.evaluations, static_cast<int64_t>(part * static_cast<double>(problem.options.work)), stop};
    GroupPlanner(problem, std::move(members), budget, &plan).Write();
  }
  if (gpus > 0) {
    for (double* use : {&plan.gpu_use, &plan.gpu_use_present, &plan.gpu_use_default}) *use /= gpus;
  }
  std::vector<bool> modelled;
  for (const MultiJobJobPlan& job : plan.jobs) modelled.push_back(job.modelled);
  if (const Result<MultiJobBound> bound = BoundMultiJob(problem, modelled); bound) {
    plan.gpu_use_bound = bound->gpu_use;
    if (bound->gpu_use > 0) plan.gap = std::max(0.0, 1 - plan.gpu_use / bound->gpu_use);
    for (size_t j = 0; j < plan.jobs.size(); ++j) plan.jobs[j].bound = bound->alone[j];
    if (!bound->tight.empty()) plan.notes.push_back(TightText(*bound));
  } else {
    plan.notes.push_back("no bound: " + bound.error().message());
  }
  AddBoundReasons(problem, &plan);
  return plan;
}

}  // namespace weft::planner::jobs
