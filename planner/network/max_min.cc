#include "planner/network/max_min.h"

#include <algorithm>
#include <set>

#include "common/check.h"
#include "planner/network/filling.h"
#include "planner/network/flow_classes.h"

namespace weft::planner::inline network {
namespace {

/// Adds the class of `flow`, `count` times, to the problem.
void AddEntry(const MaxMinFlow& flow, int32_t count, FillingProblem* problem) {
  WEFT_CHECK(flow.weight > 0, "a flow's weight is not positive");
  WEFT_CHECK(flow.priority >= 0, "a flow's priority is negative");
  for (const LinkId link : flow.links) problem->rows.push_back(link.value());
  problem->begin.push_back(static_cast<uint32_t>(problem->rows.size()));
  problem->weight.push_back(flow.weight * count);
  problem->cap.push_back(flow.cap.value() < kNoCap ? flow.cap.value() / flow.weight : kNoLevel);
}

/// Takes what the problem's entries got from their rows.
void TakeAway(const FillingProblem& problem, const FillingSolution& solution, std::vector<double>* left) {
  for (size_t e = 0; e < problem.entries(); ++e) {
    for (uint32_t i = problem.begin[e]; i < problem.begin[e + 1]; ++i) {
      (*left)[static_cast<size_t>(problem.rows[i])] -= solution.level[e] * problem.weight[e];
    }
  }
  for (size_t r = 0; r < left->size(); ++r) {
    if ((*left)[r] < kDust * problem.capacity[r]) (*left)[r] = 0;
  }
}

}  // namespace

std::vector<BitsPerSecond> MaxMinRates(std::span<const BitsPerSecond> capacity, std::span<const MaxMinFlow> flows) {
  const FlowClasses classes = MergeFlows(flows);
  std::set<int32_t> priorities;
  for (const MaxMinFlow& flow : flows) {
    if (priorities.empty() || flow.priority != *priorities.rbegin()) priorities.insert(flow.priority);
  }
  std::vector<double> left;
  left.reserve(capacity.size());
  for (const BitsPerSecond c : capacity) left.push_back(c.value());
  std::vector<BitsPerSecond> class_rate(classes.representative.size());
  for (const int32_t priority : priorities) {
    FillingProblem problem{.capacity = left};
    std::vector<size_t> members;
    for (size_t c = 0; c < classes.representative.size(); ++c) {
      const MaxMinFlow& flow = flows[classes.representative[c]];
      if (flow.priority != priority) continue;
      AddEntry(flow, classes.count[c], &problem);
      members.push_back(c);
    }
    const FillingSolution solution = Fill(problem);
    for (size_t e = 0; e < members.size(); ++e) {
      const MaxMinFlow& flow = flows[classes.representative[members[e]]];
      class_rate[members[e]] =
          solution.held_by[e] == kHeldByCap ? flow.cap : BitsPerSecond(solution.level[e] * flow.weight);
    }
    if (priority != *priorities.rbegin()) TakeAway(problem, solution, &left);
  }
  std::vector<BitsPerSecond> rates;
  rates.reserve(flows.size());
  for (const size_t c : classes.of_flow) rates.push_back(class_rate[c]);
  return rates;
}

}  // namespace weft::planner::network
