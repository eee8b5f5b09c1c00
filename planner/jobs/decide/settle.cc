#include "planner/jobs/decide/settle.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/jobs/decide/parts.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kNotWorse = 1e-3;        // relative: less is rounding of a finite simulation
constexpr uint64_t kWorlds = 4;           // in which profiles are off
constexpr size_t kManyJobs = 48;          // from which few hash seeds are simulated
constexpr int32_t kFewSeeds = 4;

std::string Uses(double now, double before, const char* how_known = "") {
  return fmt::format("simulated GPU use {:.1f} % in place of {:.1f} %{}", 100 * now, 100 * before, how_known);
}

/// Every flow on one way, which a hash picks; one class.
TrialPlan Hashed(const Situation& situation, int32_t seed) {
  JobPaths paths;
  for (size_t j = 0; j < situation.jobs.size(); ++j) {
    std::vector<size_t>& of_job = paths.emplace_back();
    for (size_t f = 0; f < situation.jobs[j].flows.size(); ++f) {
      of_job.push_back(HashedPath(static_cast<uint64_t>(seed), situation.keys[j], f, situation.jobs[j].flows[f].WholePaths()));
    }
  }
  std::vector<PeriodicJob> jobs = OnPaths(situation, paths);
  return {std::move(paths), std::move(jobs), std::vector<int32_t>(situation.jobs.size(), 0), std::vector<Gate>(situation.jobs.size())};
}

/// GPU use of plain ECMP, mean over hash seeds: as profiles are, and in each world.
class EcmpUse {
 public:
  EcmpUse(const Situation& situation, double iterations) : situation_(situation), iterations_(iterations) {
    const size_t n = situation.jobs.size();
    int32_t seeds = std::max<int32_t>(1, situation.measured->hash_seeds);
    if (n > kManyJobs || n == 1) seeds = std::min(seeds, kFewSeeds);
    for (int32_t seed = 0; seed < seeds; ++seed) hashed_.push_back(Hashed(situation, seed));
    for (uint64_t world = 0; world <= kWorlds; ++world) {
      double sum = 0;
      for (const TrialPlan& plan : hashed_) sum += Use(plan, world);
      use_.push_back(sum / static_cast<double>(hashed_.size()));
    }
  }

  double plain() const { return use_[0]; }

  /// Least lead of an open plan, relative.
  double Margin(const TrialPlan& plan) const {
    double worst = 1e300;
    for (uint64_t world = 0; world <= kWorlds; ++world) {
      worst = std::min(worst, use_[world] > 0 ? Use(plan, world) / use_[world] - 1 : 0);
    }
    return worst;
  }

 private:
  double Use(const TrialPlan& plan, uint64_t world) const {
    return Evaluate(situation_, plan, iterations_, {world, world == 0 ? 0 : situation_.measured->profile_error}).gpu_use;
  }

  const Situation& situation_;
  const double iterations_;
  std::vector<TrialPlan> hashed_;   // per seed
  std::vector<double> use_;         // per world; the first has no errors
};

}  // namespace

JudgedTrial Settle(const Situation& situation, SettleChoices choices, Decision* decision) {
  const MeasuredRules& rules = *situation.measured;
  const ScoreWeights weights = WeightsFor(situation.objective);
  const auto gain = [&](const JudgedTrial& one, const JudgedTrial& other) {
    return ScoreOf(weights, one.outcome, other.outcome) / weights.gpu_use;
  };
  const auto reject = [&](const char* what, double use, double now, double expected, const char* how_known = "") {
    decision->rejected.push_back(fmt::format("{}: simulated GPU use {:.1f} % against {:.1f} % now{}, expected {:.0f} % more to be worth "
                                             "the change", what, 100 * use, 100 * now, how_known, 100 * expected));
  };
  const auto differ = [&](const JudgedTrial& one, const JudgedTrial& other) {
    const auto classes = [&](const JudgedTrial& trial) { return LowestClasses(situation, trial.plan.jobs, trial.plan.classes); };
    return one.plan.paths != other.plan.paths || classes(one) != classes(other);
  };
  JudgedTrial kept = std::move(choices.present);
  const double present = kept.outcome.gpu_use;
  if (choices.open && !IsOpen(kept.plan)) {
    // Without windows it was as measured then, whatever the simulation hopes for.
    const double without = rules.use > 0 ? std::min(rules.use, choices.open->outcome.gpu_use) : choices.open->outcome.gpu_use;
    if (without > present * (1 + std::max(0.0, rules.shift_gain))) {
      kept = *std::move(choices.open);
      decision->why.push_back("no time shifts any more: " + Uses(kept.outcome.gpu_use, present));
    }
  } else if (choices.open && differ(*choices.open, kept)) {
    const char* what = choices.open->plan.paths == kept.plan.paths ? "priorities by what going first is worth"
                       : situation.classes > 1                   ? "other paths, and priorities by what going first is worth on them"
                                                                    : "other paths";
    if (gain(*choices.open, kept) > rules.class_gain) {
      kept = *std::move(choices.open);
      decision->why.push_back(fmt::format("{}: {}", what, Uses(kept.outcome.gpu_use, present)));
    } else {
      reject(what, choices.open->outcome.gpu_use, present, rules.class_gain);
    }
  }
  if (!choices.gated) return kept;
  // First windows must beat what is measured: bursts that keep out of each other's way by themselves need none.
  const bool first = IsOpen(kept.plan) && rules.use > 0;
  const double now = first ? rules.use : kept.outcome.gpu_use, then = choices.gated->outcome.gpu_use;
  const char* how_known = first ? " as measured" : "";
  if (then > now * (1 + rules.shift_gain)) {
    decision->why.push_back("time shifts: " + Uses(then, now, how_known));
    return *std::move(choices.gated);
  }
  reject("time shifts", then, now, rules.shift_gain, how_known);
  return kept;
}

void KeepSafe(const Situation& situation, double iterations, TrialPlan* plan, Decision* decision) {
  const EcmpUse ecmp(situation, iterations);
  decision->default_use = ecmp.plain();
  TrialPlan open = *plan;
  open.gates.assign(open.gates.size(), {});
  const bool raised = std::ranges::count(open.classes, open.classes.front()) != std::ssize(open.classes);
  for (const char* what : {"classes", "paths"}) {
    if (!raised && what[0] == 'c') continue;
    decision->margin = ecmp.Margin(open);
    if (decision->margin >= -kNotWorse) return;
    decision->rejected.push_back(fmt::format("{}: with profiles {:.0f} % wrong, {:.1f} % less GPU use than plain ECMP", what,
                                             100 * situation.measured->profile_error, -100 * decision->margin));
    plan->classes.assign(plan->classes.size(), 0);
    open.classes = plan->classes;
  }
}

double EstimateEcmp(const Situation& situation) {
  double sum = 0;
  for (int32_t seed = 0; seed < kFewSeeds; ++seed) sum += Estimate(situation, Hashed(situation, seed)).gpu_use;
  return sum / kFewSeeds;
}

}  // namespace weft::planner::jobs
