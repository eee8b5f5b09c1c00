// Weft's own policy: every job's way first (way_choice.h), then paths × classes × time shifts. It puts candidate plans together
// from parts of its own, runs each forward in the simulator from the present state, improves the best by moves, and keeps it only
// if it stands up to wrong profiles. No published policy's answer is looked at.
//
// What is best: GPU use, mean and 99th-percentile slow-down, each relative to the best that balanced paths with simple rules for
// classes would reach from here; the score is ScoreOf() in weft_search.h.
//
// Safety: finalists are run with all profiles off by up to 20 %, in several worlds. Where profiles are predictions, the mean over
// the worlds is what counts; where they were measured, a plan that serves worse there than balanced paths in one class gives
// way to the next best one.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

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
constexpr int kWorlds = 4;
constexpr size_t kMostShifted = 2;       // sets of paths that all kinds of shifts are planned for
constexpr const char* kPresent = "present";
constexpr double kTolerated = 0.02;      // loss of score against the plain plan that counts as none

class WeftPlanner {
 public:
  explicit WeftPlanner(const Situation& situation) : situation_(situation), search_(situation) {}

  Decision Run() {
    FindPaths();
    if (std::optional<Decision> easy = NobodyWaits()) return *std::move(easy);
    AddReference();
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

  /// What the answer comes to where profiles are off. Requires: Run().
  const Outcome& robust() const { return robust_; }

 private:
  void FindPaths() {
    balanced_ = BalancedPaths(situation_);
    const JobPaths aware = SelfAwarePaths(situation_, balanced_);
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
        if (situation_.predicted) continue;
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
      robust_ = soon;
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

  /// What scores are relative to: the best in each figure by itself that balanced paths reach in one class, or in several by a
  /// simple rule. In one class that is the plan which any other has to stand beside.
  void AddReference() {
    TrialPlan plan = Open(paths_[0].second);
    std::vector<JudgedTrial> soon, later;
    for (auto& [name, classes] : ClassChoices(plan.jobs)) {
      plan.classes = classes;
      soon.push_back(search_.Judge(fmt::format("{} paths, {}", paths_[0].first, name), plan));
      later.push_back(search_.Judge(soon.back().name, plan, search_.final_horizon()));
    }
    search_.set_reference(BestOf(soon));
    search_.set_final_reference(BestOf(later));
    for (JudgedTrial& candidate : soon) {
      candidate.score = search_.Score(candidate.outcome);
      search_.Offer(candidate);
    }
    plain_ = later[0];
    plain_.score = search_.FinalScore(plain_.outcome);
    const auto known = std::ranges::find(paths_, balanced_, [](const auto& named) { return named.second; });
    if (known == paths_.end()) paths_.emplace_back("balanced", balanced_);
  }

  static Outcome BestOf(const std::vector<JudgedTrial>& candidates) {
    Outcome best = candidates[0].outcome;
    for (const JudgedTrial& candidate : candidates) {
      best.gpu_use = std::max(best.gpu_use, candidate.outcome.gpu_use);
      best.mean_slowdown = std::min(best.mean_slowdown, candidate.outcome.mean_slowdown);
      best.p99_slowdown = std::min(best.p99_slowdown, candidate.outcome.p99_slowdown);
    }
    return best;
  }

  TrialPlan Open(const JobPaths& paths) const {
    return {paths, OnPaths(situation_, paths), std::vector<int32_t>(paths.size(), 0), std::vector<Gate>(paths.size())};
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
    finalists_.push_back(plain_);
    std::stable_sort(finalists_.begin(), finalists_.end(),
                     [](const JudgedTrial& a, const JudgedTrial& b) { return a.score > b.score; });
  }

  /// What runs now, with the jobs that have just arrived in the first class and without gates.
  void AddPresent() {
    if (paths_.size() < 2 || paths_[1].first != kPresent) return;
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
            {"classes by shortest burst", ClassesBy(situation_, jobs, shortest)},
            {"classes by intensity per GPU", ClassesBy(situation_, jobs, blend)}};
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

  /// The mean over worlds in which all profiles are off.
  Outcome Robust(const TrialPlan& plan) {
    Outcome mean{.gpu_use = 0, .mean_slowdown = 0, .p99_slowdown = 0};
    for (uint64_t world = 0; world < kWorlds; ++world) {
      ++guarded_;
      const Outcome outcome = Evaluate(situation_, plan, scale_ * kGuardHorizon, {world + 1, kProfileSpread});
      mean.gpu_use += outcome.gpu_use / kWorlds;
      mean.mean_slowdown += outcome.mean_slowdown / kWorlds;
      mean.p99_slowdown += outcome.p99_slowdown / kWorlds;
    }
    return mean;
  }

  /// The finalists that are tried in other worlds, in order: the first few, and since plans that differ by a few moves fail
  /// together, after them what differs from all of those: the best open plan, what runs now, the plain plan.
  std::vector<size_t> Guarded() const {
    const auto is_open = [](const JudgedTrial& finalist) { return IsOpen(finalist.plan); };
    const auto open = std::find_if(finalists_.begin(), finalists_.end(), is_open) - finalists_.begin();
    std::vector<size_t> guarded;
    for (size_t i = 0; i < finalists_.size(); ++i) {
      const std::string& name = finalists_[i].name;
      if (i < kMostGuarded || i == static_cast<size_t>(open) || name == kPresent || name == plain_.name) guarded.push_back(i);
    }
    return guarded;
  }

  /// Where profiles are predictions the finalist that is best when they are wrong; where they were measured the best one that is
  /// then no worse than the plain plan.
  Decision Guard() {
    const Outcome plain = Robust(plain_.plan);
    ScoreWeights weights = WeightsFor(situation_.objective);
    if (!situation_.predicted) weights.p99_slowdown = 0, weights.loss = 1;  // of a few wrong worlds the tail says little
    int64_t refused = 0;
    std::optional<Outcome> kept;
    double best = -1e300;
    for (const size_t i : Guarded()) {
      const Outcome robust = Robust(finalists_[i].plan);
      const double score = ScoreOf(weights, robust, plain) + (finalists_[i].name == kPresent ? kSwitchingGain : 0);
      if (!situation_.predicted && score < -kTolerated) {
        ++refused;
        continue;
      }
      if (score > best) best = score, best_ = finalists_[i], kept = robust;
      if (!situation_.predicted) break;
    }
    if (!kept) best_ = plain_, kept = plain;
    Decision decision{best_.plan.paths, best_.plan.classes, best_.plan.gates, {}};
    decision.why.push_back(fmt::format("with profiles off by {:.0f} %: GPU use {:.4f}, mean slow-down {:.4f}; balanced paths in one class "
                                       "{:.4f}, {:.4f}", 100 * kProfileSpread, kept->gpu_use, kept->mean_slowdown, plain.gpu_use,
                                       plain.mean_slowdown));
    if (refused > 0) {
      decision.why.push_back(fmt::format("{} better plans would be worse than these when profiles are off", refused));
    }
    robust_ = *kept;
    return decision;
  }

  void Explain(Decision* decision) const {
    decision->why.insert(decision->why.begin(),
                         fmt::format("{}: GPU use {:.4f}, mean slow-down {:.4f}, 99th percentile {:.4f}; simple "
                                     "rules at best {:.4f}, {:.4f}, {:.4f}", best_.name, best_.outcome.gpu_use,
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
  JobPaths balanced_;
  JudgedTrial plain_;                                       // balanced paths in one class, over the final horizon
  Outcome robust_;                                          // of the answer, in worlds where profiles are off
  std::vector<JudgedTrial> finalists_;                      // by falling score
  std::optional<JudgedTrial> present_;                      // over the final horizon
  JudgedTrial best_;
  double scale_ = 1;                                      // of all horizons, to fit the budget
  int64_t guarded_ = 0;
  bool cut_short_ = false;
};

}  // namespace

Decision DecideWeft(const Situation& situation) {
  const WayChoice choice = ChooseWays(situation);
  const auto count = static_cast<int64_t>(choice.ways.size());
  // Quick plans say which ways may be good, full ones which are: what is there now comes last, and first where nothing beats it.
  Decision best;
  Outcome best_outcome, kept_outcome;
  int64_t evaluations = choice.evaluations;
  bool complete = choice.complete;
  for (const std::vector<size_t>& ways : choice.ways) {
    Situation chosen = WithWays(situation, ways);
    chosen.evaluations /= count, chosen.work /= count;
    WeftPlanner planner(chosen);
    Decision decision = planner.Run();
    evaluations += decision.evaluations;
    complete &= decision.complete;
    kept_outcome = planner.robust();
    const bool better = best.paths.empty() || ScoreOf(WeightsFor(situation.objective), planner.robust(), best_outcome) > 0;
    if (!better) continue;
    best = std::move(decision);
    best_outcome = planner.robust();
    best.ways = ways;
  }
  best.evaluations = evaluations;
  best.complete = complete;
  if (best.ways != situation.way) {
    best.why.push_back(fmt::format("ways forced back to those that are best alone: GPU use {:.4f}, mean slow-down {:.4f} with profiles off, in "
                                   "place of {:.4f}, {:.4f}", kept_outcome.gpu_use, kept_outcome.mean_slowdown, best_outcome.gpu_use,
                                   best_outcome.mean_slowdown));
  }
  const std::vector<std::string> ways = ExplainWays(situation, best.ways);
  best.why.insert(best.why.end(), ways.begin(), ways.end());
  return best;
}

}  // namespace weft::planner::jobs
