// Weft's own policy. It puts candidate plans together from paths × classes × time shifts (its own parts and those of
// every policy that it is compared with), runs each forward in the simulator from the present state, improves the
// best by moves, and keeps it only if it stands up to wrong profiles.
//
// What is best: GPU use, mean and 99th-percentile slow-down, each relative to the best that the other policies' plans
// would reach from here; the score is ScoreOf() in weft_search.h.
//
// Safety: with all profiles off by up to 20 %, a plan that serves worse than hashed paths in the mean over 32 seeds
// gives way to the next best one, and in the end to hashed paths.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/baselines/baselines.h"
#include "planner/flows/priority.h"
#include "planner/jobs/simulate/evaluate.h"
#include "planner/jobs/simulate/situation.h"
#include "planner/jobs/simulate/way_choice.h"
#include "planner/jobs/simulate/weft_parts.h"
#include "planner/jobs/simulate/weft_search.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kDriftHorizon = 1000;   // iterations of the slowest job, where periods that differ little drift
constexpr double kDriftShare = 0.1;      // of the work that one plan judged so long may take
constexpr int64_t kDriftPlans = 40;      // that must be affordable for all to be judged so long
constexpr double kPlans = 200;           // that can be judged for all the work: where not, they are judged by less time
constexpr double kShortest = 0.1;        // of the usual time
constexpr size_t kMostGuarded = 8;       // finalists, before only those of another kind are tried
constexpr double kStretches[] = {1, 1.02, 1.06, 1.12, 1.2, 1.28, 1.36};
constexpr double kStretchesAlike[] = {1, 1.06, 1.15, 1.25};
constexpr double kGuardHorizon = 32;     // iterations of the slowest job
constexpr double kSwitchingGain = 0.002; // of the score, that a plan must gain over the present one
constexpr double kSpread = 0.2;
constexpr int kHashSeeds = 32, kWorlds = 4;
constexpr size_t kMostPaths = 6;
constexpr size_t kMostShifted = 2;       // sets of paths that all kinds of shifts are planned for
constexpr const char* kPresent = "present";
constexpr double kTolerated = 0.02;      // loss of score against hashed paths that counts as none

class WeftPlanner {
 public:
  explicit WeftPlanner(const Situation& situation) : situation_(situation), search_(situation) {}

  Decision Run() {
    FindPaths();
    if (std::optional<Decision> easy = NobodyWaits()) return *std::move(easy);
    AddReferences();
    AddPresent();
    AddCombinations();
    search_.Improve(WeftSearch::From::kBest, 0.35);
    search_.Improve(WeftSearch::From::kFinalist, 0.5);
    search_.Improve(WeftSearch::From::kOpen, 1);
    RankFinalists();
    Decision decision = Guard();
    decision.evaluations = search_.spent() + guarded_;
    decision.complete = !cut_short_;
    Explain(&decision);
    return decision;
  }

 private:
  void FindPaths() {
    const JobPaths aware = SelfAwarePaths(situation_, CruxPaths(situation_));
    paths_.emplace_back("balanced by what holds the job while it sends", aware);
    const bool any = std::any_of(situation_.present.begin(), situation_.present.end(),
                                 [](const auto& flows) { return !flows.empty(); });
    if (any) paths_.emplace_back(kPresent, PresentPaths(situation_, aware));
  }

  /// On a network that has room nothing needs to be decided but paths: those in use, with as little change as can be.
  /// Jobs whose bursts only happen to miss each other now may drift into each other later: they are watched for longer,
  /// and so are all plans if that comes true and is affordable.
  std::optional<Decision> NobodyWaits() {
    const size_t n = situation_.jobs.size();
    for (size_t i = paths_.size(); i-- > 0;) {
      const auto& [name, paths] = paths_[i];
      const TrialPlan plan{paths, OnPaths(situation_, paths), std::vector<int32_t>(n, 0), std::vector<Gate>(n)};
      const Outcome soon = search_.Judge(name, plan).outcome;
      FitBudget(soon.work);
      if (!WeftSearch::Untouched(soon)) continue;
      if (search_.CanCollide(plan)) {
        const double most = kDriftShare * static_cast<double>(situation_.work);
        const double horizon =
            std::min(kDriftHorizon, search_.horizon() * std::max(1.0, most / static_cast<double>(soon.work + 1)));
        const Outcome later = search_.Judge(name, plan, horizon).outcome;
        if (!WeftSearch::Untouched(later)) {
          if (kDriftPlans * later.work <= situation_.work) {
            search_.set_horizon(horizon, std::max(horizon, search_.final_horizon()));
          }
          continue;
        }
      }
      Decision decision{paths, plan.classes, plan.gates, {}, search_.spent()};
      decision.why.push_back(fmt::format("{} paths, one class: nobody waits for anybody", name));
      return decision;
    }
    return std::nullopt;
  }

  /// Shorter horizons where `work`, of one plan, says that too few plans would fit the budget. All of the references,
  /// the guard and the finalists together take about half of it then.
  void FitBudget(int64_t work) {
    if (scale_ < 1 || search_.horizon() > kPlanHorizon) return;
    scale_ = std::clamp(static_cast<double>(situation_.work) / (kPlans * static_cast<double>(work + 1)), kShortest, 1.0);
    search_.set_horizon(kPlanHorizon * scale_, kFinalHorizon * scale_);
    cut_short_ |= scale_ < 1;
  }

  /// What the other policies would decide. Their best values are what scores are relative to.
  void AddReferences() {
    std::pair<const char*, Decision> others[] = {{"ecmp", DecideEcmp(situation_, situation_.seed)},
                                                 {"crux", DecideCrux(situation_)},
                                                 {"cassini", DecideCassini(situation_)},
                                                 {"sincronia", DecideSincronia(situation_)}};
    for (auto& [name, decision] : others) others_.push_back(search_.Judge(name, MakeTrial(situation_, decision)));
    search_.set_reference(BestOf(others_));
    for (const JudgedTrial& other : others_) {
      long_others_.push_back(search_.Judge(other.name, other.plan, search_.final_horizon()));
    }
    search_.set_final_reference(BestOf(long_others_));
    for (JudgedTrial& other : long_others_) other.score = search_.FinalScore(other.outcome);
    for (JudgedTrial& candidate : others_) {
      candidate.score = search_.Score(candidate.outcome);
      if (candidate.name != "sincronia") paths_.emplace_back(candidate.name, candidate.plan.paths);  // ecmp's paths
      search_.Offer(candidate);
    }
    if (paths_.size() < kMostPaths) {
      paths_.emplace_back("balanced", SelfAwarePaths(situation_, BalancedPaths(situation_)));
    }
  }

  /// The best of all in each figure by itself.
  static Outcome BestOf(const std::vector<JudgedTrial>& candidates) {
    Outcome best = candidates[0].outcome;
    for (const JudgedTrial& candidate : candidates) {
      best.gpu_use = std::max(best.gpu_use, candidate.outcome.gpu_use);
      best.mean_slowdown = std::min(best.mean_slowdown, candidate.outcome.mean_slowdown);
      best.p99_slowdown = std::min(best.p99_slowdown, candidate.outcome.p99_slowdown);
    }
    return best;
  }

  /// Who may be chosen, the best over the final horizon first.
  void RankFinalists() {
    finalists_ = search_.finalists();
    // The list is short: plans better by next to nothing drive these out of it.
    if (std::none_of(finalists_.begin(), finalists_.end(), [](const JudgedTrial& c) { return IsOpen(c.plan); })) {
      finalists_.push_back(search_.open_finalist());
    }
    std::erase_if(finalists_, [](const JudgedTrial& finalist) { return finalist.name == kPresent; });
    if (present_) {
      finalists_.push_back(*present_);
      finalists_.back().score += kSwitchingGain;  // not given up for as good as nothing
    }
    finalists_.insert(finalists_.end(), long_others_.begin(), long_others_.end());
    std::stable_sort(finalists_.begin(), finalists_.end(),
                     [](const JudgedTrial& a, const JudgedTrial& b) { return a.score > b.score; });
  }

  /// What runs now, with the jobs that have just arrived in the first class and without gates.
  void AddPresent() {
    if (paths_[1].first != kPresent) return;
    TrialPlan plan{paths_[1].second, OnPaths(situation_, paths_[1].second), {}, {}};
    for (const size_t slot : situation_.slots) {
      plan.classes.push_back(situation_.state->setting(slot).priority);
      plan.gates.push_back(situation_.state->setting(slot).gate);
    }
    const JudgedTrial present = search_.Judge(kPresent, std::move(plan));
    search_.Offer(present);
    present_ = search_.Confirm(present);
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

  std::vector<std::pair<std::string, std::vector<Gate>>> GateChoices(const std::vector<PeriodicJob>& jobs,
                                                                   bool all) const {
    std::vector<std::pair<std::string, std::vector<Gate>>> choices{{"no shifts", std::vector<Gate>(jobs.size())}};
    choices.emplace_back("shifts", InterleavingGates(situation_, jobs));
    choices.emplace_back("paced shifts", Paced(situation_, choices.back().second, 1.02));
    if (!all) return choices;
    for (const double stretch : kStretches) {
      choices.emplace_back(fmt::format("joint shifts, periods x {}", stretch),
                           InterleavingGates(situation_, jobs, {stretch, true, false}));
    }
    for (const double stretch : kStretchesAlike) {
      choices.emplace_back(fmt::format("shifts among equals, periods x {}", stretch),
                           InterleavingGates(situation_, jobs, {stretch, true, true}));
    }
    choices.emplace_back("circle shifts", PlanCassiniShifts(situation_, jobs).gates);
    return choices;
  }

  void AddCombinations() {
    std::vector<JobPaths> seen;
    for (const auto& [path_name, paths] : paths_) {
      if (std::find(seen.begin(), seen.end(), paths) != seen.end()) continue;
      seen.push_back(paths);
      const std::vector<PeriodicJob> jobs = OnPaths(situation_, paths);
      const auto classes = ClassChoices(jobs);
      const auto gates = GateChoices(jobs, seen.size() <= kMostShifted);
      for (size_t c = 0; c < classes.size(); ++c) {
        for (size_t g = 0; g < gates.size(); ++g) {
          cut_short_ |= !search_.Try(fmt::format("{} paths, {}, {}", path_name, classes[c].first, gates[g].first),
                                     {paths, jobs, classes[c].second, gates[g].second});
        }
      }
    }
  }

  Outcome Robust(const TrialPlan& plan, uint64_t worlds) {
    Outcome mean{.gpu_use = 0, .mean_slowdown = 0, .p99_slowdown = 0};
    for (uint64_t world = 0; world < worlds; ++world) {
      ++guarded_;
      const Outcome outcome = Evaluate(situation_, plan, scale_ * kGuardHorizon, {world + 1, kSpread});
      mean.gpu_use += outcome.gpu_use / static_cast<double>(worlds);
      mean.mean_slowdown += outcome.mean_slowdown / static_cast<double>(worlds);
    }
    return mean;
  }

  /// The finalists that the guard tries, in order: the first few, and since plans that differ by a few moves fail
  /// together, after them what differs from all of those: the best open plan, what runs now, the other policies' plans.
  std::vector<size_t> Guarded() const {
    const auto is_open = [](const JudgedTrial& finalist) { return IsOpen(finalist.plan); };
    const auto open = std::find_if(finalists_.begin(), finalists_.end(), is_open) - finalists_.begin();
    std::vector<size_t> guarded;
    for (size_t i = 0; i < finalists_.size(); ++i) {
      const std::string& name = finalists_[i].name;
      const bool other = std::any_of(long_others_.begin(), long_others_.end(),
                                     [&](const JudgedTrial& candidate) { return candidate.name == name; });
      if (i < kMostGuarded || i == static_cast<size_t>(open) || name == kPresent || other) guarded.push_back(i);
    }
    return guarded;
  }

  /// The best finalist that is no worse than hashed paths when profiles are wrong.
  Decision Guard() {
    Outcome hashed{.gpu_use = 0, .mean_slowdown = 0, .p99_slowdown = 0};
    for (uint64_t seed = 0; seed < kHashSeeds; ++seed) {
      ++guarded_;
      const TrialPlan plan = MakeTrial(situation_, DecideEcmp(situation_, situation_.seed + seed));
      const Outcome outcome = Evaluate(situation_, plan, scale_ * kGuardHorizon, {seed % kWorlds + 1, kSpread});
      hashed.gpu_use += outcome.gpu_use / kHashSeeds;
      hashed.mean_slowdown += outcome.mean_slowdown / kHashSeeds;
    }
    int64_t refused = 0;
    for (const size_t i : Guarded()) {
      best_ = finalists_[i];
      const Outcome robust = Robust(best_.plan, kWorlds);
      ScoreWeights weights = WeightsFor(situation_.objective);
      weights.p99_slowdown = 0;  // of a few wrong worlds it says little
      weights.loss = 1;
      if (ScoreOf(weights, robust, hashed) < -kTolerated) {
        ++refused;
        continue;
      }
      Decision decision{best_.plan.paths, best_.plan.classes, best_.plan.gates, {}};
      decision.why.push_back(fmt::format("with profiles off by {:.0f} %: GPU use {:.4f}, mean slow-down {:.4f}; hashed "
                                         "paths {:.4f}, {:.4f} over {} seeds", 100 * kSpread, robust.gpu_use,
                                         robust.mean_slowdown, hashed.gpu_use, hashed.mean_slowdown, kHashSeeds));
      if (refused > 0) {
        decision.why.push_back(fmt::format("{} better plans would be worse than these when profiles are off", refused));
      }
      return decision;
    }
    best_ = {.name = "hashed paths", .outcome = long_others_[0].outcome};
    Decision fallback = DecideEcmp(situation_, situation_.seed);
    fallback.why.push_back("no part of the plan is as good as hashed paths when profiles are off: hashed paths it is");
    return fallback;
  }

  void Explain(Decision* decision) const {
    decision->why.insert(decision->why.begin(),
                         fmt::format("{}: GPU use {:.4f}, mean slow-down {:.4f}, 99th percentile {:.4f}; best of the "
                                     "others {:.4f}, {:.4f}, {:.4f}", best_.name, best_.outcome.gpu_use,
                                     best_.outcome.mean_slowdown, best_.outcome.p99_slowdown,
                                     search_.final_reference().gpu_use, search_.final_reference().mean_slowdown,
                                     search_.final_reference().p99_slowdown));
    for (size_t j = 0; j < situation_.jobs.size(); ++j) {
      const Gate& gate = decision->gates[j];
      std::string line = fmt::format("{}: class {}", situation_.names[j], decision->classes[j]);
      if (gate.period.count() > 0) {
        line += fmt::format(", begins {:.4f} s from now and every {:.4f} s",
                            (gate.first - situation_.state->now()).count(), gate.period.count());
      }
      decision->why.push_back(std::move(line));
    }
  }

  const Situation& situation_;
  WeftSearch search_;
  std::vector<std::pair<std::string, JobPaths>> paths_;   // candidates
  std::vector<JudgedTrial> others_, long_others_;           // what the other policies would do, soon and in the long run
  std::vector<JudgedTrial> finalists_;                      // by falling score
  std::optional<JudgedTrial> present_;                      // over the final horizon
  JudgedTrial best_;
  double scale_ = 1;                                      // of all horizons, to fit the budget
  int64_t guarded_ = 0;
  bool cut_short_ = false;
};

}  // namespace

Decision DecideWeft(const Situation& situation) {
  WayChoice choice = ChooseWays(situation);
  const bool others = choice.ways != situation.way;
  std::optional<Situation> chosen;
  if (others) chosen = WithWays(situation, choice.ways);
  Decision decision = WeftPlanner(chosen ? *chosen : situation).Run();
  if (others) decision.ways = choice.ways;
  decision.why.insert(decision.why.end(), choice.why.begin(), choice.why.end());
  decision.evaluations += choice.evaluations;
  decision.complete &= choice.complete;
  return decision;
}

}  // namespace weft::planner::jobs
