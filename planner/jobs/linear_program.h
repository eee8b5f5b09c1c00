// A linear programme that grows by columns: minimise cost · x, A x ≤ upper, x ≥ 0. The solver is Clp, seen by one source.
//
//   LinearProgram program({1.0, 1.0});                    // two rows and their upper bounds
//   program.AddColumn(-3, {{0, 1.0}});
//   const LinearSolution solution = program.Solve();      // from where the last Solve() stopped
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace weft::planner::inline jobs {

struct RowEntry {
  size_t row;
  double value;
};

struct LinearSolution {
  bool optimal = false;
  double objective = 0;
  std::vector<double> x;        ///< per column
  std::vector<double> prices;   ///< per row, ≥ 0: what one unit more of its bound would save
};

class LinearProgram {
 public:
  /// Requires: bounds ≥ 0, so that x = 0 is feasible.
  explicit LinearProgram(const std::vector<double>& upper);
  ~LinearProgram();
  LinearProgram(const LinearProgram&) = delete;
  LinearProgram& operator=(const LinearProgram&) = delete;

  /// A column with 0 ≤ x ≤ most; returns its index. Requires: rows distinct and in range.
  size_t AddColumn(double cost, const std::vector<RowEntry>& entries, double most = 1e30);

  /// By the primal simplex method, warm after added columns. The same calls give the same answer.
  LinearSolution Solve();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::planner::jobs
