#include "planner/jobs/decide/network_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/flows/priority.h"
#include "planner/jobs/decide/parts.h"
#include "planner/jobs/decide/rules.h"
#include "planner/jobs/decide/search.h"
#include "planner/jobs/decide/settle.h"
#include "planner/jobs/decide/windows.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kDriftHorizon = 1000;   // iterations of the slowest job, where periods that differ little drift
constexpr double kDriftShare = 0.1;      // of the work that one plan judged so long may take
constexpr int64_t kDriftPlans = 40;      // that must be affordable for all to be judged so long
constexpr double kPlans = 200;           // that can be judged for all the work: where not, they are judged by less time
constexpr size_t kMostGuarded = 8;       // finalists, before only those of another kind are tried
constexpr double kStretches[] = {1, 1.02, 1.06, 1.12, 1.2, 1.28, 1.36};
constexpr double kStretchesAlike[] = {1, 1.06, 1.15, 1.25};
constexpr double kGuardHorizon = 32;     // iterations of the slowest job
constexpr double kSwitchingGain = 0.002; // of the score, that a plan must gain over the present one
constexpr int kWorlds = 4;
constexpr size_t kMostShifted = 2;       // sets of paths that all kinds of shifts are planned for
constexpr const char* kPresent = "present";
constexpr double kTolerated = 0.02;      // loss of score against the plain plan that counts as none

class NetworkPlanner {
 public:
  NetworkPlanner(const Situation& situation, const DecideBudget& budget)
      : situation_(situation), budget_(budget), search_(situation, budget) {
    // Jobs that begin together and are measured to differ by next to nothing would drift apart in a long simulation, and do not.
    if (situation.measured) search_.set_horizon(kPlanHorizon, kPlanHorizon);
  }

  Decision Run() {
    FindPaths();
    if (!CanSimulate(situation_, OnPaths(situation_, paths_.front().second), budget_)) {
      const auto& [name, paths] = WorthTheChange();
      Decision decision = DecideByRules(situation_, name, paths);
      robust_ = Estimate(situation_, MakeTrial(situation_, decision));
      return decision;
    }
    std::optional<Decision> easy = NobodyWaits();
    Decision decision = easy ? *std::move(easy) : Search();
    if (situation_.measured) {
      TrialPlan plan = MakeTrial(situation_, decision);
      KeepSafe(situation_, scale_ * kPlanHorizon, &plan, &decision);
      decision.classes = plan.classes, decision.gates = plan.gates;
    }
    decision.classes = LowestClasses(situation_, OnPaths(situation_, decision.paths), std::move(decision.classes));
    if (!easy && !(situation_.measured && situation_.measured->paths_fixed)) Explain(&decision);
    return decision;
  }

  /// What the answer comes to where profiles are off. Requires: Run().
  const Outcome& robust() const { return robust_; }

 private:
  Decision Search() {
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
    return decision;
  }

  /// Without a simulation: the first candidate, or what runs now, where that is not clearly worse.
  const std::pair<std::string, JobPaths>& WorthTheChange() const {
    const auto in_use = std::ranges::find(paths_, kPresent, [](const auto& named) { return named.first; });
    if (!situation_.measured || in_use == paths_.end()) return paths_.front();
    const double now = Estimate(situation_, Open(in_use->second)).gpu_use;
    const double then = Estimate(situation_, Open(paths_.front().second)).gpu_use;
    return then > now * (1 + situation_.measured->class_gain) ? paths_.front() : *in_use;
  }

  void FindPaths() {
    if (situation_.measured && situation_.measured->paths_fixed) {
      balanced_ = situation_.present;
      paths_.emplace_back(kPresent, balanced_);
      return;
    }
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
    double least = 0;   // of GPU use, to be worth a change
    for (size_t i = paths_.size(); i-- > 0;) {
      const auto& [name, paths] = paths_[i];
      const TrialPlan plan{paths, OnPaths(situation_, paths), std::vector<int32_t>(n, 0), std::vector<Gate>(n)};
      const Outcome soon = search_.Judge(name, plan).outcome;
      FitBudget(soon.work);
      const bool in_use = name == kPresent;
      if (situation_.measured && in_use) least = soon.gpu_use * (1 + situation_.measured->class_gain);
      if (!WeftSearch::Untouched(soon) || (!in_use && soon.gpu_use < least)) continue;
      if (search_.CanCollide(plan)) {
        if (situation_.predicted || situation_.measured) continue;
        const double most = kDriftShare * static_cast<double>(budget_.work);
        const double horizon =
            std::min(kDriftHorizon, search_.horizon() * std::max(1.0, most / static_cast<double>(soon.work + 1)));
        const Outcome later = search_.Judge(name, plan, horizon).outcome;
        if (!WeftSearch::Untouched(later)) {
          if (kDriftPlans * later.work <= budget_.work) {
            search_.set_horizon(horizon, std::max(horizon, search_.final_horizon()));
          }
          continue;
        }
      }
      robust_ = Robust(plan);
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
    scale_ = std::clamp(static_cast<double>(budget_.work) / (kPlans * static_cast<double>(work + 1)), kShortestHorizon, 1.0);
    search_.set_horizon(kPlanHorizon * scale_, (situation_.measured ? kPlanHorizon : kFinalHorizon) * scale_);
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
    if (situation_.measured && situation_.measured->paths_fixed) return;
    if (JobPaths divided = DividedPaths(situation_); divided != balanced_) paths_.emplace_back("divided", std::move(divided));
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

  /// What runs now, with the jobs that have just arrived in the last class, which is the default, and without gates.
  void AddPresent() {
    const auto in_use = std::ranges::find(paths_, kPresent, [](const auto& named) { return named.first; });
    if (in_use == paths_.end()) return;
    const JudgedTrial present = search_.Judge(kPresent, InForce(situation_, in_use->second));
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
            {"classes by intensity", ClassesByValue(jobs, intensity, situation_.classes)},
            {"classes by shortest burst", ClassesByValue(jobs, shortest, situation_.classes)},
            {"classes by intensity per GPU", ClassesByValue(jobs, blend, situation_.classes)}};
  }

  std::vector<std::pair<std::string, std::vector<Gate>>> GateChoices(const std::vector<PeriodicJob>& jobs, bool all) {
    std::vector<std::pair<std::string, std::vector<Gate>>> choices{{"no shifts", std::vector<Gate>(jobs.size())}};
    if (situation_.measured) {
      windows_ = PlanWindows(situation_, jobs);
      cut_short_ |= !windows_.complete;
      if (!windows_.gates.empty()) choices.emplace_back("time windows", windows_.gates);
      return choices;
    }
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

  /// The mean over worlds in which all profiles are off. Whoever measures a job whose period is not what its window was made for sets
  /// it free.
  Outcome Robust(TrialPlan plan) {
    if (situation_.measured) plan.gates.assign(plan.gates.size(), {});
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
      std::optional<JudgedTrial>& kind = IsOpen(finalists_[i].plan) ? open_ : gated_;
      if (!kind) kind = finalists_[i];
      if (!situation_.predicted && (!situation_.measured || (open_ && gated_))) break;
    }
    if (!kept) best_ = plain_, kept = plain;
    if (situation_.measured) return SettleMeasured();
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

  /// Of what stands up to wrong profiles, what is worth a change of what is in force.
  Decision SettleMeasured() {
    Decision decision;
    if (situation_.classes < 2) decision.rejected.push_back("classes: the fabric has one class");
    if (!open_) open_ = plain_;
    // The simulation may think that jobs keep out of each other's way by themselves; what is measured says whether they do.
    if (!gated_ && !situation_.measured->paths_fixed) windows_ = PlanWindows(situation_, open_->plan.jobs);
    if (!gated_ && !windows_.gates.empty()) {
      gated_ = open_;
      gated_->plan.gates = windows_.gates;
      gated_ = search_.Judge("time windows", gated_->plan, search_.final_horizon());
    }
    decision.rejected.insert(decision.rejected.end(), windows_.rejected.begin(), windows_.rejected.end());
    best_ = Settle(situation_, {present_ ? *present_ : plain_, open_, gated_}, &decision);
    decision.paths = best_.plan.paths, decision.classes = best_.plan.classes, decision.gates = best_.plan.gates;
    decision.pause = windows_.pause;
    robust_ = Robust(best_.plan);
    if (!IsOpen(best_.plan) && !windows_.links.empty()) {
      const ShiftedLink& link = windows_.links.front();  // the first says enough
      decision.why.push_back(fmt::format("on {} the score of the bursts' places rises from {:.2f} to {:.2f}, at best {:.2f}",
                                         situation_.topology.LinkName(link.link), link.score_before, link.score, link.best_score));
    }
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
  const DecideBudget& budget_;
  WeftSearch search_;
  std::vector<std::pair<std::string, JobPaths>> paths_;   // candidates
  JobPaths balanced_;
  JudgedTrial plain_;                                       // balanced paths in one class, over the final horizon
  Outcome robust_;                                          // of the answer, in worlds where profiles are off
  std::vector<JudgedTrial> finalists_;                      // by falling score
  std::optional<JudgedTrial> present_;                      // over the final horizon
  std::optional<JudgedTrial> open_, gated_;                 // the best of either kind that stands up to wrong profiles
  WindowPlan windows_;                                      // of measured jobs
  JudgedTrial best_;
  double scale_ = 1;                                      // of all horizons, to fit the budget
  int64_t guarded_ = 0;
  bool cut_short_ = false;
};

}  // namespace

NetworkPlan PlanNetwork(const Situation& situation, const DecideBudget& budget) {
  NetworkPlanner planner(situation, budget);
  Decision decision = planner.Run();
  return {std::move(decision), planner.robust()};
}

}  // namespace weft::planner::jobs
