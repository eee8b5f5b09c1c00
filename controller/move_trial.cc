#include "controller/move_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::controller {

void MoveTrial::SeeStart(const std::string& job, double start_s) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || !(start_s >= begun_s_ + kInForceS)) return;
  Job& one = found->second;
  if (one.after_s > 0 || (!one.starts.empty() && start_s <= one.starts.back())) return;
  one.starts.push_back(start_s);
  if (one.starts.size() <= kIterations) return;
  std::vector<double> lengths;
  for (size_t i = 1; i < one.starts.size(); ++i) lengths.push_back(one.starts[i] - one.starts[i - 1]);
  const auto middle = lengths.begin() + kIterations / 2;
  std::nth_element(lengths.begin(), middle, lengths.end());
  one.after_s = *middle;
}

void MoveTrial::SeePeriod(const std::string& job, double period_s) {
  const auto found = jobs_.find(job);
  if (found != jobs_.end() && period_s > 0) found->second.after_s = period_s;
}

void MoveTrial::SeeBytes(const std::string& job, double bytes, double now_s) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || now_s < begun_s_ + kInForceS) return;
  Job& one = found->second;
  if (one.base_s < 0) one.base_s = now_s, one.base = bytes;
  one.bytes = bytes;
  one.newest_s = now_s;
}

double MoveTrial::SpeedOf(const Job& job) {
  const double by_period = std::clamp(job.before_s / job.after_s, 0.5, 2.0);
  if (by_period >= 1 || job.rate <= 0 || job.newest_s <= job.base_s) return by_period;
  const double by_bytes = (job.bytes - job.base) / (job.newest_s - job.base_s) / job.rate;
  return std::max(by_period, std::min(1.0, by_bytes));
}

std::optional<MoveTrial::Verdict> MoveTrial::Judge() const {
  Verdict verdict{.speed = 0, .owners = {}, .slower = {}, .text = {}};
  std::map<Owner, std::pair<double, int>> of;
  for (const auto& [name, job] : jobs_) {
    if (job.after_s <= 0) return std::nullopt;
    const double speed = SpeedOf(job);
    verdict.speed += speed / static_cast<double>(jobs_.size());
    of[job.owner].first += speed;
    ++of[job.owner].second;
    verdict.text += fmt::format("{}{} {:.3f} s before, {:.3f} s after", verdict.text.empty() ? "" : "; ", name, job.before_s,
                                job.after_s);
  }
  for (const auto& [owner, sum] : of) {
    verdict.owners.insert(owner);
    if (sum.first < kWorse * sum.second) verdict.slower.insert(owner);
  }
  return verdict;
}

bool MoveTrial::IsLate(double now_s) const {
  double longest_s = 0;
  for (const auto& [name, job] : jobs_) longest_s = std::max(longest_s, job.before_s);
  return now_s - begun_s_ > 10 + 10 * static_cast<double>(kIterations) * longest_s;
}

double UndoneMoves::Add(const std::map<uint64_t, LaneWeights>& moves, double now_s) {
  const double hold_s = std::min(kMostHoldS, kFirstHoldS * std::exp2(std::min(times_, 16)));
  ++times_;
  until_s_ = now_s + hold_s;
  for (const auto& [flow, weights] : moves) moves_[flow] = weights;
  return hold_s;
}

bool UndoneMoves::Holds(uint64_t flow, const LaneWeights& weights, double now_s) const {
  const auto found = moves_.find(flow);
  return now_s < until_s_ && found != moves_.end() && found->second == weights;
}

}  // namespace weft::controller
