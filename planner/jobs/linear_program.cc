#include "planner/jobs/linear_program.h"

#include <coin/Clp_C_Interface.h>

#include <algorithm>

namespace weft::planner::inline jobs {

struct LinearProgram::Impl {
  Clp_Simplex* model = Clp_newModel();
  size_t rows = 0, columns = 0;
  ~Impl() { Clp_deleteModel(model); }
};

LinearProgram::LinearProgram(const std::vector<double>& upper) : impl_(std::make_unique<Impl>()) {
  impl_->rows = upper.size();
  Clp_setLogLevel(impl_->model, 0);
  const std::vector<double> lower(upper.size(), -1e30);
  const std::vector<CoinBigIndex> starts(upper.size() + 1, 0);
  Clp_addRows(impl_->model, static_cast<int>(upper.size()), lower.data(), upper.data(), starts.data(), nullptr, nullptr);
}

LinearProgram::~LinearProgram() = default;

size_t LinearProgram::AddColumn(double cost, const std::vector<RowEntry>& entries, double most) {
  std::vector<int> rows;
  std::vector<double> values;
  for (const RowEntry& entry : entries) {
    rows.push_back(static_cast<int>(entry.row));
    values.push_back(entry.value);
  }
  const double least = 0;
  const CoinBigIndex starts[2] = {0, static_cast<CoinBigIndex>(rows.size())};
  Clp_addColumns(impl_->model, 1, &least, &most, &cost, starts, rows.data(), values.data());
  return impl_->columns++;
}

LinearSolution LinearProgram::Solve() {
  LinearSolution solution;
  Clp_primal(impl_->model, 0);
  solution.optimal = Clp_status(impl_->model) == 0;
  solution.objective = Clp_objectiveValue(impl_->model);
  const double* x = Clp_primalColumnSolution(impl_->model);
  solution.x.assign(x, x + impl_->columns);
  const double* dual = Clp_dualRowSolution(impl_->model);
  for (size_t r = 0; r < impl_->rows; ++r) solution.prices.push_back(std::max(0.0, -dual[r]));
  return solution;
}

}  // namespace weft::planner::jobs
