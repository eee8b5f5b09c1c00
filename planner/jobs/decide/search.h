// The search of Weft's policy: judges plans by running the present state forward, and improves the best by moves of
// classes, gates and paths. Annealed where many moves are affordable, downhill otherwise.
// Internal to planner/jobs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

/// Iterations of the slowest job that a plan is judged by, and a finalist, unless set_horizon() says otherwise.
inline constexpr double kPlanHorizon = 20, kFinalHorizon = 100;

/// What an outcome is worth against another: the sum of the logarithms of what it gains, weighed; what it loses
/// counts `loss` times.
struct ScoreWeights {
  double gpu_use = 6, mean_slowdown = 1, p99_slowdown = 2.5;
  double loss = 3;
};
ScoreWeights WeightsFor(SimulationObjective objective);
double ScoreOf(const ScoreWeights& weights, const Outcome& outcome, const Outcome& reference);

/// Whether the plan holds nobody back.
bool IsOpen(const TrialPlan& plan);

struct JudgedTrial {
  std::string name;
  TrialPlan plan;
  Outcome outcome;
  double score = -1e300;
};

class WeftSearch {
 public:
  WeftSearch(const Situation& situation, DecideBudget budget);

  /// What scores are relative to: the best values that plans by simple rules reach, each by itself.
  void set_reference(Outcome reference) { reference_ = std::move(reference); }
  const Outcome& reference() const { return reference_; }

  /// Iterations of the slowest job that plans, and finalists, are judged by from now on.
  void set_horizon(double plan, double final) { horizon_ = plan, final_horizon_ = final; }
  double horizon() const { return horizon_; }
  double final_horizon() const { return final_horizon_; }

  /// The outcome and score of a plan; never refused.
  JudgedTrial Judge(std::string name, TrialPlan plan) { return Judge(std::move(name), std::move(plan), horizon_); }
  JudgedTrial Judge(std::string name, TrialPlan plan, double iterations);
  double Score(const Outcome& outcome) const { return ScoreOf(weights_, outcome, reference_); }
  /// Keeps and confirms the candidate if it is the best, of all or of those without gates.
  void Offer(JudgedTrial candidate);
  /// What plans by simple rules reach over the final horizon.
  void set_final_reference(Outcome reference) { final_reference_ = std::move(reference); }
  const Outcome& final_reference() const { return final_reference_; }
  double FinalScore(const Outcome& outcome) const { return ScoreOf(weights_, outcome, final_reference_); }
  /// Judges the plan over the final horizon and remembers it if it is among the best few there: what only fits the next
  /// few iterations is no plan. Returns the plan as judged, which others may drive out of the list later.
  JudgedTrial Confirm(const JudgedTrial& candidate);
  /// Judges and offers, unless the budget is spent. Returns whether the budget allowed it.
  bool Try(std::string name, TrialPlan plan);
  /// Nothing is left to gain: nobody waits for anybody.
  static bool Untouched(const Outcome& outcome);
  /// Some link is asked for more than it has when all jobs of the plan send at once.
  bool CanCollide(const TrialPlan& plan) const;
  enum class From : uint8_t {
    kBest,       ///< the best plan
    kFinalist,   ///< the best over the final horizon
    kOpen,       ///< the best that holds nobody back, to others that do not
  };
  /// Moves from there until `share` of what is left of the budget is spent.
  void Improve(From from, double share);

  /// The best few over the final horizon, by falling score, with their outcomes there.
  const std::vector<JudgedTrial>& finalists() const { return finalists_; }
  /// The best over the final horizon that holds nobody back, whether or not it is among these.
  const JudgedTrial& open_finalist() const { return open_finalist_; }
  int64_t spent() const { return spent_; }

 private:
  /// Share of the budget that is spent, by plans or by their work, whichever is more.
  double Spent() const {
    if (budget_.stop.stop_requested()) return 1;
    return std::max(static_cast<double>(spent_) / static_cast<double>(evaluations_),
                    static_cast<double>(work_) / static_cast<double>(most_work_));
  }
  size_t Pick(size_t n) { return static_cast<size_t>(random_() % n); }
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  size_t PickLoser();
  bool Move(TrialPlan* plan, bool gates);
  bool Accepts(const JudgedTrial& candidate, double temperature);
  bool MoveClass(TrialPlan* plan);
  bool MoveGate(TrialPlan* plan);
  bool MovePath(TrialPlan* plan);
  bool Align(TrialPlan* plan, size_t j);
  std::vector<double> Overloads(const TrialPlan& plan) const;
  std::vector<std::pair<size_t, size_t>> FlowsOver(const TrialPlan& plan, LinkId link) const;
  size_t LeastAskedFor(const RoutableFlow& flow, size_t old, const std::vector<double>& overload);

  const Situation& situation_;
  const ScoreWeights weights_;
  const DecideBudget budget_;
  const int64_t evaluations_, most_work_;
  double horizon_ = kPlanHorizon, final_horizon_ = kFinalHorizon;   // iterations
  bool choices_ = false;                // some flow has several paths
  Outcome reference_, final_reference_;
  JudgedTrial best_, best_open_, current_;
  std::vector<JudgedTrial> finalists_;    // by falling score over the final horizon
  JudgedTrial open_finalist_;
  int64_t spent_ = 0, work_ = 0;
  std::mt19937_64 random_;
};

/// Every period longer by a factor, which leaves room for what does not fit exactly.
std::vector<Gate> Paced(const Situation& situation, std::vector<Gate> gates, double factor);

}  // namespace weft::planner::jobs
