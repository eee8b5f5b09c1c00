#include "planner/jobs/simulate/way_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "planner/flows/priority.h"
#include "planner/jobs/simulate/evaluate.h"
#include "planner/jobs/simulate/weft_parts.h"
#include "planner/jobs/simulate/weft_search.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kBudget = 0.25;         // share of the situation's, that ways are chosen with
constexpr double kLeastGain = 1e-4;      // of the score: less is rounding
constexpr size_t kFewCombinations = 64;  // that are all tried
constexpr int kMostRounds = 6;

class WayChooser {
 public:
  explicit WayChooser(const Situation& situation)
      : situation_(situation), weights_(WeightsFor(situation.objective)), present_(situation.way) {
    for (size_t j = 0; j < situation.ways.size(); ++j) {
      if (situation.ways[j].size() > 1) open_.push_back(j);
    }
  }

  WayChoice Run() {
    if (open_.empty()) return {.ways = present_};
    reference_ = *Judge(present_);
    std::vector<size_t> best = present_;
    double score = 0;
    for (const std::vector<size_t>& start : {present_, Quietest()}) {
      auto [ways, reached] = Descend(start);
      if (reached > score + kLeastGain) best = ways, score = reached;
    }
    if (Combinations() <= kFewCombinations) TryAll(&best, &score);
    WayChoice choice{.ways = best, .evaluations = spent_, .complete = !cut_short_};
    Explain(best, score, &choice);
    return choice;
  }

 private:
  bool Affordable() const {
    return static_cast<double>(spent_) < kBudget * static_cast<double>(situation_.evaluations) &&
           static_cast<double>(work_) < kBudget * static_cast<double>(situation_.work);
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
    Outcome best = Evaluate(situation, plan, kPlanHorizon);
    plan.classes = ClassesBy(situation, plan.jobs, CorrectedIntensity(situation.capacity, plan.jobs));
    const Outcome classed = Evaluate(situation, plan, kPlanHorizon);
    spent_ += 2;
    work_ += best.work + classed.work;
    if (ScoreOf(weights_, classed, best) > 0) best = classed;
    at->second = best;
    return best;
  }

  double Score(const std::vector<size_t>& ways) {
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

  std::pair<std::vector<size_t>, double> Descend(std::vector<size_t> ways) {
    double score = Score(ways);
    for (int round = 0; round < kMostRounds; ++round) {
      bool better = false;
      for (const size_t j : open_) {
        for (size_t w = 0; w < situation_.ways[j].size(); ++w) {
          std::vector<size_t> trial = ways;
          if (std::exchange(trial[j], w) == w) continue;
          const double reached = Score(trial);
          if (reached <= score + kLeastGain) continue;
          ways = std::move(trial);
          score = reached;
          better = true;
        }
      }
      if (!better) break;
    }
    return {std::move(ways), score};
  }

  size_t Combinations() const {
    size_t count = 1;
    for (const size_t j : open_) count = std::min(count * situation_.ways[j].size(), kFewCombinations + 1);
    return count;
  }

  void TryAll(std::vector<size_t>* best, double* score) {
    std::vector<size_t> ways = present_;
    for (const size_t j : open_) ways[j] = 0;
    for (size_t place = 0; place < open_.size();) {
      const double reached = Score(ways);
      if (reached > *score + kLeastGain) *best = ways, *score = reached;
      for (place = 0; place < open_.size(); ++place) {
        if (++ways[open_[place]] < situation_.ways[open_[place]].size()) break;
        ways[open_[place]] = 0;
      }
    }
  }

  void Explain(const std::vector<size_t>& ways, double score, WayChoice* choice) {
    const std::optional<Outcome> chosen = Judge(ways);
    for (const size_t j : open_) {
      const std::string& name = situation_.ways[j][ways[j]].name;
      if (ways[j] == present_[j]) {
        choice->why.push_back(fmt::format("{}: {}, which is best alone", situation_.names[j], name));
        continue;
      }
      std::vector<size_t> back = ways;
      back[j] = present_[j];
      const std::optional<Outcome> forced = Judge(back);
      std::string line = fmt::format("{}: {} in place of {}, which is best alone ({:.4g} s, alone {:.4g} s)", situation_.names[j], name,
                                     situation_.ways[j][present_[j]].name, situation_.ways[j][present_[j]].alone.count(),
                                     situation_.ways[j][ways[j]].alone.count());
      if (forced && chosen && score > 0) {
        line += fmt::format("; forced back: GPU use {:.4f} for {:.4f}, mean slow-down {:.4f} for {:.4f}", forced->gpu_use, chosen->gpu_use,
                            forced->mean_slowdown, chosen->mean_slowdown);
      }
      choice->why.push_back(std::move(line));
    }
  }

  const Situation& situation_;
  const ScoreWeights weights_;
  const std::vector<size_t> present_;
  std::vector<size_t> open_;                            // jobs that have a choice
  std::map<std::vector<size_t>, Outcome> judged_;
  Outcome reference_;
  int64_t spent_ = 0, work_ = 0;
  bool cut_short_ = false;
};

}  // namespace

FluidJob FluidOf(const RoutableJob& job) {
  std::vector<BurstTimes> bursts = job.bursts;
  if (bursts.empty()) bursts.push_back({job.release, job.compute});
  return {.gpus = job.gpus, .compute = job.compute, .bursts = std::move(bursts)};
}

Situation WithWays(const Situation& situation, const std::vector<size_t>& ways) {
  Situation other = situation;
  const auto state = std::make_shared<FluidSimulation>(*situation.state);
  state->set_trace(nullptr);
  for (size_t j = 0; j < ways.size(); ++j) {
    if (ways[j] == situation.way[j]) continue;
    const SituationWay& way = situation.ways[j][ways[j]];
    other.jobs[j] = way.job;
    other.alone[j] = way.alone;
    other.way[j] = ways[j];
    state->Replace(situation.slots[j], FluidOf(way.job));
  }
  other.state = state;
  return other;
}

WayChoice ChooseWays(const Situation& situation) { return WayChooser(situation).Run(); }

}  // namespace weft::planner::jobs
