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

#include "planner/cluster/simulate/evaluate.h"
#include "planner/cluster/simulate/situation.h"
#include "planner/cluster/simulate/weft_parts.h"
#include "planner/cluster/simulate/weft_search.h"
#include "planner/flows/priority.h"

namespace weft::planner {
namespace {

constexpr double kFinalHorizon = 100;    // iterations of the slowest job
constexpr double kDriftHorizon = 1000;   // iterations of the slowest job, where periods that differ little drift
constexpr int64_t kMostDriftWork = 2'000'000;  // of one plan judged so long, beyond which the search stays with less
constexpr double kGuardHorizon = 16;     // iterations of the slowest job
constexpr double kSwitchingGain = 0.002; // of the score, that a plan must gain over the present one
constexpr double kSpread = 0.2;
constexpr int kHashSeeds = 32, kWorlds = 4;
constexpr size_t kMostPaths = 6;
constexpr double kTolerated = 0.005;     // loss of score against hashed paths that counts as none

class WeftPlanner {
 public:
  explicit WeftPlanner(const Situation& situation) : situation_(situation), search_(situation) {}

  Decision Run() {
    FindPaths();
    if (std::optional<Decision> easy = NobodyWaits()) return *std::move(easy);
    AddReferences();
    AddPresent();
    AddCombinations();
    search_.Improve(true, 0.6);
    search_.Improve(false, 1);
    Decide();
    Decision decision = Guard();
    decision.evaluations = search_.spent() + guarded_;
    decision.complete = !cut_short_;
    Explain(&decision);
    return decision;
  }

 private:
  void FindPaths() {
    const JobPaths aware = SelfAwarePaths(situation_, CruxPaths(situation_));
    paths_.emplace_back("self-aware", aware);
    const bool any = std::any_of(situation_.present.begin(), situation_.present.end(),
                                 [](const auto& flows) { return !flows.empty(); });
    if (any) paths_.emplace_back("present", PresentPaths(situation_, aware));
  }

  /// On a network that has room nothing needs to be decided but paths: those in use, with as little change as can be.
  /// Jobs whose bursts only happen to miss each other now may drift into each other later: they are watched for longer,
  /// and so are all plans if that comes true.
  std::optional<Decision> NobodyWaits() {
    const size_t n = situation_.jobs.size();
    for (size_t i = paths_.size(); i-- > 0;) {
      const auto& [name, paths] = paths_[i];
      const TrialPlan plan{paths, OnPaths(situation_, paths), std::vector<int32_t>(n, 0), std::vector<Gate>(n)};
      if (!WeftSearch::Untouched(search_.Judge(name, plan).outcome)) continue;
      if (search_.CanCollide(plan)) {
        const Outcome later = search_.Judge(name, plan, kDriftHorizon).outcome;
        if (!WeftSearch::Untouched(later)) {
          if (later.work <= kMostDriftWork) search_.set_horizon(kDriftHorizon);
          continue;
        }
      }
      Decision decision{paths, plan.classes, plan.gates, {}, search_.spent()};
      decision.why.push_back(fmt::format("{} paths, one class: nobody waits for anybody", name));
      return decision;
    }
    return std::nullopt;
  }

  /// What the other policies would decide. Their best values are what scores are relative to.
  void AddReferences() {
    std::pair<const char*, Decision> others[] = {{"ecmp", DecideEcmp(situation_, situation_.seed)},
                                                 {"crux", DecideCrux(situation_)},
                                                 {"cassini", DecideCassini(situation_)},
                                                 {"sincronia", DecideSincronia(situation_)}};
    for (auto& [name, decision] : others) others_.push_back(search_.Judge(name, MakeTrial(situation_, decision)));
    search_.set_reference(BestOfOthers());
    for (Candidate& candidate : others_) {
      candidate.score = search_.Score(candidate.outcome);
      if (candidate.name != "sincronia") paths_.emplace_back(candidate.name, candidate.plan.paths);  // ecmp's paths
      search_.Offer(candidate);
    }
    if (paths_.size() < kMostPaths) {
      paths_.emplace_back("balanced", SelfAwarePaths(situation_, BalancedPaths(situation_)));
    }
  }

  /// The best of the others in each figure by itself.
  Outcome BestOfOthers() const {
    Outcome best = others_[0].outcome;
    for (const Candidate& other : others_) {
      best.gpu_use = std::max(best.gpu_use, other.outcome.gpu_use);
      best.mean_slowdown = std::min(best.mean_slowdown, other.outcome.mean_slowdown);
      best.p99_slowdown = std::min(best.p99_slowdown, other.outcome.p99_slowdown);
    }
    return best;
  }

  /// The best few, judged again over a longer time: what only fits the next 20 iterations is no plan.
  void Decide() {
    const double horizon = std::max(kFinalHorizon, search_.horizon());
    for (Candidate& other : others_) other = search_.Judge(other.name, std::move(other.plan), horizon);
    search_.set_reference(BestOfOthers());
    std::vector<Candidate> finalists = search_.Finalists();
    finalists.insert(finalists.end(), others_.begin(), others_.end());
    if (!present_.name.empty()) finalists.push_back(present_);
    for (Candidate& finalist : finalists) {
      finalist = search_.Judge(std::move(finalist.name), std::move(finalist.plan), horizon);
      // What runs now is not given up for as good as nothing.
      if (finalist.name == present_.name) finalist.score += kSwitchingGain;
    }
    std::stable_sort(finalists.begin(), finalists.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    finalists_ = std::move(finalists);
  }

  /// What runs now, with the jobs that have just arrived in the first class and without gates.
  void AddPresent() {
    if (paths_[1].first != "present") return;
    TrialPlan plan{paths_[1].second, OnPaths(situation_, paths_[1].second), {}, {}};
    for (const size_t slot : situation_.slots) {
      plan.classes.push_back(situation_.state->setting(slot).priority);
      plan.gates.push_back(situation_.state->setting(slot).gate);
    }
    present_ = search_.Judge("present", std::move(plan));
    search_.Offer(present_);
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
    choices.emplace_back("paced shifts", Paced(situation_, choices.back().second, 1.02));
    choices.emplace_back("circle shifts", PlanCassiniShifts(situation_, jobs).gates);
    return choices;
  }

  void AddCombinations() {
    for (const auto& [path_name, paths] : paths_) {
      const std::vector<PeriodicJob> jobs = OnPaths(situation_, paths);
      const auto classes = ClassChoices(jobs);
      const auto gates = GateChoices(jobs);
      for (size_t c = 0; c < classes.size(); ++c) {
        for (size_t g = 0; g < gates.size(); ++g) {
          if (c > 1 && g > 1) continue;  // the rest is reached by moves
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
      const Outcome outcome = Evaluate(situation_, plan, kGuardHorizon, {world + 1, kSpread});
      mean.gpu_use += outcome.gpu_use / static_cast<double>(worlds);
      mean.mean_slowdown += outcome.mean_slowdown / static_cast<double>(worlds);
    }
    return mean;
  }

  /// The best finalist that is no worse than hashed paths when profiles are wrong.
  Decision Guard() {
    Outcome hashed{.gpu_use = 0, .mean_slowdown = 0, .p99_slowdown = 0};
    for (uint64_t seed = 0; seed < kHashSeeds; ++seed) {
      ++guarded_;
      const TrialPlan plan = MakeTrial(situation_, DecideEcmp(situation_, situation_.seed + seed));
      const Outcome outcome = Evaluate(situation_, plan, kGuardHorizon, {seed % kWorlds + 1, kSpread});
      hashed.gpu_use += outcome.gpu_use / kHashSeeds;
      hashed.mean_slowdown += outcome.mean_slowdown / kHashSeeds;
    }
    for (size_t i = 0; i < finalists_.size(); ++i) {
      best_ = finalists_[i];
      const Outcome robust = Robust(best_.plan, kWorlds);
      ScoreWeights weights = WeightsFor(situation_.objective);
      weights.p99_slowdown = 0;  // of a few wrong worlds it says little
      weights.loss = 1;
      if (ScoreOf(weights, robust, hashed) < -kTolerated) continue;
      Decision decision{best_.plan.paths, best_.plan.classes, best_.plan.gates, {}};
      decision.why.push_back(fmt::format("with profiles off by {:.0f} %: GPU use {:.4f}, mean slow-down {:.4f}; hashed "
                                         "paths {:.4f}, {:.4f} over {} seeds", 100 * kSpread, robust.gpu_use,
                                         robust.mean_slowdown, hashed.gpu_use, hashed.mean_slowdown, kHashSeeds));
      if (i > 0) decision.why.push_back(fmt::format("{} better plans would be worse than these when profiles are off", i));
      return decision;
    }
    best_ = {.name = "hashed paths", .outcome = others_[0].outcome};
    Decision fallback = DecideEcmp(situation_, situation_.seed);
    fallback.why.push_back("no part of the plan is as good as hashed paths when profiles are off: hashed paths it is");
    return fallback;
  }

  void Explain(Decision* decision) const {
    decision->why.insert(decision->why.begin(),
                         fmt::format("{}: GPU use {:.4f}, mean slow-down {:.4f}, 99th percentile {:.4f}; best of the "
                                     "others {:.4f}, {:.4f}, {:.4f}", best_.name, best_.outcome.gpu_use,
                                     best_.outcome.mean_slowdown, best_.outcome.p99_slowdown,
                                     search_.reference().gpu_use, search_.reference().mean_slowdown,
                                     search_.reference().p99_slowdown));
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
  std::vector<Candidate> others_;                         // what the other policies would do
  std::vector<Candidate> finalists_;                      // by falling score
  Candidate best_, present_;                              // present_ without a name: nothing runs yet
  int64_t guarded_ = 0;
  bool cut_short_ = false;
};

}  // namespace

Decision DecideWeft(const Situation& situation) { return WeftPlanner(situation).Run(); }

}  // namespace weft::planner
