// PlanSearch over several programs: which one's best plan is the fastest, what the others and the whole space would give, and
// which number of GPUs or batch near the job's is faster.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/parse_units.h"
#include "planner/plan/plan_search.h"
#include "planner/plan/reasons.h"

namespace weft::planner {
namespace {

/// The largest 2^k · odd that is at most n; 0 if there is none.
int64_t RoundedDown(int64_t n, int64_t odd) {
  if (odd > n) return 0;
  int64_t value = odd;
  while (value * 2 <= n) value *= 2;
  return value;
}

// Simulated of searches beside the one that was asked for: their answers are sentences, which say if nothing is proved.
constexpr size_t kKeptBeside = 64;

bool PowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/// The largest power of two that divides n.
int64_t TwosIn(int64_t n) { return n & -n; }

}  // namespace

std::optional<JobPlan> PlanSearch::Impl::FastestSimulated() const {
  if (search_->Best().empty()) return std::nullopt;
  CostModel::Scratch scratch;
  const Ranking ranking = Simulate(scratch);
  return MakePlan(ranking.candidates.front(), ranking.Bound(), scratch);
}

/// The fastest strategy that `rules` allow, priced as `prices`, if it takes at most `most` seconds; `bound`: none takes less.
std::optional<JobPlan> PlanSearch::Impl::FasterThan(const JobSpec& job, Framework rules, Framework prices, double most,
                                                          Seconds* bound) const {
  PlanOptions options = options_;
  options.known_programs = options.advise = options.exhaustive = false;
  options.framework = rules;
  options.top = 1;
  options.front_slack = 0;
  Impl search(options);
  Result<CostModel> model = CostModel::Make(
      job, cluster_, Calibration(), {.framework = prices, .cuts = CutsOf(rules), .risk = options.risk});
  if (!model) return std::nullopt;
  search.Begin(std::move(*model), kKeptBeside, most);
  search.Work({});
  std::optional<JobPlan> plan = search.FastestSimulated();
  if (bound != nullptr) *bound = plan ? plan->lower_bound : Seconds(most);
  if (plan && plan->predicted.iteration.count() > most) return std::nullopt;
  return plan;
}

/// The same of the program that was asked for, or of all that are known.
std::optional<JobPlan> PlanSearch::Impl::FasterWithPrograms(const JobSpec& job, Framework framework, double most) const {
  if (!options_.known_programs) return FasterThan(job, framework, framework, most);
  std::optional<JobPlan> best;
  for (const Framework known : KnownFrameworks()) {
    auto plan = FasterThan(job, known, known, most);
    if (!plan) continue;
    most = plan->predicted.iteration.count();
    best = std::move(plan);
  }
  return best;
}

PlanAnswer PlanSearch::Impl::FastestProgram() {
  std::vector<PlanAnswer> answers;
  std::optional<size_t> best;
  for (const auto& program : programs_) {
    answers.push_back(program->Finish());
    const PlanAnswer& own = answers.back();
    if (own.plans.empty()) continue;
    const bool faster =
        !best || own.plans.front().predicted.iteration < answers[*best].plans.front().predicted.iteration;
    if (faster) best = answers.size() - 1;
  }
  if (!best) {
    PlanOptions whole = options_;
    whole.known_programs = false;
    auto impl = Make(job_, cluster_, whole);
    if (!impl) return answers.front();
    (*impl)->Work({});
    PlanAnswer answer = (*impl)->Finish();
    std::string why = "no known program runs this:";
    for (size_t i = 0; i < answers.size(); ++i) {
      const auto& reasons = answers[i].infeasible;
      why += fmt::format(" {}: {};", FrameworkTitle(KnownFrameworks()[i]), reasons.empty() ? "no plan" : reasons.front());
    }
    why.pop_back();
    if (answer.plans.empty()) {
      answer.infeasible.push_back(why);
      return answer;
    }
    answer.plans.front().why.insert(answer.plans.front().why.begin(), why + "; this is the best of the whole space");
    return answer;
  }
  PlanAnswer answer = answers[*best];
  for (size_t i = 0; i < answers.size(); ++i) {
    if (i == *best) continue;
    answer.strategies += answers[i].strategies;
    answer.evaluated += answers[i].evaluated;
    answer.pruned += answers[i].pruned;
    answer.simulated += answers[i].simulated;
    if (!answers[i].plans.empty()) answer.bound = std::min(answer.bound, answers[i].bound);
    answer.complete = answer.complete && answers[i].complete;
  }
  for (JobPlan& plan : answer.plans) {  // of all programs, not of its own alone
    plan.lower_bound = std::min(plan.lower_bound, answer.bound);
    plan.gap = plan.predicted.iteration / plan.lower_bound - 1;
  }
  SayOthers(answers, *best, answer);
  SayWholeSpace(answer);
  if (options_.advise) Advise(answer);
  return answer;
}

void PlanSearch::Impl::SayOthers(const std::vector<PlanAnswer>& answers, size_t best, PlanAnswer& answer) const {
  JobPlan& first = answer.plans.front();
  std::string others;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (i == best) continue;
    const std::string title = FrameworkTitle(KnownFrameworks()[i]);
    if (answers[i].plans.empty()) {
      others += fmt::format("; {}: {}", title, answers[i].infeasible.empty() ? "no plan" : answers[i].infeasible.front());
      continue;
    }
    const JobPlan& other = answers[i].plans.front();
    others += fmt::format("; {}: {} ({:+.1f} %) with {}", title, FormatDuration(other.predicted.iteration),
                          100 * (other.predicted.iteration / first.predicted.iteration - 1), DescribeStrategy(other.strategy));
  }
  first.why.push_back(fmt::format("of Megatron-LM, torchtitan and DeepSpeed, {} is predicted the fastest{}",
                                  FrameworkTitle(first.framework), others));
}

Status PlanSearch::Impl::AddWholeSpace() {
  PlanOptions options = options_;
  options.known_programs = options.advise = options.exhaustive = false;
  options.framework = Framework::kAny;
  options.top = 1;
  options.front_slack = 0;
  whole_ = std::make_unique<Impl>(options);
  WEFT_ASSIGN_OR_RETURN(CostModel model, CostModel::Make(job_, cluster_, Calibration(), {.risk = options.risk}));
  whole_->Begin(std::move(model), kKeptBeside);
  return Ok();
}

void PlanSearch::Impl::SayWholeSpace(PlanAnswer& answer) const {
  JobPlan& first = answer.plans.front();
  const double time = first.predicted.iteration.count();
  std::optional<JobPlan> whole;
  Seconds bound = first.predicted.iteration;
  if (Describe(first.framework).stack == Describe(Framework::kAny).stack) {
    whole = whole_->FastestSimulated();
    if (whole) bound = whole->lower_bound;
  } else {  // priced as the program that was chosen
    whole = FasterThan(job_, Framework::kAny, first.framework, time, &bound);
  }
  const bool proved = whole_->search_->statistics().complete() && bound.count() >= time * (1 - 1e-3);
  std::string line = proved ? "the whole space, whatever runs it (--framework any), has nothing faster"
                            : "the whole space, whatever runs it (--framework any): nothing faster was found, and none is ruled out";
  if (whole && whole->predicted.iteration.count() < time * (1 - 1e-3)) {
    line = fmt::format("the whole space, whatever runs it (--framework any), would give {} ({:+.1f} %) with {}",
                       FormatDuration(whole->predicted.iteration), 100 * (whole->predicted.iteration.count() / time - 1),
                       DescribeStrategy(whole->strategy));
  }
  first.why.push_back(line);
  if (!cluster_.heterogeneous() || job_.gpus != cluster_.TotalGpus()) return;
  const auto groups = PlanGroups(job_, cluster_, options_);
  if (groups && *groups && (*groups)->iteration.count() < time) {
    first.why.push_back(fmt::format("groups of machines treated differently would give {} ({:+.1f} %): --framework any shows it; no "
                                    "program takes one strategy per group", FormatDuration((*groups)->iteration),
                                    100 * ((*groups)->iteration.count() / time - 1)));
  }
}

void PlanSearch::Impl::Advise(PlanAnswer& answer) const {
  if (answer.plans.empty() || !answer.plans.front().groups.empty()) return;
  // Powers of two divide as they should: no other size is searched then.
  const bool even_gpus = PowerOfTwo(job_.gpus), even_batch = even_gpus && TwosIn(job_.global_batch) >= std::min<int64_t>(job_.gpus, 64);
  JobPlan& first = answer.plans.front();
  const double time = first.predicted.iteration.count();
  const Framework framework = first.framework;
  const int64_t host = cluster_.GpusPerHost();
  std::set<int64_t> sizes;
  if (!even_gpus) {
    for (const int64_t odd : {1, 3, 5, 9}) sizes.insert(RoundedDown(job_.gpus, odd));
    sizes.insert(job_.gpus - host);
  }
  std::optional<std::pair<int64_t, double>> fewer;
  Framework program = framework;
  for (const int64_t gpus : sizes) {
    if (gpus < 1 || gpus >= job_.gpus || 2 * gpus < job_.gpus || (gpus > host && gpus % host != 0)) continue;
    const JobSpec job = Resized(job_, gpus, job_.global_batch);
    const auto plan = FasterWithPrograms(job, framework, fewer ? fewer->second : time * (1 - 1e-3));
    if (!plan) continue;
    fewer = {gpus, plan->predicted.iteration.count()};
    program = plan->framework;
  }
  if (fewer) {
    first.why.push_back(fmt::format("fewer GPUs are faster: --gpus {} is predicted to take {} ({:+.1f} %){}", fewer->first,
                                    FormatDuration(Seconds(fewer->second)), 100 * (fewer->second / time - 1),
                                    program == framework ? "" : " with " + FrameworkTitle(program)));
  }
  if (even_batch) return;
  // Batches that the GPUs divide, or that they come close to.
  std::set<int64_t> batches = {(job_.global_batch + job_.gpus - 1) / job_.gpus * job_.gpus, job_.global_batch / job_.gpus * job_.gpus,
                               RoundedDown(job_.global_batch, 1), 2 * RoundedDown(job_.global_batch, 1),
                               RoundedDown(job_.global_batch, 3)};
  const auto batch = static_cast<double>(job_.global_batch);
  double least = 0.97 * time / batch;  // seconds per sequence
  int64_t better = 0;
  for (const int64_t other : batches) {
    if (other < 1 || other == job_.global_batch || std::abs(static_cast<double>(other) / batch - 1) > 0.25) continue;
    const JobSpec job = Resized(job_, job_.gpus, other);
    const auto plan = FasterWithPrograms(job, framework, least * static_cast<double>(other));
    if (!plan) continue;
    least = plan->predicted.iteration.count() / static_cast<double>(other);
    better = other;
  }
  if (better > 0) {
    first.why.push_back(fmt::format("another batch uses the GPUs better: --global-batch {} is predicted to train {:.1f} % more tokens "
                                    "per second", better, 100 * (time / batch / least - 1)));
  }
}

}  // namespace weft::planner
