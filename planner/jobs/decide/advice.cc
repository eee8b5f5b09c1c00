#include "planner/jobs/decide/advice.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/parts.h"
#include "planner/jobs/decide/rules.h"
#include "planner/jobs/decide/search.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kAdviceHorizon = 400;   // iterations of the slowest job, that both sides are judged by
constexpr double kLeastGain = 0.02;      // of the job's iterations and of goodput: less is what the model is wrong by

class Adviser {
 public:
  Adviser(const Situation& situation, const Decision& in_force, Seconds restart, DecideBudget budget)
      : situation_(situation), in_force_(in_force), restart_(restart), budget_(std::move(budget)),
        now_(Evaluate(situation, MakeTrial(situation, in_force), kAdviceHorizon)) {}

  std::vector<RestartAdvice> Run() {
    std::vector<Trial> best;             // of each job
    for (size_t j = 0; j < situation_.ways.size(); ++j) {
      Trial most{now_.gpu_use, j, situation_.way[j]};
      for (size_t w = 0; w < situation_.ways[j].size() && trials_ < kMostAdviceTrials; ++w) {
        if (w == situation_.way[j] || situation_.ways[j][w].alone.count() >= Iteration(now_, j)) continue;
        ++trials_;
        const double use = Quick(j, w);
        if (use > most.use) most = {use, j, w};
      }
      if (most.way != situation_.way[j]) best.push_back(most);
    }
    std::stable_sort(best.begin(), best.end(), [](const Trial& a, const Trial& b) { return a.use > b.use; });
    if (best.size() > kMostAdvised) best.resize(kMostAdvised);
    std::vector<RestartAdvice> advice;
    for (const Trial& trial : best) {
      if (std::optional<RestartAdvice> one = Advice(trial.job, trial.way)) advice.push_back(*std::move(one));
    }
    return advice;
  }

 private:
  struct Trial {
    double use;
    size_t job, way;
  };

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

  Situation With(size_t j, size_t w, Seconds pause) const {
    std::vector<size_t> ways = situation_.way;
    ways[j] = w;
    Situation other = WithWays(situation_, ways, pause);
    other.present[j].clear();
    return other;
  }

  /// The situation once the job is back: who sends when depends on how long it was away.
  Situation Later(const Situation& situation, const TrialPlan& plan) const {
    Situation later = situation;
    const auto state = std::make_shared<FluidSimulation>(situation.state->Fork());
    std::vector<FluidSetting> settings(state->jobs());
    for (size_t i = 0; i < plan.jobs.size(); ++i) {
      settings[situation.slots[i]] = {LoadsOf(plan.jobs[i]), plan.classes[i], plan.gates[i]};
    }
    state->Apply(std::move(settings));
    const Seconds until = state->now() + restart_;
    while (state->Run(until)) {
    }
    later.state = state;
    later.horizon -= restart_;
    return later;
  }

  /// GPU use when job j is run so, and all others go on as they do.
  double Quick(size_t j, size_t w) const {
    const Situation other = With(j, w, Seconds(0));
    Decision decision = in_force_;
    JobPaths start = in_force_.paths;
    start[j] = BalancedPaths(other)[j];
    decision.paths[j] = SelfAwarePaths(other, std::move(start))[j];
    decision.gates[j] = {};
    return Evaluate(other, MakeTrial(other, decision), kFinalHorizon).gpu_use;
  }

  /// What comes of it once all is planned for it.
  std::optional<RestartAdvice> Advice(size_t j, size_t w) const {
    if (restart_ >= situation_.horizon) return std::nullopt;
    Situation other = With(j, w, restart_);
    for (std::vector<SituationWay>& ways : other.ways) ways.clear();
    const DecideBudget budget{budget_.evaluations, budget_.work, budget_.stop};
    const TrialPlan plan = MakeTrial(other, DecideJobs(other, budget));
    const Outcome then = Evaluate(Later(other, plan), plan, kAdviceHorizon);
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
  const DecideBudget budget_;
  const Outcome now_;
  int trials_ = 0;
};

}  // namespace

std::vector<RestartAdvice> AdviseRestarts(const Situation& situation, const Decision& in_force, Seconds restart,
                                          const DecideBudget& budget) {
  const bool choice = std::ranges::any_of(situation.ways, [](const auto& ways) { return ways.size() > 1; });
  if (!choice || !CanSimulate(situation, OnPaths(situation, in_force.paths), budget)) return {};
  return Adviser(situation, in_force, restart, budget).Run();
}

}  // namespace weft::planner::jobs
