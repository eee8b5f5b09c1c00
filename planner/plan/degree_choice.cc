// PlanSearch for a program of which fewer ranks may work than the job has GPUs: one search for each degree of data parallelism
// that divides GPUs and batch, and the fastest plan of all.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "planner/parallelism/divisors.h"
#include "planner/plan/plan_search.h"
#include "planner/plan/reasons.h"

namespace weft::planner {
namespace {

/// Errors: kInvalidArgument for a fixed variable that the program never runs, whatever the others are.
Status CheckRuns(Framework framework, const JobSpec& job, const ClusterSpec& cluster, const FixedVariables& fix) {
  Strategy asked;
  asked.dp = job.gpus;
  for (const auto& [name, value] : fix) FindStrategyVariable(name)->set(asked, value);
  if (const auto why = WhyCannotRun(framework, {job, cluster, asked})) {
    return Fail(Code::kInvalidArgument, fmt::format("fix: {} does not run {}", FrameworkTitle(framework), *why));
  }
  return Ok();
}

/// The fastest first; of plans that tie (a ring and a hierarchy inside a node, say) one, unless only ties are left.
void KeepBest(std::vector<JobPlan>& plans, size_t most) {
  const auto sort = [&] {
    std::ranges::stable_sort(plans, {}, [](const JobPlan& plan) { return plan.predicted.iteration; });
  };
  sort();
  std::vector<JobPlan> kept, ties;
  for (JobPlan& plan : plans) {
    const bool tie = !kept.empty() && plan.predicted.iteration == kept.back().predicted.iteration &&
                     plan.predicted.memory.total() == kept.back().predicted.memory.total();
    (tie ? ties : kept).push_back(std::move(plan));
  }
  kept.insert(kept.end(), std::make_move_iterator(ties.begin()), std::make_move_iterator(ties.end()));
  if (kept.size() > most) kept.resize(most);
  plans = std::move(kept);
  sort();
}

}  // namespace

Status PlanSearch::Impl::AddDegrees(const JobSpec& job, const ClusterSpec& cluster) {
  SetProblem(job, cluster);
  WEFT_RETURN_IF_ERROR(CheckRuns(options_.framework, job_, cluster_, options_.fix));
  PlanOptions own = options_;
  own.advise = false;
  std::vector<int64_t> degrees = Divisors(job_.gpus);
  std::reverse(degrees.begin(), degrees.end());  // ties go to more ranks
  for (const int64_t dp : degrees) {
    if (job_.global_batch % dp != 0 || !Keeps(options_.fix, "dp", dp)) continue;
    auto degree = std::make_unique<Impl>(own);
    WEFT_ASSIGN_OR_RETURN(CostModel model,
                          CostModel::Make(Resized(job_, dp, job_.global_batch), cluster_, Calibration(),
                                          {.framework = own.framework, .cuts = CutsOf(own.framework), .risk = own.risk}));
    degree->Begin(std::move(model), KeptFor(own));
    degree->SetProblem(job_, cluster_);
    programs_.push_back(std::move(degree));
  }
  if (!programs_.empty()) return Ok();
  PlanAnswer none;
  none.infeasible.push_back(fmt::format("batch: dp={} does not divide both the {} GPUs and the {} sequences", options_.fix.at("dp"),
                                        job_.gpus, job_.global_batch));
  Answered(std::move(none));
  return Ok();
}

PlanAnswer PlanSearch::Impl::FastestDegree() {
  std::vector<PlanAnswer> answers;
  for (const auto& degree : programs_) answers.push_back(degree->Finish());
  PlanAnswer answer;
  answer.bound = answer.ideal = Seconds(std::numeric_limits<double>::infinity());
  std::vector<FrontPoint> front;
  const PlanAnswer* refused = &answers.front();
  for (const PlanAnswer& own : answers) {
    answer.strategies += own.strategies;
    answer.evaluated += own.evaluated;
    answer.pruned += own.pruned;
    answer.simulated += own.simulated;
    answer.complete = answer.complete && own.complete;
    if (refused->strategies == 0) refused = &own;  // memory says more than a degree that has nothing legal
    if (own.plans.empty()) continue;
    answer.bound = std::min(answer.bound, own.bound);
    answer.ideal = std::min(answer.ideal, own.ideal);
    answer.plans.insert(answer.plans.end(), own.plans.begin(), own.plans.end());
    front.insert(front.end(), own.front.begin(), own.front.end());
  }
  if (answer.plans.empty()) {
    answer.bound = answer.ideal = Seconds(0);
    answer.infeasible = refused->infeasible;
    return answer;
  }
  KeepBest(answer.plans, static_cast<size_t>(options_.top));
  if (options_.front_slack > 0) answer.front = FrontOf(std::move(front));
  SayDegrees(answers, answer);
  if (options_.advise) Advise(answer);
  return answer;
}

/// Bounds and reasons of several searches as those of one.
void PlanSearch::Impl::SayDegrees(const std::vector<PlanAnswer>& answers, PlanAnswer& answer) const {
  JobPlan& first = answer.plans.front();
  const Seconds least = std::min(answer.bound, first.predicted.iteration);
  for (JobPlan& plan : answer.plans) {
    plan.lower_bound = least;
    plan.gap = plan.predicted.iteration / plan.lower_bound - 1;
    if (&plan != &first) plan.why = {Compared("against the best", plan.predicted.parts, first.predicted.parts)};
  }
  const auto has = [&](const std::unique_ptr<Impl>& degree) { return degree->model_->job().gpus == first.strategy.dp; };
  const auto best = static_cast<size_t>(std::ranges::find_if(programs_, has) - programs_.begin());
  first.why.pop_back();  // the proof of its own search alone
  for (const size_t other : {best + 1, best - 1}) {  // the next with fewer, and with more ranks
    if (other >= answers.size()) continue;
    const std::string what = fmt::format("not dp={}", programs_[other]->model_->job().gpus);
    const auto& plans = answers[other].plans;
    const char* none = answers[other].complete ? ": does not fit" : ": not searched to the end, nothing found";
    first.why.push_back(plans.empty() ? what + none : Compared(what, plans.front().predicted.parts, first.predicted.parts));
  }
  CostModel::Scratch scratch;
  first.why.push_back(Reasons(*programs_[best]->model_, *programs_[best]->space_, scratch, job_.gpus).Proof(answer));
}

}  // namespace weft::planner
