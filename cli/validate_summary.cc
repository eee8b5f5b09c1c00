#include "cli/validate_summary.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace weft::cli {
namespace {

struct Point {
  double predicted = 0, measured = 0;
  int64_t count = 0;
  int64_t line = 0;
};

double Tau(const std::vector<Point>& points) {
  double agree = 0, predicted_pairs = 0, measured_pairs = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      const double p = points[i].predicted - points[j].predicted, m = points[i].measured - points[j].measured;
      if (p != 0) ++predicted_pairs;
      if (m != 0) ++measured_pairs;
      if (p != 0 && m != 0) agree += (p > 0) == (m > 0) ? 1 : -1;
    }
  }
  return predicted_pairs * measured_pairs == 0 ? 0 : agree / std::sqrt(predicted_pairs * measured_pairs);
}

/// Over pairs whose measured times differ by more than kMeasuredTie; pairs predicted alike count as neither.
void DistinctOrder(const std::vector<Point>& points, SweepSummary& sweep) {
  double agree = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      const double p = points[i].predicted - points[j].predicted, m = points[i].measured - points[j].measured;
      if (std::abs(m) <= kMeasuredTie * std::min(points[i].measured, points[j].measured)) continue;
      ++sweep.distinct_pairs;
      if (p != 0) agree += (p > 0) == (m > 0) ? 1 : -1;
    }
  }
  if (sweep.distinct_pairs > 0) sweep.distinct_tau = agree / static_cast<double>(sweep.distinct_pairs);
}

}  // namespace

ErrorSummary Summarise(std::vector<double> errors) {
  ErrorSummary summary;
  summary.rows = static_cast<int64_t>(errors.size());
  if (errors.empty()) return summary;
  std::sort(errors.begin(), errors.end());
  const auto rank = [&](double share) {
    const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(errors.size())));
    return errors[std::max<size_t>(at, 1) - 1];
  };
  for (const double error : errors) summary.mean += error / static_cast<double>(errors.size());
  summary.median = rank(0.5);
  summary.p90 = rank(0.9);
  summary.worst = errors.back();
  return summary;
}

std::vector<SweepSummary> SummariseSweeps(std::span<const RowPrediction> rows) {
  std::map<std::pair<std::string, std::string>, std::map<std::string, Point>> sweeps;
  for (const RowPrediction& row : rows) {
    if (row.kind != "time" || row.sweep.empty()) continue;
    Point& point = sweeps[{row.file, row.sweep}][row.setting];
    if (point.count == 0) point.line = row.line;
    point.predicted = row.predicted;
    point.measured += row.measured;
    ++point.count;
  }
  std::vector<SweepSummary> summaries;
  for (const auto& [name, settings] : sweeps) {
    if (settings.size() < 2) continue;
    std::vector<Point> points;
    for (const auto& [setting, point] : settings) {
      points.push_back({point.predicted, point.measured / static_cast<double>(point.count), 1, point.line});
    }
    const auto chosen = std::min_element(points.begin(), points.end(),
                                         [](const Point& a, const Point& b) { return a.predicted < b.predicted; });
    const auto best = std::min_element(points.begin(), points.end(),
                                       [](const Point& a, const Point& b) { return a.measured < b.measured; });
    SweepSummary sweep{.file = name.first, .sweep = name.second, .settings = static_cast<int64_t>(points.size())};
    sweep.kendall_tau = Tau(points);
    DistinctOrder(points, sweep);
    sweep.regret = chosen->measured / best->measured - 1;
    sweep.picked_line = chosen->line;
    sweep.best_line = best->line;
    summaries.push_back(std::move(sweep));
  }
  return summaries;
}

OrderSummary SummariseOrder(std::span<const RowPrediction> rows) {
  OrderSummary order;
  for (const SweepSummary& sweep : SummariseSweeps(rows)) {
    ++order.sweeps;
    order.kendall_tau += sweep.kendall_tau;
    order.regret += sweep.regret;
    if (sweep.regret <= kSmallRegret) ++order.small_regret;
    if (sweep.distinct_pairs == 0) continue;
    ++order.distinct_sweeps;
    order.distinct_tau += sweep.distinct_tau;
  }
  if (order.sweeps > 0) {
    order.kendall_tau /= static_cast<double>(order.sweeps);
    order.regret /= static_cast<double>(order.sweeps);
  }
  if (order.distinct_sweeps > 0) order.distinct_tau /= static_cast<double>(order.distinct_sweeps);
  return order;
}

std::vector<FileSummary> SummariseFiles(std::span<const RowPrediction> rows) {
  std::vector<FileSummary> summaries;
  std::vector<std::pair<std::string, std::string>> keys;
  for (const RowPrediction& row : rows) {
    const std::pair key{row.file, row.kind};
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  for (const auto& [file, kind] : keys) {
    std::vector<double> errors;
    std::vector<RowPrediction> own;
    for (const RowPrediction& row : rows) {
      if (row.file != file || row.kind != kind) continue;
      own.push_back(row);
      errors.push_back(std::abs(row.error()));
    }
    summaries.push_back({file, kind, Summarise(std::move(errors)), SummariseOrder(own)});
  }
  return summaries;
}

}  // namespace weft::cli
