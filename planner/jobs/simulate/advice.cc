#include "planner/jobs/simulate/advice.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "planner/jobs/simulate/evaluate.h"
#include "planner/jobs/simulate/weft_parts.h"
#include "planner/jobs/simulate/weft_search.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kLeastGain = 0.02;      // of the job's iterations and of goodput: less is what the model is wrong by

class Adviser {
 public:
  Adviser(const Situation& situation, const Decision& in_force, Seconds restart)
      : situation_(situation), in_force_(in_force), restart_(restart),
        now_(Evaluate(situation, MakeTrial(situation, in_force), kFinalHorizon)) {}

  std::optional<RestartAdvice> For(size_t j) {
    std::optional<size_t> best;
    double most = now_.gpu_use;
    for (size_t w = 0; w < situation_.ways[j].size() && trials_ < kMostAdviceTrials; ++w) {
      if (w == situation_.way[j] || situation_.ways[j][w].alone.count() >= Iteration(now_, j)) continue;
      ++trials_;
      const double use = Quick(j, w);
      if (use > most) best = w, most = use;
    }
    if (!best) return std::nullopt;
    return Advice(j, *best);
  }

 private:
  double Iteration(const Outcome& outcome, size_t j) const { return outcome.slowdown[j] * situation_.best_alone[j].count(); }

  double Gpus() const {
    double gpus = 0;
    for (const RoutableJob& job : situation_.jobs) gpus += job.gpus;
    return gpus;
  }

  /// GPU seconds that an iteration of the job is worth.
  double Work(size_t j) const {
    const RoutableJob& job = situation_.jobs[j];
    return situation_.useful[j] > 0 ? situation_.useful[j] : job.gpus * job.compute.count();
  }

  Situation With(size_t j, size_t w) const {
    std::vector<size_t> ways = situation_.way;
    ways[j] = w;
    Situation other = WithWays(situation_, ways);
    other.present[j].clear();
    return other;
  }

  /// GPU use when job j is run so, and all others go on as they do.
  double Quick(size_t j, size_t w) const {
    const Situation other = With(j, w);
    Decision decision = in_force_;
    JobPaths start = in_force_.paths;
    start[j] = BalancedPaths(other)[j];
    decision.paths[j] = SelfAwarePaths(other, std::move(start))[j];
    decision.gates[j] = {};
    return Evaluate(other, MakeTrial(other, decision), kFinalHorizon).gpu_use;
  }

  /// What comes of it once all is planned for it.
  std::optional<RestartAdvice> Advice(size_t j, size_t w) const {
    Situation other = With(j, w);
    for (std::vector<SituationWay>& ways : other.ways) ways.clear();
    other.evaluations /= 4, other.work /= 4;
    const Outcome then = Evaluate(other, MakeTrial(other, DecideWeft(other)), kFinalHorizon);
    const double before = Iteration(now_, j), after = Iteration(then, j);
    const double gain = then.gpu_use - now_.gpu_use;
    if (after > before * (1 - kLeastGain) || gain < kLeastGain * now_.gpu_use) return std::nullopt;
    const double lost = Work(j) / before * restart_.count();
    const Seconds pays_after(lost / (gain * Gpus()));
    if (restart_ + pays_after > situation_.horizon) return std::nullopt;
    return RestartAdvice{.at = situation_.state->now(), .job = situation_.names[j], .way = situation_.ways[j][w].name,
                         .now = Seconds(before), .then = Seconds(after), .goodput_now = now_.gpu_use, .goodput_then = then.gpu_use,
                         .pays_after = pays_after};
  }

  const Situation& situation_;
  const Decision& in_force_;
  const Seconds restart_;
  const Outcome now_;
  int trials_ = 0;
};

}  // namespace

std::vector<RestartAdvice> AdviseRestarts(const Situation& situation, const Decision& in_force, Seconds restart) {
  std::vector<RestartAdvice> advice;
  const bool choice = std::ranges::any_of(situation.ways, [](const auto& ways) { return ways.size() > 1; });
  if (!choice) return advice;
  Adviser adviser(situation, in_force, restart);
  for (size_t j = 0; j < situation.ways.size(); ++j) {
    if (situation.ways[j].size() < 2) continue;
    if (std::optional<RestartAdvice> one = adviser.For(j)) advice.push_back(*std::move(one));
  }
  return advice;
}

}  // namespace weft::planner::jobs
