// What PlanSearch holds: cost model, space and search, or an answer that needed no search. Internal to planner.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "planner/plan/group_plan.h"
#include "planner/planner.h"
#include "planner/search/branch_and_bound.h"

namespace weft::planner {

/// Errors: kInvalidArgument for a job or cluster that makes no sense (names the field, its value and what was expected).
[[nodiscard]] Status CheckJob(const JobSpec& job, const ClusterSpec& cluster);

/// Peak of all GPUs together over their number, FLOP/s.
double MeanPeak(const CostModel& model);

/// Tokens and FLOP/s that an iteration of this time comes to, into `predicted`; `gpus`: of the job, with those that idle.
void FillRates(const CostModel& model, int64_t gpus, Seconds iteration, Prediction& predicted);

/// How many of the best by their bounds a search keeps to simulate them.
size_t KeptFor(const PlanOptions& options);

class PlanSearch::Impl {
 public:
  explicit Impl(const PlanOptions& options) : options_(options) {}
  /// Requires: a job, a cluster and options that PlanSearch::Make() has checked.
  [[nodiscard]] static Result<std::unique_ptr<Impl>> Make(const JobSpec& job, const ClusterSpec& cluster,
                                                          const PlanOptions& options);

  /// The answer is known.
  void Answered(PlanAnswer answer) { answer_ = std::move(answer); }
  /// A search is to be made, and the `keep` best by their bounds are to be simulated; strategies that take longer than `most`
  /// seconds are of no interest.
  void Begin(CostModel model, size_t keep, double most = std::numeric_limits<double>::infinity());
  /// One of several programs, of which the fastest plan is wanted.
  void AddProgram(std::unique_ptr<Impl> program) { programs_.push_back(std::move(program)); }
  void SetProblem(const JobSpec& job, const ClusterSpec& cluster);
  /// The search over everything that is legal, beside those of the programs. Requires: SetProblem().
  [[nodiscard]] Status AddWholeSpace();
  /// In place of one search one for each number of GPUs that may work: degree_choice.cc. Errors: kInvalidArgument for a fixed
  /// variable that the program never runs.
  [[nodiscard]] Status AddDegrees(const JobSpec& job, const ClusterSpec& cluster);
  /// A plan that treats the cluster's groups differently competes with those that treat them alike.
  void Compete(GroupPlan plan) { groups_ = std::move(plan); }

  void Work(const std::stop_token& stop);
  PlanProgress Progress() const;
  PlanAnswer Finish();

 private:
  using Search = BranchAndBound<StrategySpace>;

  /// What was found, simulated.
  struct Ranking {
    struct Candidate {
      Search::Node leaf;
      Estimate estimate;
    };
    std::vector<Candidate> candidates;  ///< fastest first; of those that differ by their bucket alone the fastest
    int64_t simulated = 0;
    double rest = 0;                    ///< s: nothing that was not simulated is predicted below
    /// Nothing at all is. Requires: candidates.
    double Bound() const { return std::min(rest, candidates.front().estimate.iteration.count()); }
  };
  Ranking Simulate(CostModel::Scratch& scratch) const;
  void FillFront(const Ranking& ranking, PlanAnswer& answer, CostModel::Scratch& scratch) const;
  /// Those of `all` that no other beats in both, ascending in time, within options_.front_slack.
  std::vector<FrontPoint> FrontOf(std::vector<FrontPoint> all) const;
  void FillPlans(const Ranking& ranking, PlanAnswer& answer, CostModel::Scratch& scratch) const;
  JobPlan MakePlan(const Ranking::Candidate& candidate, double bound, CostModel::Scratch& scratch) const;

  void AddGroups(PlanAnswer& answer) const;

  /// GPUs of the job, with those that idle.
  int64_t JobGpus() const { return job_.gpus > 0 ? job_.gpus : model_->job().gpus; }

  /// Of several degrees' answers: degree_choice.cc.
  PlanAnswer FastestDegree();
  void SayDegrees(const std::vector<PlanAnswer>& answers, PlanAnswer& answer) const;

  /// The fastest plan of a search that has been made, if it found one: program_choice.cc.
  std::optional<JobPlan> FastestSimulated() const;
  /// Of several programs' answers: program_choice.cc.
  PlanAnswer FastestProgram();
  void SayOthers(const std::vector<PlanAnswer>& answers, size_t best, PlanAnswer& answer) const;
  void SayWholeSpace(PlanAnswer& answer) const;
  void Advise(PlanAnswer& answer) const;
  std::optional<JobPlan> FasterThan(const JobSpec& job, Framework rules, Framework prices, double most, Seconds* bound = nullptr) const;
  std::optional<JobPlan> FasterWithPrograms(const JobSpec& job, Framework framework, double most) const;

  PlanOptions options_;
  JobSpec job_;
  ClusterSpec cluster_;
  std::vector<std::unique_ptr<Impl>> programs_;  ///< or degrees of one
  std::unique_ptr<Impl> whole_;
  std::optional<GroupPlan> groups_;
  std::optional<PlanAnswer> answer_;
  std::optional<CostModel> model_;
  std::optional<StrategySpace> space_;
  std::optional<Search> search_;
};

}  // namespace weft::planner
