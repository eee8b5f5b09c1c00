// What PlanSearch holds: cost model, space and search, or an answer that needed no search. Internal to planner.
#pragma once

#include <optional>

#include "planner/planner.h"
#include "planner/search/branch_and_bound.h"

namespace weft::planner {

class PlanSearch::Impl {
 public:
  explicit Impl(const PlanOptions& options) : options_(options) {}

  /// The answer is known.
  void Answered(PlanAnswer answer) { answer_ = std::move(answer); }
  /// A search is to be made.
  void Begin(CostModel model);

  void Work(const std::stop_token& stop);
  PlanProgress Progress() const;
  PlanAnswer Finish();

 private:
  using Search = BranchAndBound<StrategySpace>;
  void FillPlans(PlanAnswer& answer, CostModel::Scratch& scratch) const;
  JobPlan MakePlan(const Search::Found& found, CostModel::Scratch& scratch) const;

  PlanOptions options_;
  std::optional<PlanAnswer> answer_;
  std::optional<CostModel> model_;
  std::optional<StrategySpace> space_;
  std::optional<Search> search_;
};

}  // namespace weft::planner
