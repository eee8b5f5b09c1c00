// What PlanSearch holds: cost model, space and search, or an answer that needed no search. Internal to planner.
#pragma once

#include <optional>

#include "planner/group_plan.h"
#include "planner/planner.h"
#include "planner/search/branch_and_bound.h"

namespace weft::planner {

/// Errors: kInvalidArgument for a job or cluster that makes no sense (names the field, its value and what was expected).
[[nodiscard]] Status CheckJob(const JobSpec& job, const ClusterSpec& cluster);

/// Tokens and FLOP/s that an iteration of this time comes to, into `predicted`.
void FillRates(const CostModel& model, Seconds iteration, Prediction& predicted);

class PlanSearch::Impl {
 public:
  explicit Impl(const PlanOptions& options) : options_(options) {}

  /// The answer is known.
  void Answered(PlanAnswer answer) { answer_ = std::move(answer); }
  /// A search is to be made.
  void Begin(CostModel model);
  /// A plan that treats the cluster's groups differently competes with those that treat them alike.
  void Compete(GroupPlan plan) { groups_ = std::move(plan); }

  void Work(const std::stop_token& stop);
  PlanProgress Progress() const;
  PlanAnswer Finish();

 private:
  using Search = BranchAndBound<StrategySpace>;
  void FillPlans(PlanAnswer& answer, CostModel::Scratch& scratch) const;
  JobPlan MakePlan(const Search::Found& found, CostModel::Scratch& scratch) const;

  void AddGroups(PlanAnswer& answer) const;

  PlanOptions options_;
  std::optional<GroupPlan> groups_;
  std::optional<PlanAnswer> answer_;
  std::optional<CostModel> model_;
  std::optional<StrategySpace> space_;
  std::optional<Search> search_;
};

}  // namespace weft::planner
