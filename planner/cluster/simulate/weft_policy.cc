// Weft's own policy. It puts candidate plans together from paths × classes × time shifts (its own parts and those of every
// policy that it is compared with), runs each forward in the simulator from the present state, improves the best by moves,
// and keeps it only if it stands up to wrong profiles.
//
// What is best: GPU use, mean and 99th-percentile slow-down, each relative to the best that the other policies' plans would
// reach from here; the score is the sum of the logarithms, GPU use counting four times, and what is lost against them three times.
//
// Safety: with all profiles off by up to 20 %, a plan that serves worse than hashed paths in the mean over 32 seeds loses its
// shifts, then its classes, then its paths.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "planner/cluster/simulate/evaluate.h"
#include "planner/cluster/simulate/situation.h"
#include "planner/cluster/simulate/weft_parts.h"
#include "planner/flows/priority.h"

namespace weft::planner {
namespace {

constexpr double kHorizon = 20;          // iterations of the slowest job
constexpr double kGuardHorizon = 10;
constexpr double kUseWeight = 4;         // of GPU use, against one for each slow-down
constexpr double kLossWeight = 3;
constexpr double kGain = 1e-6;
constexpr double kSwitchingGain = 0.002; // of the score, that a plan must gain over the present one
constexpr double kUntouched = 1.0005;    // a 99th percentile below which nothing is left to gain
constexpr double kSpread = 0.2;
constexpr int kHashSeeds = 32, kWorlds = 4;
constexpr double kTolerated = 0.005;     // loss of score against hashed paths that counts as none
constexpr int64_t kGuardEvaluations = kHashSeeds + 4 * kWorlds;

struct Candidate {
  std::string name;
  TrialPlan plan;
  Outcome outcome;
  double score = -1e300;
};

class WeftPlanner {
 public:
  explicit WeftPlanner(const Situation& situation)
      : situation_(situation), left_(std::max<int64_t>(situation.evaluations - kGuardEvaluations, 8)),
        random_(situation.seed) {}

  Decision Run() {
    AddReferences();
    if (!Untouched()) {
      AddCombinations();
      Improve();
    }
    PreferPresent();
    Decision decision = Guard();
    decision.evaluations = spent_;
    decision.complete = !cut_short_;
    Explain(&decision);
    return decision;
  }

 private:
  bool Spend() {
    if (left_ <= 0) {
      cut_short_ = true;
      return false;
    }
    --left_;
    ++spent_;
    return true;
  }

  double Score(const Outcome& outcome) const {
    const auto worth = [](double gain) { return gain >= 0 ? gain : kLossWeight * gain; };
    const auto ratio = [](double a, double b) { return std::log(std::max(a, 1e-12) / std::max(b, 1e-12)); };
    return kUseWeight * worth(ratio(outcome.gpu_use, reference_.gpu_use)) +
           worth(ratio(reference_.mean_slowdown, outcome.mean_slowdown)) +
           worth(ratio(reference_.p99_slowdown, outcome.p99_slowdown));
  }

  /// Evaluates the plan and keeps it if it is the best. Returns whether it is.
  bool Try(std::string name, TrialPlan plan) {
    if (!Spend()) return false;
    Candidate candidate{std::move(name), std::move(plan), {}, 0};
    candidate.outcome = Evaluate(situation_, candidate.plan, kHorizon);
    candidate.score = Score(candidate.outcome);
    if (candidate.score <= best_.score + kGain) return false;
    best_ = std::move(candidate);
    return true;
  }

  /// What the other policies would decide. Their best values are what scores are relative to.
  void AddReferences() {
    std::pair<const char*, Decision> others[] = {{"ecmp", DecideEcmp(situation_, situation_.seed)},
                                                 {"crux", DecideCrux(situation_)},
                                                 {"cassini", DecideCassini(situation_)},
                                                 {"sincronia", DecideSincronia(situation_)}};
    std::vector<Candidate> evaluated;
    for (auto& [name, decision] : others) {
      ++spent_;
      Candidate candidate{name, MakeTrial(situation_, decision), {}, 0};
      candidate.outcome = Evaluate(situation_, candidate.plan, kHorizon);
      if (evaluated.empty()) reference_ = candidate.outcome;
      reference_.gpu_use = std::max(reference_.gpu_use, candidate.outcome.gpu_use);
      reference_.mean_slowdown = std::min(reference_.mean_slowdown, candidate.outcome.mean_slowdown);
      reference_.p99_slowdown = std::min(reference_.p99_slowdown, candidate.outcome.p99_slowdown);
      evaluated.push_back(std::move(candidate));
    }
    for (Candidate& candidate : evaluated) {
      candidate.score = Score(candidate.outcome);
      paths_.emplace_back(candidate.name, candidate.plan.paths);
      if (candidate.score > best_.score + kGain) best_ = std::move(candidate);
    }
    paths_.erase(paths_.begin() + 3);  // Sincronia's are hashed as ecmp's
    AddPresent();
  }

  void AddPresent() {
    const JobPaths aware = SelfAwarePaths(situation_, CruxPaths(situation_));
    const bool any = std::any_of(situation_.present.begin(), situation_.present.end(),
                                 [](const auto& flows) { return !flows.empty(); });
    if (any) {
      const JobPaths paths = PresentPaths(situation_, aware);
      paths_.insert(paths_.begin(), {"present", paths});
      TrialPlan plan{paths, OnPaths(situation_, paths), {}, {}};
      for (const size_t slot : situation_.slots) {
        plan.classes.push_back(situation_.state->setting(slot).priority);
        plan.gates.push_back(situation_.state->setting(slot).gate);
      }
      ++spent_;
      present_ = {"present", std::move(plan), {}, 0};
      present_.outcome = Evaluate(situation_, present_.plan, kHorizon);
      present_.score = Score(present_.outcome);
      if (present_.score > best_.score) best_ = present_;
    }
    paths_.insert(paths_.begin(), {"self-aware", aware});
    if (paths_.size() < 6) paths_.emplace_back("balanced", SelfAwarePaths(situation_, BalancedPaths(situation_)));
  }

  bool Untouched() const {
    return best_.outcome.p99_slowdown <= kUntouched && best_.outcome.mean_slowdown <= kUntouched;
  }

  std::vector<std::pair<std::string, std::vector<int32_t>>> ClassChoices(const std::vector<PeriodicJob>& jobs) const {
    std::vector<double> shortest, blend;
    const std::vector<double> intensity = CorrectedIntensity(situation_.capacity, jobs);
    for (size_t j = 0; j < jobs.size(); ++j) {
      const double sending = CommunicationAlone(situation_.capacity, jobs[j]).count();
      shortest.push_back(sending > 0 ? 1 / sending : 1e12);
      blend.push_back(intensity[j] / jobs[j].gpus);
    }
    return {{"one class", std::vector<int32_t>(jobs.size(), 0)},
            {"classes by intensity", ClassesBy(situation_, jobs, intensity)},
            {"sampled classes by intensity", CruxClasses(situation_, jobs)},
            {"classes by shortest burst", ClassesBy(situation_, jobs, shortest)},
            {"classes by intensity per GPU", ClassesBy(situation_, jobs, blend)},
            {"coflow order", SincroniaClasses(situation_, jobs)}};
  }

  std::vector<std::pair<std::string, std::vector<Gate>>> GateChoices(const std::vector<PeriodicJob>& jobs) const {
    std::vector<std::pair<std::string, std::vector<Gate>>> choices{{"no shifts", std::vector<Gate>(jobs.size())}};
    choices.emplace_back("shifts", InterleavingGates(situation_, jobs));
    choices.emplace_back("paced shifts", Paced(choices.back().second, 1.02));
    choices.emplace_back("circle shifts", PlanCassiniShifts(situation_, jobs).gates);
    return choices;
  }

  /// Every period longer by a factor, which leaves room for what does not fit exactly.
  std::vector<Gate> Paced(std::vector<Gate> gates, double factor) const {
    for (Gate& gate : gates) {
      gate.slack += gate.period * (factor - 1);
      gate.period *= factor;
      gate.first = situation_.state->now() + (gate.first - situation_.state->now()) * factor;
    }
    return gates;
  }

  void AddCombinations() {
    for (const auto& [path_name, paths] : paths_) {
      const std::vector<PeriodicJob> jobs = OnPaths(situation_, paths);
      const auto classes = ClassChoices(jobs);
      const auto gates = GateChoices(jobs);
      for (size_t c = 0; c < classes.size(); ++c) {
        for (size_t g = 0; g < gates.size(); ++g) {
          if (c > 1 && g > 1) continue;  // the rest is reached by moves
          Try(fmt::format("{} paths, {}, {}", path_name, classes[c].first, gates[g].first),
              {paths, jobs, classes[c].second, gates[g].second});
        }
      }
    }
  }

  size_t Pick(size_t n) { return static_cast<size_t>(random_() % n); }

  /// A job that loses by contention, the more likely the more GPU time it loses.
  size_t PickLoser() {
    double total = 0;
    const std::vector<double>& slowdown = best_.outcome.slowdown;
    const auto loss = [&](size_t j) {
      return (0.1 + situation_.jobs[j].gpus) * std::max(1e-6, 1 - 1 / std::max(1.0, slowdown[j]));
    };
    for (size_t j = 0; j < slowdown.size(); ++j) total += loss(j);
    double at = total * (static_cast<double>(random_() >> 11) * 0x1p-53);
    for (size_t j = 0; j < slowdown.size(); ++j) {
      at -= loss(j);
      if (at < 0) return j;
    }
    return slowdown.size() - 1;
  }

  bool MoveClass() {
    TrialPlan plan = best_.plan;
    const size_t a = PickLoser(), b = Pick(plan.classes.size());
    if (Pick(2) == 0 && plan.classes[a] != plan.classes[b]) {
      std::swap(plan.classes[a], plan.classes[b]);
    } else {
      const auto c = static_cast<int32_t>(Pick(static_cast<size_t>(situation_.classes)));
      if (plan.classes[a] == c) return false;
      plan.classes[a] = c;
    }
    return Try(best_.name, std::move(plan));
  }

  bool MoveGate() {
    TrialPlan plan = best_.plan;
    const size_t j = Pick(plan.gates.size());
    Gate& gate = plan.gates[j];
    if (!(gate.period.count() > 0)) return false;
    switch (Pick(8)) {
      case 0: gate = {}; break;
      case 1: plan.gates = Paced(std::move(plan.gates), 1 + 0.01 * static_cast<double>(1 + Pick(3))); break;
      default: gate.first += gate.period * (static_cast<double>(1 + Pick(31)) / 32);
    }
    return Try(best_.name, std::move(plan));
  }

  /// How much of a link its users ask for at once.
  std::vector<double> Overloads() const {
    std::vector<double> overload(situation_.capacity.size(), 0);
    for (const PeriodicJob& job : best_.plan.jobs) {
      const double alone = CommunicationAlone(situation_.capacity, job).count();
      for (const LinkLoad& load : job.loads) {
        const double capacity = situation_.capacity[load.link.index()].value();
        if (alone > 0 && capacity > 0) {
          overload[load.link.index()] += static_cast<double>(load.bytes.count()) * 8 / alone / capacity;
        }
      }
    }
    return overload;
  }

  /// A flow off the worst link of a job that loses (its own flow, or another job's), to the path that is asked for least; now
  /// and then to any.
  bool MovePath() {
    const size_t loser = PickLoser();
    const std::vector<double> overload = Overloads();
    LinkId worst;
    for (const LinkLoad& load : best_.plan.jobs[loser].loads) {
      if (!worst.valid() || overload[load.link.index()] > overload[worst.index()]) worst = load.link;
    }
    if (!worst.valid()) return false;
    std::vector<std::pair<size_t, size_t>> movable;
    for (size_t j = 0; j < situation_.jobs.size(); ++j) {
      for (size_t f = 0; f < situation_.jobs[j].flows.size(); ++f) {
        const RoutableFlow& flow = situation_.jobs[j].flows[f];
        const std::vector<LinkId>& links = flow.paths[best_.plan.paths[j][f]].links;
        if (flow.paths.size() > 1 && std::find(links.begin(), links.end(), worst) != links.end()) movable.emplace_back(j, f);
      }
    }
    if (movable.empty()) return false;
    const auto [j, f] = movable[Pick(movable.size())];
    const RoutableFlow& flow = situation_.jobs[j].flows[f];
    const size_t old = best_.plan.paths[j][f];
    size_t chosen = Pick(flow.paths.size());
    if (Pick(4) > 0) {
      double least = 1e300;
      const size_t first = Pick(flow.paths.size());  // ties go to a random one
      for (size_t i = 0; i < flow.paths.size(); ++i) {
        const size_t p = (first + i) % flow.paths.size();
        if (p == old) continue;
        double most = 0;
        for (const LinkId link : flow.paths[p].links) most = std::max(most, overload[link.index()]);
        if (most < least) least = most, chosen = p;
      }
    }
    if (chosen == old) return false;
    TrialPlan plan = best_.plan;
    plan.paths[j][f] = chosen;
    plan.jobs[j] = OnPaths(situation_.jobs[j], plan.paths[j]);
    return Try(best_.name, std::move(plan));
  }

  void Improve() {
    int64_t moves = 0;
    const bool choices = std::any_of(situation_.jobs.begin(), situation_.jobs.end(), [](const RoutableJob& job) {
      return std::any_of(job.flows.begin(), job.flows.end(), [](const RoutableFlow& f) { return f.paths.size() > 1; });
    });
    // A move that changes nothing costs no evaluation, so attempts are limited as well.
    for (int64_t attempts = 4 * left_; attempts > 0 && left_ > 0 && !Untouched(); --attempts) {
      const size_t kind = Pick(choices ? 4 : 2);
      moves += kind == 0 ? MoveClass() : kind == 1 ? MoveGate() : MovePath();
    }
    if (moves > 0) best_.name += fmt::format(", {} moves", moves);
  }

  void PreferPresent() {
    if (present_.name.empty() || best_.score > present_.score + kSwitchingGain) return;
    best_ = present_;
  }

  Outcome Robust(const TrialPlan& plan, uint64_t worlds) {
    Outcome mean{.gpu_use = 0, .mean_slowdown = 0, .p99_slowdown = 0};
    for (uint64_t world = 0; world < worlds; ++world) {
      ++spent_;
      const Outcome outcome = Evaluate(situation_, plan, kGuardHorizon, {world + 1, kSpread});
      mean.gpu_use += outcome.gpu_use / static_cast<double>(worlds);
      mean.mean_slowdown += outcome.mean_slowdown / static_cast<double>(worlds);
    }
    return mean;
  }

  /// The best plan, or as much of it as is no worse than hashed paths when profiles are wrong.
  Decision Guard() {
    Outcome hashed{.gpu_use = 0, .mean_slowdown = 0, .p99_slowdown = 0};
    for (uint64_t seed = 0; seed < kHashSeeds; ++seed) {
      ++spent_;
      const TrialPlan plan = MakeTrial(situation_, DecideEcmp(situation_, situation_.seed + seed));
      const Outcome outcome = Evaluate(situation_, plan, kGuardHorizon, {seed % kWorlds + 1, kSpread});
      hashed.gpu_use += outcome.gpu_use / kHashSeeds;
      hashed.mean_slowdown += outcome.mean_slowdown / kHashSeeds;
    }
    const size_t n = situation_.jobs.size();
    const TrialPlan full = best_.plan, without_gates{full.paths, full.jobs, full.classes, std::vector<Gate>(n)},
                    only_paths{full.paths, full.jobs, std::vector<int32_t>(n, 0), std::vector<Gate>(n)};
    const std::pair<const TrialPlan*, const char*> ladder[] = {
        {&full, ""}, {&without_gates, "without its shifts"}, {&only_paths, "without its shifts and classes"}};
    Decision decision;
    for (const auto& [plan, what] : ladder) {
      const Outcome robust = Robust(*plan, kWorlds);
      decision.paths = plan->paths, decision.classes = plan->classes, decision.gates = plan->gates;
      const double gain = kUseWeight * std::log(robust.gpu_use / hashed.gpu_use) +
                          std::log(hashed.mean_slowdown / robust.mean_slowdown);
      if (gain < -kTolerated) continue;
      decision.why.push_back(fmt::format("with profiles off by {:.0f} %: GPU use {:.4f}, mean slow-down {:.4f}; hashed "
                                         "paths {:.4f}, {:.4f} over {} seeds{}{}", 100 * kSpread, robust.gpu_use,
                                         robust.mean_slowdown, hashed.gpu_use, hashed.mean_slowdown, kHashSeeds,
                                         *what != '\0' ? "; the plan holds " : "", what));
      return decision;
    }
    Decision fallback = DecideEcmp(situation_, situation_.seed);
    fallback.why.push_back("no part of the plan is as good as hashed paths when profiles are off: hashed paths it is");
    return fallback;
  }

  void Explain(Decision* decision) const {
    decision->why.insert(decision->why.begin(),
                         fmt::format("{}: GPU use {:.4f}, mean slow-down {:.4f}, 99th percentile {:.4f}; best of the "
                                     "others {:.4f}, {:.4f}, {:.4f}", best_.name, best_.outcome.gpu_use,
                                     best_.outcome.mean_slowdown, best_.outcome.p99_slowdown, reference_.gpu_use,
                                     reference_.mean_slowdown, reference_.p99_slowdown));
    for (size_t j = 0; j < situation_.jobs.size(); ++j) {
      const Gate& gate = decision->gates[j];
      std::string line = fmt::format("{}: class {}", situation_.names[j], decision->classes[j]);
      if (gate.period.count() > 0) {
        line += fmt::format(", begins {:.4f} s from now and every {:.4f} s", (gate.first - situation_.state->now()).count(),
                            gate.period.count());
      }
      decision->why.push_back(std::move(line));
    }
  }

  const Situation& situation_;
  std::vector<std::pair<std::string, JobPaths>> paths_;   // candidates
  Outcome reference_;
  Candidate best_, present_;
  int64_t left_, spent_ = 0;
  bool cut_short_ = false;
  std::mt19937_64 random_;
};

}  // namespace

Decision DecideWeft(const Situation& situation) { return WeftPlanner(situation).Run(); }

}  // namespace weft::planner
