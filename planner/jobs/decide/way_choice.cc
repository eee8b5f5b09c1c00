#include "planner/jobs/decide/way_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "planner/flows/priority.h"
#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/parts.h"
#include "planner/jobs/decide/rules.h"
#include "planner/jobs/decide/search.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kBudget = 0.25;         // share of all, that ways are chosen with
constexpr double kLeastGain = 1e-4;      // of the score: less is rounding
constexpr size_t kFewCombinations = 64;  // that are all tried
constexpr int kMostRounds = 6;
constexpr uint64_t kWorlds = 2;          // in which predictions are off, for a quick plan

class WayChooser {
 public:
  WayChooser(const Situation& situation, const DecideBudget& budget)
      : situation_(situation), budget_(budget), weights_(WeightsFor(situation.objective)), present_(situation.way) {
    for (size_t j = 0; j < situation.ways.size(); ++j) {
      if (situation.ways[j].size() > 1) open_.push_back(j);
    }
  }

  WayChoice Run() {
    if (open_.empty()) return {.ways = {present_}};
    const std::vector<PeriodicJob> jobs = OnPaths(situation_, BalancedPaths(situation_));
    if (!CanSimulate(situation_, jobs, budget_)) return {.ways = {present_}, .complete = false};
    reference_ = *Judge(present_);
    for (const std::vector<size_t>& start : {present_, Quietest()}) Descend(start);
    if (Combinations() <= kFewCombinations) TryAll();
    return {.ways = Best(), .evaluations = spent_, .work = work_, .complete = !cut_short_};
  }

 private:
  bool Affordable() const {
    return !budget_.stop.stop_requested() && static_cast<double>(spent_) < kBudget * static_cast<double>(budget_.evaluations) &&
           static_cast<double>(work_) < kBudget * static_cast<double>(budget_.work);
  }

  /// What the ways come to on quick plans, the better of one class and several; nothing when the budget is spent.
  std::optional<Outcome> Judge(const std::vector<size_t>& ways) {
    const auto [at, added] = judged_.try_emplace(ways);
    if (!added) return at->second;
    if (spent_ > 0 && !Affordable()) {
      cut_short_ = true;
      judged_.erase(at);
      return std::nullopt;
    }
    const Situation situation = WithWays(situation_, ways);
    const JobPaths paths = SelfAwarePaths(situation, BalancedPaths(situation));
    TrialPlan plan{paths, OnPaths(situation, paths), std::vector<int32_t>(ways.size(), 0), std::vector<Gate>(ways.size())};
    Outcome best = Mean(situation, plan);
    std::vector<double> shortest;
    for (const PeriodicJob& job : plan.jobs) {
      shortest.push_back(1 / std::max(1e-12, CommunicationAlone(situation.capacity, job).count()));
    }
    for (const std::vector<double>& value : {CorrectedIntensity(situation.capacity, plan.jobs), shortest}) {
      plan.classes = ClassesByValue(plan.jobs, value, situation.classes);
      const Outcome classed = Mean(situation, plan);
      if (ScoreOf(weights_, classed, best) > 0) best = classed;
    }
    at->second = best;
    return best;
  }

  /// As profiles are, or the mean over worlds in which predictions are off.
  Outcome Mean(const Situation& situation, const TrialPlan& plan) {
    const uint64_t worlds = situation.predicted ? kWorlds : 1;
    Outcome mean{.gpu_use = 0, .mean_slowdown = 0, .p99_slowdown = 0};
    for (uint64_t world = 0; world < worlds; ++world) {
      const Outcome outcome = Evaluate(situation, plan, kPlanHorizon, {world + 1, situation.predicted ? kProfileSpread : 0});
      mean.gpu_use += outcome.gpu_use / static_cast<double>(worlds);
      mean.mean_slowdown += outcome.mean_slowdown / static_cast<double>(worlds);
      mean.p99_slowdown += outcome.p99_slowdown / static_cast<double>(worlds);
      ++spent_;
      work_ += outcome.work;
    }
    return mean;
  }

  double Score(const std::vector<size_t>& ways) {
    if (!Possible(ways)) return -1e300;
    const std::optional<Outcome> outcome = Judge(ways);
    return outcome ? ScoreOf(weights_, *outcome, reference_) : -1e300;
  }

  /// Every job in the way that sends least.
  std::vector<size_t> Quietest() const {
    std::vector<size_t> ways = present_;
    for (const size_t j : open_) {
      const auto bytes = [&](size_t w) {
        double sum = 0;
        for (const RoutableFlow& flow : situation_.ways[j][w].job.flows) sum += static_cast<double>(flow.bytes.count());
        return sum;
      };
      for (size_t w = 0; w < situation_.ways[j].size(); ++w) {
        if (bytes(w) < bytes(ways[j])) ways[j] = w;
      }
    }
    return ways;
  }

  bool Meet(const std::vector<size_t>& ways, size_t a, size_t b) const {
    const auto places = [&](size_t j) -> const std::vector<size_t>& { return situation_.ways[j][ways[j]].places; };
    return std::ranges::any_of(places(a), [&](size_t p) { return std::ranges::find(places(b), p) != places(b).end(); });
  }

  /// Other open jobs that want a place of job j's.
  std::vector<size_t> Rivals(const std::vector<size_t>& ways, size_t j) const {
    std::vector<size_t> rivals;
    for (const size_t other : open_) {
      if (other != j && Meet(ways, j, other)) rivals.push_back(other);
    }
    return rivals;
  }

  bool Possible(const std::vector<size_t>& ways) const {
    return std::ranges::all_of(open_, [&](size_t j) { return Rivals(ways, j).empty(); });
  }

  /// The ways with job j in way `w`; where it then wants another job's places, that one on others, in each way that leaves nobody in want.
  std::vector<std::vector<size_t>> Trials(const std::vector<size_t>& ways, size_t j, size_t w) const {
    std::vector<size_t> trial = ways;
    trial[j] = w;
    const std::vector<size_t> rivals = Rivals(trial, j);
    if (rivals.empty()) return {trial};
    std::vector<std::vector<size_t>> trials;
    if (rivals.size() > 1) return trials;
    for (size_t v = 0; v < situation_.ways[rivals[0]].size(); ++v) {
      trial[rivals[0]] = v;
      if (Possible(trial)) trials.push_back(trial);
    }
    return trials;
  }

  void Descend(std::vector<size_t> ways) {
    double score = Score(ways);
    for (int round = 0; round < kMostRounds; ++round) {
      bool better = false;
      for (const size_t j : open_) {
        for (size_t w = 0; w < situation_.ways[j].size(); ++w) {
          if (ways[j] == w) continue;
          for (std::vector<size_t>& trial : Trials(ways, j, w)) {
            const double reached = Score(trial);
            if (reached <= score + kLeastGain) continue;
            ways = std::move(trial);
            score = reached;
            better = true;
          }
        }
      }
      if (!better) break;
    }
  }

  size_t Combinations() const {
    size_t count = 1;
    for (const size_t j : open_) count = std::min(count * situation_.ways[j].size(), kFewCombinations + 1);
    return count;
  }

  void TryAll() {
    std::vector<size_t> ways = present_;
    for (const size_t j : open_) ways[j] = 0;
    for (size_t place = 0; place < open_.size();) {
      Score(ways);
      for (place = 0; place < open_.size(); ++place) {
        if (++ways[open_[place]] < situation_.ways[open_[place]].size()) break;
        ways[open_[place]] = 0;
      }
    }
  }

  /// Of all that were judged the best few, and what is there now.
  std::vector<std::vector<size_t>> Best() const {
    std::vector<std::pair<double, std::vector<size_t>>> ranked;
    for (const auto& [ways, outcome] : judged_) {
      const double score = ScoreOf(weights_, outcome, reference_);
      if (ways != present_ && score > kLeastGain) ranked.emplace_back(score, ways);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (ranked.size() >= kMostWayChoices) ranked.resize(kMostWayChoices - 1);
    std::vector<std::vector<size_t>> best;
    for (auto& [score, ways] : ranked) best.push_back(std::move(ways));
    best.push_back(present_);
    return best;
  }

  const Situation& situation_;
  const DecideBudget& budget_;
  const ScoreWeights weights_;
  const std::vector<size_t> present_;
  std::vector<size_t> open_;                            // jobs that have a choice
  std::map<std::vector<size_t>, Outcome> judged_;
  Outcome reference_;
  int64_t spent_ = 0, work_ = 0;
  bool cut_short_ = false;
};

}  // namespace

WayChoice ChooseWays(const Situation& situation, const DecideBudget& budget) { return WayChooser(situation, budget).Run(); }

std::vector<std::string> ExplainWays(const Situation& situation, const std::vector<size_t>& ways) {
  std::vector<std::string> why;
  for (size_t j = 0; j < situation.ways.size(); ++j) {
    if (situation.ways[j].size() < 2) continue;
    const SituationWay &chosen = situation.ways[j][ways[j]], &alone = situation.ways[j][situation.way[j]];
    if (ways[j] == situation.way[j]) {
      why.push_back(fmt::format("{}: {}, which is best alone", situation.names[j], chosen.name));
    } else {
      why.push_back(fmt::format("{}: {} in place of {}, which is best alone ({:.4g} s alone, this one {:.4g} s)", situation.names[j],
                                chosen.name, alone.name, alone.alone.count(), chosen.alone.count()));
    }
  }
  return why;
}

}  // namespace weft::planner::jobs
