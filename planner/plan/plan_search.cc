#include "planner/plan/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/parse_units.h"
#include "planner/plan/reasons.h"

namespace weft::planner {
namespace {

// Strategies that differ in name only tie; so many more are kept that others still fill the table.
constexpr size_t kTies = 4;
constexpr size_t kSpare = 8;

/// Peak of the slowest GPU over the mean of all.
double SlowestPeakShare(const CostModel& model) {
  double sum = 0, least = 1e300;
  for (const NodeGroup& group : model.cluster().Groups()) {
    const double peak = group.device.Peak(model.job().precision).value();
    sum += peak * static_cast<double>(group.gpus());
    least = std::min(least, peak);
  }
  return sum > 0 ? least * static_cast<double>(model.cluster().TotalGpus()) / sum : 1;
}

size_t Kept(const PlanOptions& options) { return kTies * static_cast<size_t>(options.top) + kSpare; }

}  // namespace

void FillRates(const CostModel& model, Seconds iteration, Prediction& predicted) {
  const JobSpec& job = model.job();
  predicted.iteration = iteration;
  const double seconds = iteration.count();
  predicted.tokens_per_s = static_cast<double>(job.global_batch) * static_cast<double>(job.sequence) / seconds;
  const double flops = model.model_flops().count() / seconds / static_cast<double>(job.gpus);
  predicted.tflops_per_gpu = flops / 1e12;
  double peak = 0;  // of all GPUs together
  for (const NodeGroup& group : model.cluster().Groups()) {
    peak += group.device.Peak(job.precision).value() * static_cast<double>(group.gpus());
  }
  peak /= static_cast<double>(model.cluster().TotalGpus());
  predicted.mfu = peak > 0 ? flops / peak : 0;
}

void PlanSearch::Impl::Begin(CostModel model, double most) {
  model_.emplace(std::move(model));
  space_.emplace(*model_, SpaceOptions{.fixed = options_.fix, .framework = options_.framework});
  search_.emplace(*space_,
                  SearchOptions{.keep = Kept(options_),
                                .exhaustive = options_.exhaustive,
                                .front_slack = options_.front_slack,
                                .node_budget = options_.node_budget,
                                .most = most});
}

void PlanSearch::Impl::SetProblem(const JobSpec& job, const ClusterSpec& cluster) {
  job_ = job;
  if (job_.gpus == 0) job_.gpus = cluster.TotalGpus();
  cluster_ = cluster;
}

void PlanSearch::Impl::Work(const std::stop_token& stop) {
  for (const auto& program : programs_) program->Work(stop);
  if (whole_) whole_->Work(stop);
  if (!search_) return;
  CostModel::Scratch scratch;
  search_->Work(scratch, stop);
}

PlanProgress PlanSearch::Impl::Progress() const {
  PlanProgress progress;
  for (const auto& program : programs_) {
    const PlanProgress own = program->Progress();
    progress.evaluated += own.evaluated;
    if (own.best && (!progress.best || *own.best < *progress.best)) progress.best = own.best;
  }
  if (!search_) return progress;
  progress.evaluated = search_->EvaluatedSoFar();
  const double best = search_->BestSoFar();
  if (best < std::numeric_limits<double>::infinity()) progress.best = Seconds(best);
  return progress;
}

PlanAnswer PlanSearch::Impl::Finish() {
  if (answer_) return *answer_;
  if (!programs_.empty()) return FastestProgram();
  PlanAnswer answer;
  const SearchStatistics& statistics = search_->statistics();
  answer.evaluated = statistics.evaluated;
  answer.pruned = statistics.pruned;
  answer.strategies = statistics.evaluated + statistics.pruned + statistics.left;
  answer.complete = statistics.complete();
  CostModel::Scratch scratch;
  if (search_->Best().empty() && groups_) {
    AddGroups(answer);
    return answer;
  }
  if (search_->Best().empty()) {
    answer.infeasible = WhyNothingFits(*model_, *space_, options_, scratch);
    return answer;
  }
  answer.ideal = Seconds(search_->RootBound());
  FillPlans(answer, scratch);
  // A fixed variable or a framework is one strategy for all layers.
  if (options_.fix.empty() && options_.framework == Framework::kAny && !model_->cluster().heterogeneous()) {
    answer.layers = CompareLayers(model_->job(), model_->cluster(), answer.plans.front().strategy);
    if (answer.layers) answer.plans.front().why.push_back(DescribeLayers(*answer.layers));
  }
  if (groups_) AddGroups(answer);
  if (options_.advise) Advise(answer);
  for (const Search::Found& found : search_->Front()) {
    answer.front.push_back({found.leaf.strategy, Seconds(found.value), Bytes(static_cast<int64_t>(found.second))});
  }
  return answer;
}

void PlanSearch::Impl::FillPlans(PlanAnswer& answer, CostModel::Scratch& scratch) const {
  const auto& best = search_->Best();
  const size_t wanted = static_cast<size_t>(options_.top);
  std::optional<size_t> runner_up;
  for (size_t i = 0; i < best.size(); ++i) {
    const bool tie = i > 0 && best[i].value == best[i - 1].value && best[i].second == best[i - 1].second;
    if (tie) continue;
    if (i > 0 && !runner_up) runner_up = i;
    if (answer.plans.size() < wanted) answer.plans.push_back(MakePlan(best[i], scratch));
  }
  // Where only ties are left they fill the table.
  for (size_t i = 1; i < best.size() && answer.plans.size() < wanted; ++i) {
    const bool tie = best[i].value == best[i - 1].value && best[i].second == best[i - 1].second;
    if (tie) answer.plans.push_back(MakePlan(best[i], scratch));
  }
  std::stable_sort(answer.plans.begin(), answer.plans.end(), [](const JobPlan& a, const JobPlan& b) {
    return a.predicted.iteration < b.predicted.iteration;
  });
  const Reasons reasons(*model_, *space_, scratch);
  for (size_t i = 0; i < answer.plans.size(); ++i) {
    JobPlan& plan = answer.plans[i];
    plan.why = i == 0 ? reasons.WhyBest(plan) : std::vector<std::string>{reasons.WhyLater(plan, answer.plans.front())};
  }
  JobPlan& first = answer.plans.front();
  for (std::string& line : reasons.Operators(first)) first.why.push_back(std::move(line));
  if (runner_up) first.why.push_back(reasons.WhyRunnerUp(first, best[*runner_up].leaf.strategy));
  for (std::string& line : reasons.Rejected(first)) first.why.push_back(std::move(line));
  std::vector<Strategy> close;
  for (size_t i = 1; i < best.size(); ++i) close.push_back(best[i].leaf.strategy);
  if (std::string line = reasons.Simulated(first, close); !line.empty()) first.why.push_back(std::move(line));
  first.why.push_back(reasons.Proof(answer));
}

JobPlan PlanSearch::Impl::MakePlan(const Search::Found& found, CostModel::Scratch& scratch) const {
  JobPlan plan;
  plan.framework = options_.framework;
  plan.strategy = found.leaf.strategy;
  const Estimate estimate = model_->Evaluate(plan.strategy, scratch);
  plan.operators = model_->Operators(plan.strategy, scratch);
  plan.communicators = model_->Communicators(plan.strategy, estimate);
  Prediction& predicted = plan.predicted;
  predicted.parts = estimate;
  predicted.exposed_communication = estimate.exposed_communication();
  predicted.bubble = estimate.bubble;
  predicted.memory = estimate.memory;
  predicted.fits = FitProbability(model_->cluster().device, estimate.memory.total());
  FillRates(*model_, estimate.iteration, predicted);
  plan.lower_bound = Seconds(std::min(search_->ProvedBound(), estimate.iteration.count()));
  plan.gap = estimate.iteration / plan.lower_bound - 1;
  return plan;
}

void PlanSearch::Impl::AddGroups(PlanAnswer& answer) const {
  if (!answer.plans.empty() && answer.plans.front().predicted.iteration <= groups_->iteration) {
    answer.plans.front().why.push_back(fmt::format("groups treated differently would not be faster: {}",
                                                   FormatDuration(groups_->iteration)));
    return;
  }
  JobPlan plan;
  plan.groups = groups_->groups;
  plan.strategy = plan.groups.front().strategy;
  FillRates(*model_, groups_->iteration, plan.predicted);
  for (const GroupShare& group : plan.groups) {
    if (group.memory.total() > plan.predicted.memory.total()) plan.predicted.memory = group.memory;
  }
  plan.predicted.fits = FitProbability(model_->cluster().device, plan.predicted.memory.total());
  plan.why = groups_->why;
  // Together the groups are at most as fast as their peaks: scaled from what the slowest machines would need at best.
  const double scale = SlowestPeakShare(*model_);
  plan.lower_bound = Seconds(std::min(search_->RootBound() * scale, groups_->iteration.count()));
  plan.gap = groups_->iteration / plan.lower_bound - 1;
  plan.why.push_back(answer.plans.empty()
                         ? std::string("treated alike, the groups have no plan that fits")
                         : fmt::format("not all groups alike: {} (the slowest machine's pace)",
                                       FormatDuration(answer.plans.front().predicted.iteration)));
  plan.why.push_back("shares are a local optimum, not proved");
  answer.plans.insert(answer.plans.begin(), std::move(plan));
  if (answer.plans.size() > static_cast<size_t>(options_.top)) answer.plans.pop_back();
}

}  // namespace weft::planner
