#include "planner/flows/compression.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "planner/fabric/min_cut.h"

namespace weft::planner::inline flows {
namespace {

constexpr double kResolution = 1 << 30;

}  // namespace

double CompressionLoss(const CompressionProblem& problem, const std::vector<int32_t>& classes) {
  double loss = 0;
  for (const Contention& c : problem.contentions) {
    if (classes[c.first] == classes[c.second]) loss += problem.weight[c.first];
  }
  return loss;
}

/// loss[k][i] of jobs 0 … i-1 in k classes is min over j of loss[k-1][j] + inside(j, i), where inside(j, i) is the weight of
/// contentions within [j, i). Rows of `inside` are made while j descends: inside(j, i) = inside(j+1, i) + what j has there.
std::vector<int32_t> CompressOrder(const CompressionProblem& problem) {
  const size_t n = problem.weight.size();
  const size_t classes = static_cast<size_t>(problem.classes);
  WEFT_CHECK(problem.classes >= 1, "less than one class");
  std::vector<std::vector<double>> inside(n + 1, std::vector<double>(n + 1, 0));
  std::vector<std::vector<size_t>> later(n);
  for (const Contention& c : problem.contentions) later[c.first].push_back(c.second);
  for (size_t j = n; j-- > 0;) {
    for (const size_t i : later[j]) inside[j][i + 1] += problem.weight[j];
    double own = 0;
    for (size_t i = j + 1; i <= n; ++i) {
      own += inside[j][i];
      inside[j][i] = inside[j + 1][i] + own;
    }
  }
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> loss(classes + 1, std::vector<double>(n + 1, infinity));
  std::vector<std::vector<size_t>> from(classes + 1, std::vector<size_t>(n + 1, 0));
  loss[0][0] = 0;
  for (size_t k = 1; k <= classes; ++k) {
    for (size_t i = 0; i <= n; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        const double candidate = loss[k - 1][j] + inside[j][i];
        if (candidate < loss[k][i]) loss[k][i] = candidate, from[k][i] = j;
      }
    }
  }
  std::vector<int32_t> result(n, 0);
  size_t end = n;
  for (size_t k = classes; k > 0; --k) {
    for (size_t i = from[k][end]; i < end; ++i) result[i] = static_cast<int32_t>(k - 1);
    end = from[k][end];
  }
  return result;
}

/// With c in 0 … K-1 let x(i, k) be true where c_i ≥ k, for k = 1 … K-1; x(i, 0) is true, x(i, K) false; true is the source's
/// side of the cut. An edge is cut where its tail is true and its head false, so these cost what they should:
///   x(i, k+1) → x(i, k), uncuttable: the numbers are those of one class;
///   x(i, k) → x(j, k), uncuttable: c_i ≤ c_j;
///   x(i, k) → x(j, k+1), w_i: cut where c_j ≤ k ≤ c_i; as c_i ≤ c_j that is c_i = c_j = k, once at most.
std::vector<int32_t> CompressPriorities(const CompressionProblem& problem) {
  const size_t n = problem.weight.size();
  const size_t classes = static_cast<size_t>(problem.classes);
  WEFT_CHECK(problem.classes >= 1, "less than one class");
  const double largest = n == 0 ? 0 : *std::max_element(problem.weight.begin(), problem.weight.end());
  const size_t source = n * (classes - 1), sink = source + 1;
  const auto node = [&](size_t i, size_t k) {
    return k == 0 ? source : k == classes ? sink : i * (classes - 1) + k - 1;
  };
  MinCut cut(sink + 1);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 1; k + 1 < classes; ++k) cut.AddEdge(node(i, k + 1), node(i, k), MinCut::kUncuttable);
  }
  for (const Contention& c : problem.contentions) {
    WEFT_CHECK(c.first < c.second && c.second < n, "a contention that is not in order");
    const double relative = largest > 0 ? problem.weight[c.first] / largest : 0;
    const int64_t weight = std::llround(relative * kResolution);
    for (size_t k = 1; k < classes; ++k) cut.AddEdge(node(c.first, k), node(c.second, k), MinCut::kUncuttable);
    for (size_t k = 0; k < classes; ++k) cut.AddEdge(node(c.first, k), node(c.second, k + 1), weight);
  }
  const std::vector<bool> side = cut.SourceSide(source, sink);
  std::vector<int32_t> result(n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 1; k < classes; ++k) result[i] += side[node(i, k)];
  }
  return result;
}

}  // namespace weft::planner::flows
