#include "controller/job_rhythm.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft::controller {
namespace {

constexpr double kShortestIteration = 1e-4;  // seconds: below it a period is noise
constexpr double kLongestIteration = 1e5;
constexpr double kSteadyPeriods = 16;       // as many as an agent's period is the median of
constexpr double kSteadySeconds = 5;
constexpr size_t kNewest = 9;                // measurements, a second apart, that a period is the median of

double Median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool Plausible(double iteration_s) { return iteration_s >= kShortestIteration && iteration_s <= kLongestIteration; }

std::map<std::string, double> MeasuredPeriods(const FlowTable& table) {
  std::map<std::string, std::vector<double>> periods;
  for (const auto& [id, flow] : table.flows()) {
    if (!flow.stale() && flow.period_s > 0) periods[flow.identity.job_id()].push_back(flow.period_s);
  }
  std::map<std::string, double> medians;
  for (auto& [job, values] : periods) medians[job] = Median(values);
  return medians;
}

void Follow(JobRhythm& rhythm, double measured_s, double drift, double now_s) {
  if (!Plausible(measured_s)) {
    rhythm = JobRhythm();
    return;
  }
  if (rhythm.period_s <= 0 || std::abs(measured_s - rhythm.period_s) > 0.5 * rhythm.period_s) {
    rhythm = {measured_s, now_s, {measured_s}};  // another job than before
    return;
  }
  rhythm.newest.push_back(measured_s);
  if (rhythm.newest.size() > kNewest) rhythm.newest.pop_front();
  std::vector<double> values(rhythm.newest.begin(), rhythm.newest.end());
  rhythm.period_s = Median(values);
  if (std::abs(measured_s - rhythm.period_s) > drift * rhythm.period_s) rhythm.steady_since_s = now_s;
}

bool IsSteady(const JobRhythm& rhythm, double now_s) {
  return rhythm.period_s > 0 &&
         now_s - rhythm.steady_since_s >= std::max(kSteadySeconds, kSteadyPeriods * rhythm.period_s);
}

}  // namespace weft::controller
