#include "planner/plan/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "common/parse_units.h"
#include "planner/plan/reasons.h"

namespace weft::planner {
namespace {

// So many are simulated in any case, if there are.
constexpr size_t kLeastSimulated = 32;
// So many are kept for it. Strategies that differ in name only tie: four for each that the table shows.
constexpr size_t kLeastKept = 1024, kTies = 4;

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

bool Tie(const Estimate& a, const Estimate& b) { return a.iteration == b.iteration && a.memory.total() == b.memory.total(); }

}  // namespace

size_t KeptFor(const PlanOptions& options) { return std::max(kLeastKept, kTies * static_cast<size_t>(options.top)); }

double MeanPeak(const CostModel& model) {
  double peak = 0;
  for (const NodeGroup& group : model.cluster().Groups()) {
    peak += group.device.Peak(model.job().precision).value() * static_cast<double>(group.gpus());
  }
  return peak / static_cast<double>(model.cluster().TotalGpus());
}

void FillRates(const CostModel& model, int64_t gpus, Seconds iteration, Prediction& predicted) {
  const JobSpec& job = model.job();
  predicted.iteration = iteration;
  const double seconds = iteration.count();
  predicted.tokens_per_s = static_cast<double>(job.global_batch) * static_cast<double>(job.sequence) / seconds;
  const double flops = model.model_flops().count() / seconds / static_cast<double>(gpus);
  predicted.tflops_per_gpu = flops / 1e12;
  const double peak = MeanPeak(model);
  predicted.mfu = peak > 0 ? flops / peak : 0;
}

void PlanSearch::Impl::Begin(CostModel model, size_t keep, double most) {
  model_.emplace(std::move(model));
  space_.emplace(*model_, SpaceOptions{.fixed = options_.fix, .allow = options_.allow, .framework = options_.framework});
  search_.emplace(*space_,
                  SearchOptions{.keep = keep,
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
  if (!programs_.empty()) return options_.known_programs ? FastestProgram() : FastestDegree();
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
  const Ranking ranking = Simulate(scratch);
  FillPlans(ranking, answer, scratch);
  // A fixed variable or a framework is one strategy for all layers; that account knows of no measurement.
  const bool compared = options_.fix.empty() && options_.framework == Framework::kAny && !job_.measured_compute;
  if (compared && !model_->cluster().heterogeneous()) {
    answer.layers = CompareLayers(model_->job(), model_->cluster(), answer.plans.front().strategy);
    if (answer.layers) answer.plans.front().why.push_back(DescribeLayers(*answer.layers));
  }
  if (groups_) AddGroups(answer);
  if (options_.advise) Advise(answer);
  FillFront(ranking, answer, scratch);
  return answer;
}

/// The search's front is one of bounds: of its members and of the plans those remain that no other's prediction beats.
void PlanSearch::Impl::FillFront(const Ranking& ranking, PlanAnswer& answer, CostModel::Scratch& scratch) const {
  if (options_.front_slack <= 0) return;
  std::vector<FrontPoint> all;
  for (const Ranking::Candidate& candidate : ranking.candidates) {
    all.push_back({candidate.leaf.strategy, candidate.estimate.iteration, candidate.estimate.memory.total()});
  }
  for (const Search::Found& found : search_->Front()) {
    const Estimate estimate = model_->EvaluateSimulated(found.leaf.strategy, scratch);
    all.push_back({found.leaf.strategy, estimate.iteration, estimate.memory.total()});
  }
  answer.front = FrontOf(std::move(all));
}

std::vector<FrontPoint> PlanSearch::Impl::FrontOf(std::vector<FrontPoint> all) const {
  std::stable_sort(all.begin(), all.end(), [](const FrontPoint& a, const FrontPoint& b) {
    return a.iteration != b.iteration ? a.iteration < b.iteration : a.memory < b.memory;
  });
  const Seconds slowest = all.empty() ? Seconds(0) : all.front().iteration * (1 + options_.front_slack);
  std::vector<FrontPoint> front;
  for (const FrontPoint& point : all) {
    if (point.iteration > slowest) break;
    if (front.empty() || point.memory < front.back().memory) front.push_back(point);
  }
  return front;
}

PlanSearch::Impl::Ranking PlanSearch::Impl::Simulate(CostModel::Scratch& scratch) const {
  const auto& best = search_->Best();  // ascending bounds
  const SearchStatistics& statistics = search_->statistics();
  Ranking ranking;
  // What was not kept is no better than the last that was; a search that was stopped left more.
  ranking.rest = best.size() < search_->options().keep ? search_->options().most : best.back().value;
  if (!statistics.complete()) ranking.rest = std::min(ranking.rest, search_->OpenBound());
  double fastest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < best.size(); ++i) {
    if (i >= kLeastSimulated && best[i].value >= fastest) {
      ranking.rest = std::min(ranking.rest, best[i].value);
      break;
    }
    ranking.candidates.push_back({best[i].leaf, model_->EvaluateSimulated(best[i].leaf.strategy, scratch)});
    fastest = std::min(fastest, ranking.candidates.back().estimate.iteration.count());
  }
  std::stable_sort(ranking.candidates.begin(), ranking.candidates.end(), [](const auto& a, const auto& b) {
    return a.estimate.iteration < b.estimate.iteration;
  });
  ranking.simulated = static_cast<int64_t>(ranking.candidates.size());
  if (Describe(options_.framework).buckets.empty()) return ranking;
  std::set<Strategy> seen;
  std::erase_if(ranking.candidates, [&](const Ranking::Candidate& candidate) {
    Strategy s = candidate.leaf.strategy;
    s.bucket_bytes = Bytes(0);
    return !seen.insert(s).second;
  });
  return ranking;
}

void PlanSearch::Impl::FillPlans(const Ranking& ranking, PlanAnswer& answer, CostModel::Scratch& scratch) const {
  const auto& all = ranking.candidates;
  const size_t wanted = static_cast<size_t>(options_.top);
  answer.simulated = ranking.simulated;
  answer.bound = Seconds(ranking.rest);
  std::optional<size_t> runner_up;
  const auto tie = [&](size_t i) { return i > 0 && Tie(all[i].estimate, all[i - 1].estimate); };
  for (size_t i = 0; i < all.size(); ++i) {
    if (tie(i)) continue;
    if (i > 0 && !runner_up) runner_up = i;
    if (answer.plans.size() < wanted) answer.plans.push_back(MakePlan(all[i], ranking.Bound(), scratch));
  }
  // Where only ties are left they fill the table.
  for (size_t i = 1; i < all.size() && answer.plans.size() < wanted; ++i) {
    if (tie(i)) answer.plans.push_back(MakePlan(all[i], ranking.Bound(), scratch));
  }
  std::stable_sort(answer.plans.begin(), answer.plans.end(), [](const JobPlan& a, const JobPlan& b) {
    return a.predicted.iteration < b.predicted.iteration;
  });
  const Reasons reasons(*model_, *space_, scratch, JobGpus());
  for (size_t i = 0; i < answer.plans.size(); ++i) {
    JobPlan& plan = answer.plans[i];
    plan.why = i == 0 ? reasons.WhyBest(plan) : std::vector<std::string>{reasons.WhyLater(plan, answer.plans.front())};
  }
  JobPlan& first = answer.plans.front();
  for (std::string& line : reasons.Operators(first)) first.why.push_back(std::move(line));
  if (runner_up) first.why.push_back(reasons.WhyRunnerUp(first, all[*runner_up].leaf.strategy));
  for (std::string& line : reasons.Rejected(first)) first.why.push_back(std::move(line));
  first.why.push_back(reasons.Proof(answer));
}

JobPlan PlanSearch::Impl::MakePlan(const Ranking::Candidate& candidate, double bound, CostModel::Scratch& scratch) const {
  JobPlan plan;
  plan.framework = options_.framework;
  plan.strategy = candidate.leaf.strategy;
  const Estimate& estimate = candidate.estimate;
  plan.operators = model_->Operators(plan.strategy, scratch);
  plan.operations = model_->Lower(plan.strategy, scratch);
  plan.communicators = model_->Communicators(plan.strategy, estimate, plan.operations);
  Prediction& predicted = plan.predicted;
  predicted.parts = estimate;
  predicted.exposed_communication = estimate.exposed_communication();
  predicted.bubble = estimate.bubble;
  predicted.memory = estimate.memory;
  predicted.fits = FitProbability(model_->cluster().device, estimate.memory.total());
  FillRates(*model_, JobGpus(), estimate.iteration, predicted);
  plan.lower_bound = Seconds(bound);
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
  FillRates(*model_, JobGpus(), groups_->iteration, plan.predicted);
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
