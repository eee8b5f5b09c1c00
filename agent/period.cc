#include "agent/period.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft::agent {
namespace {

constexpr size_t kBursts = 128;
constexpr size_t kLeastGroups = 4;
constexpr size_t kNewestPeriods = 16;
constexpr double kGroupGapShare = 0.5;
constexpr double kSpreadQuantile = 0.75;
constexpr double kMostSpread = 0.2;

/// The `share` quantile; reorders `values`. Requires: not empty.
double Quantile(std::vector<double>& values, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace

void PeriodEstimator::Add(uint64_t start_ns, uint64_t end_ns) {
  if (!bursts_.empty() && start_ns < bursts_.back().end_ns) return;
  bursts_.push_back({start_ns, end_ns});
  if (bursts_.size() > kBursts) bursts_.pop_front();
}

PeriodEstimator::Rhythm PeriodEstimator::Find() const {
  if (bursts_.size() < kLeastGroups) return {};
  std::vector<double> gaps;
  for (size_t i = 1; i < bursts_.size(); ++i) {
    gaps.push_back(static_cast<double>(bursts_[i].start_ns - bursts_[i - 1].end_ns));
  }
  std::vector<double> sorted = gaps;
  std::sort(sorted.begin(), sorted.end());
  // The longest may be a checkpoint. Without a third one of its kind the second longest says nothing about iterations.
  const double threshold = kGroupGapShare * sorted[sorted.size() - 2];
  if (sorted[sorted.size() - 3] < threshold) return {};

  // The first burst may be the middle of a group: groups count from the first gap on.
  std::vector<double> starts;
  uint64_t newest = 0;
  for (size_t i = 0; i < gaps.size(); ++i) {
    if (gaps[i] < threshold) continue;
    newest = bursts_[i + 1].start_ns;
    starts.push_back(static_cast<double>(newest));
  }
  if (starts.size() < kLeastGroups) return {};
  std::vector<double> periods;
  const size_t first = starts.size() > kNewestPeriods ? starts.size() - kNewestPeriods : 1;
  for (size_t i = first; i < starts.size(); ++i) periods.push_back(starts[i] - starts[i - 1]);
  const double median = Quantile(periods, 0.5);
  std::vector<double> deviations;
  for (const double period : periods) deviations.push_back(std::abs(period - median));
  if (Quantile(deviations, kSpreadQuantile) > kMostSpread * median) return {};
  return {Seconds(median * 1e-9), newest};
}

}  // namespace weft::agent
