#include "planner/jobs/decide/search.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace weft::planner::inline jobs {
namespace {

constexpr double kGain = 1e-6;
constexpr double kUntouched = 1.0005;        // slow-downs below which nothing is left to gain
constexpr double kRounding = 1e-9;
constexpr double kWorthAnnealing = 200;      // moves
constexpr double kFirstTemperature = 0.2;   // of the score
constexpr size_t kRemembered = 12;            // finalists
constexpr int kConfirmEvery = 25;             // plans taken while annealing
constexpr double kPaces[] = {1, 1.02, 1.05, 1.1, 1.2};

}  // namespace

std::vector<Gate> Paced(const Situation& situation, std::vector<Gate> gates, double factor) {
  for (Gate& gate : gates) {
    gate.slack += gate.period * (factor - 1);
    gate.period *= factor;
    gate.first = situation.state->now() + (gate.first - situation.state->now()) * factor;
  }
  return gates;
}

ScoreWeights WeightsFor(SimulationObjective objective) {
  // Slow-downs break ties where GPU use is all that counts.
  if (objective == SimulationObjective::kGpuUse) {
    return {.gpu_use = 1, .mean_slowdown = 0.01, .p99_slowdown = 0, .loss = 1};
  }
  return {};
}

double ScoreOf(const ScoreWeights& weights, const Outcome& outcome, const Outcome& reference) {
  const auto worth = [&](double better, double worse) {
    const double gain = std::log(std::max(better, 1e-12) / std::max(worse, 1e-12));
    return gain >= 0 ? gain : weights.loss * gain;
  };
  return weights.gpu_use * worth(outcome.gpu_use, reference.gpu_use) +
         weights.mean_slowdown * worth(reference.mean_slowdown, outcome.mean_slowdown) +
         weights.p99_slowdown * worth(reference.p99_slowdown, outcome.p99_slowdown);
}

bool IsOpen(const TrialPlan& plan) {
  return std::none_of(plan.gates.begin(), plan.gates.end(), [](const Gate& gate) { return gate.period.count() > 0; });
}

WeftSearch::WeftSearch(const Situation& situation, DecideBudget budget)
    : situation_(situation), weights_(WeightsFor(situation.objective)), budget_(std::move(budget)),
      evaluations_(std::max<int64_t>(budget_.evaluations, 8)), most_work_(std::max<int64_t>(budget_.work, 1)),
      random_(situation.seed) {
  if (situation.measured && situation.measured->paths_fixed) return;
  for (const RoutableJob& job : situation.jobs) {
    for (const RoutableFlow& flow : job.flows) choices_ |= flow.paths.size() > 1;
  }
}

JudgedTrial WeftSearch::Judge(std::string name, TrialPlan plan, double iterations) {
  JudgedTrial candidate{std::move(name), std::move(plan), {}, 0};
  candidate.outcome = Evaluate(situation_, candidate.plan, iterations);
  candidate.score = Score(candidate.outcome);
  ++spent_;
  work_ += candidate.outcome.work;
  return candidate;
}

void WeftSearch::Offer(JudgedTrial candidate) {
  const auto keep = [](const JudgedTrial& better, JudgedTrial* best) {
    if (better.score <= best->score + kGain) return false;
    *best = better;
    return true;
  };
  bool kept = IsOpen(candidate.plan) && keep(candidate, &best_open_);
  kept |= keep(candidate, &best_);
  if (kept) Confirm(candidate);
}

JudgedTrial WeftSearch::Confirm(const JudgedTrial& candidate) {
  JudgedTrial longer = Judge(candidate.name, candidate.plan, final_horizon_);
  longer.score = FinalScore(longer.outcome);
  if (IsOpen(longer.plan) && longer.score > open_finalist_.score) open_finalist_ = longer;
  const auto at = std::find_if(finalists_.begin(), finalists_.end(),
                               [&](const JudgedTrial& other) { return other.score < longer.score; });
  if (at != finalists_.begin() && std::prev(at)->score < longer.score + kGain) return longer;  // the same once more
  finalists_.insert(at, longer);
  if (finalists_.size() > kRemembered) finalists_.pop_back();
  return longer;
}

bool WeftSearch::Try(std::string name, TrialPlan plan) {
  if (Spent() >= 1) return false;
  Offer(Judge(std::move(name), std::move(plan)));
  return true;
}

bool WeftSearch::Untouched(const Outcome& outcome) {
  return outcome.p99_slowdown <= kUntouched && outcome.mean_slowdown <= kUntouched;
}

/// A job that loses by contention, the more likely the more GPU time it loses.
size_t WeftSearch::PickLoser() {
  const std::vector<double>& slowdown = current_.outcome.slowdown;
  const auto loss = [&](size_t j) {
    return (0.1 + situation_.jobs[j].gpus) * std::max(1e-6, 1 - 1 / std::max(1.0, slowdown[j]));
  };
  double total = 0;
  for (size_t j = 0; j < slowdown.size(); ++j) total += loss(j);
  double at = total * Uniform();
  for (size_t j = 0; j < slowdown.size(); ++j) {
    at -= loss(j);
    if (at < 0) return j;
  }
  return slowdown.size() - 1;
}

bool WeftSearch::MoveClass(TrialPlan* plan) {
  const size_t a = PickLoser(), b = Pick(plan->classes.size());
  if (Pick(2) == 0) {
    std::swap(plan->classes[a], plan->classes[b]);
    return plan->classes[a] != plan->classes[b];
  }
  const auto c = static_cast<int32_t>(Pick(static_cast<size_t>(situation_.classes)));
  const size_t j = Pick(2) == 0 ? a : b;
  return std::exchange(plan->classes[j], c) != c;
}

/// Gives job j the period of another one, or a simple multiple or part of it, whichever slows it down least.
bool WeftSearch::Align(TrialPlan* plan, size_t j) {
  const double alone = IterationAlone(situation_.capacity, plan->jobs[j]).count();
  const size_t k = Pick(plan->jobs.size());
  if (k == j || !std::isfinite(alone)) return false;
  double theirs = plan->gates[k].period.count();
  if (!(theirs > 0)) {
    theirs = IterationAlone(situation_.capacity, plan->jobs[k]).count() * kPaces[Pick(std::size(kPaces))];
    if (!std::isfinite(theirs)) return false;
    plan->gates[k] = {Seconds(theirs), situation_.state->now() + Seconds(theirs * Uniform()),
                      Seconds(theirs) - IterationAlone(situation_.capacity, plan->jobs[k])};
  }
  const double parts = static_cast<double>(1 + Pick(3));
  const double rarer = Pick(6) == 0 ? static_cast<double>(2 + Pick(2)) : 1;  // where a link is too small for all
  const double period = std::ceil(alone / theirs * parts * (1 - 1e-9)) / parts * theirs * rarer;
  plan->gates[j] = {Seconds(period), situation_.state->now() + Seconds(period * Uniform()), Seconds(period - alone)};
  return true;
}

bool WeftSearch::MoveGate(TrialPlan* plan) {
  const size_t j = Pick(plan->gates.size());
  Gate& gate = plan->gates[j];
  const size_t kind = Pick(8);
  if (kind == 0 || (kind < 4 && !(gate.period.count() > 0))) return Align(plan, j);
  if (!(gate.period.count() > 0)) return false;
  if (kind == 1) {
    gate = {};
  } else if (kind == 2) {
    plan->gates = Paced(situation_, std::move(plan->gates), 1 + 0.01 * static_cast<double>(1 + Pick(3)));
  } else if (kind == 3) {
    plan->gates = Paced(situation_, std::move(plan->gates), 0.99);
  } else {
    gate.first += gate.period * (kind < 6 ? Uniform() : 0.06 * (Uniform() - 0.5));
  }
  return true;
}

/// How much of every link its users ask for at once.
std::vector<double> WeftSearch::Overloads(const TrialPlan& plan) const {
  std::vector<double> overload(situation_.capacity.size(), 0);
  for (const PeriodicJob& job : plan.jobs) {
    std::map<size_t, double> most;  // of the job's bursts, per link
    for (const std::vector<LinkLoad>& loads : LoadsOf(job)) {
      const double alone = SendingAlone(situation_.capacity, loads).count();
      for (const LinkLoad& load : loads) {
        const double capacity = situation_.capacity[load.link.index()].value();
        if (!(alone > 0) || !(capacity > 0)) continue;
        double& share = most[load.link.index()];
        share = std::max(share, static_cast<double>(load.bytes.count()) * 8 / alone / capacity);
      }
    }
    for (const auto& [link, share] : most) overload[link] += share;
  }
  return overload;
}

bool WeftSearch::CanCollide(const TrialPlan& plan) const {
  const std::vector<double> overload = Overloads(plan);
  return std::any_of(overload.begin(), overload.end(), [](double asked) { return asked > 1 + kRounding; });
}

/// (job, flow) of the flows over a link that could go elsewhere.
std::vector<std::pair<size_t, size_t>> WeftSearch::FlowsOver(const TrialPlan& plan, LinkId link) const {
  std::vector<std::pair<size_t, size_t>> flows;
  for (size_t j = 0; j < situation_.jobs.size(); ++j) {
    for (size_t f = 0; f < situation_.jobs[j].flows.size(); ++f) {
      const RoutableFlow& flow = situation_.jobs[j].flows[f];
      const std::vector<LinkId>& links = flow.paths[plan.paths[j][f]].links;
      if (flow.paths.size() > 1 && std::find(links.begin(), links.end(), link) != links.end()) flows.emplace_back(j, f);
    }
  }
  return flows;
}

/// Another path than `old`, whose worst link is asked for least; ties go to a random one.
size_t WeftSearch::LeastAskedFor(const RoutableFlow& flow, size_t old, const std::vector<double>& overload) {
  double least = 1e300;
  size_t chosen = old;
  const size_t first = Pick(flow.paths.size());
  for (size_t i = 0; i < flow.paths.size(); ++i) {
    const size_t p = (first + i) % flow.paths.size();
    if (p == old) continue;
    double most = 0;
    for (size_t l = 0; l < flow.paths[p].links.size(); ++l) {
      most = std::max(most, overload[flow.paths[p].links[l].index()] + flow.ShareOn(p, l));  // a flow at line rate comes on top
    }
    if (most < least) least = most, chosen = p;
  }
  return chosen;
}

/// A flow off the worst link of a job that loses, be it its own or another's; now and then to any path.
bool WeftSearch::MovePath(TrialPlan* plan) {
  const std::vector<double> overload = Overloads(*plan);
  LinkId worst;
  for (const LinkLoad& load : plan->jobs[PickLoser()].loads) {
    if (!worst.valid() || overload[load.link.index()] > overload[worst.index()]) worst = load.link;
  }
  if (!worst.valid()) return false;
  const auto movable = FlowsOver(*plan, worst);
  if (movable.empty()) return false;
  const auto [j, f] = movable[Pick(movable.size())];
  const RoutableFlow& flow = situation_.jobs[j].flows[f];
  const size_t old = plan->paths[j][f];
  const size_t chosen = Pick(4) > 0 ? LeastAskedFor(flow, old, overload) : Pick(flow.paths.size());
  if (chosen == old) return false;
  plan->paths[j][f] = chosen;
  plan->jobs[j] = OnPaths(situation_.jobs[j], plan->paths[j]);
  return true;
}

bool WeftSearch::Move(TrialPlan* plan, bool gates) {
  gates &= !situation_.measured;  // windows that senders keep are not found by moves
  const size_t kind = Pick((choices_ ? 3 : 1) + (gates ? 1 : 0));
  return kind == 0 ? MoveClass(plan) : choices_ && kind < 3 ? MovePath(plan) : MoveGate(plan);
}

/// A better plan always, a worse one the more likely the less it loses.
bool WeftSearch::Accepts(const JudgedTrial& candidate, double temperature) {
  return candidate.score > current_.score + kGain ||
         candidate.score >= current_.score + temperature * std::log(Uniform() + 1e-300);
}

void WeftSearch::Improve(From from, double share) {
  const double begin = Spent(), end = begin + share * (1 - begin);
  const double moves = (end - begin) * static_cast<double>(evaluations_);
  const double first = moves >= kWorthAnnealing ? kFirstTemperature : 0;
  current_ = from == From::kOpen ? best_open_ : best_;
  if (from == From::kFinalist) current_ = Judge(finalists_.front().name, finalists_.front().plan);
  double best = current_.score;
  int taken = 0;
  // A move that changes nothing costs no evaluation, so attempts are limited as well.
  for (double attempts = 8 * moves; attempts > 0 && Spent() < end && !Untouched(best_.outcome); --attempts) {
    TrialPlan plan = current_.plan;
    bool moved = Move(&plan, from != From::kOpen);
    if (Pick(3) == 0) moved |= Move(&plan, from != From::kOpen);
    if (!moved) continue;
    JudgedTrial candidate = Judge(current_.name, std::move(plan));
    const double left = std::max(0.0, end - Spent()) / (end - begin);
    if (!Accepts(candidate, first * left * left)) continue;
    current_ = std::move(candidate);
    JudgedTrial named = current_;
    named.name += ", then moves";
    if (++taken % kConfirmEvery == 0) Confirm(named);
    if (current_.score <= best + kGain) continue;
    best = current_.score;
    Offer(std::move(named));
  }
}

}  // namespace weft::planner::jobs
