#include "planner/network/simulation.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weft::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The state between two events. Times are seconds, amounts bytes, rates bytes per second.
class Simulation {
 public:
  Simulation(std::span<const BitsPerSecond> capacity, std::span<const SimulatedFlow> flows)
      : capacity_(capacity), flows_(flows), left_(flows.size()), order_(flows.size()) {
    for (size_t f = 0; f < flows.size(); ++f) left_[f] = static_cast<double>(flows[f].bytes.count());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return flows[a].start < flows[b].start; });
    result_.finish.assign(flows.size(), Seconds(kNever));
    result_.link_busy_bytes.assign(capacity.size(), 0);
  }

  SimulationResult Run() {
    double now = 0;
    while (next_start_ < order_.size() || !active_.empty()) {
      if (active_.empty()) now = std::max(now, StartOf(next_start_));
      Admit(now);
      SetRates();
      const double until = std::min(NextEnd(now), next_start_ < order_.size() ? StartOf(next_start_) : kNever);
      if (until == kNever) break;  // all that is left is blocked for ever
      Advance(until - now);
      now = until;
      Retire(now);
    }
    return std::move(result_);
  }

 private:
  double StartOf(size_t position) const { return std::max(0.0, flows_[order_[position]].start.count()); }

  void Admit(double now) {
    for (; next_start_ < order_.size() && StartOf(next_start_) <= now; ++next_start_) {
      const size_t flow = order_[next_start_];
      ++result_.events;
      if (left_[flow] <= 0) {
        result_.finish[flow] = Seconds(StartOf(next_start_));
        ++result_.events;
      } else {
        active_.push_back(flow);
      }
    }
  }

  void SetRates() {
    std::vector<MaxMinFlow> sharing;
    sharing.reserve(active_.size());
    for (const size_t f : active_) {
      sharing.push_back({.links = flows_[f].links, .weight = flows_[f].weight, .cap = flows_[f].cap});
    }
    const std::vector<BitsPerSecond> rates = MaxMinRates(capacity_, sharing);
    rates_.clear();
    for (const BitsPerSecond rate : rates) rates_.push_back(rate.bytes_per_second());
  }

  double NextEnd(double now) const {
    double end = kNever;
    for (size_t i = 0; i < active_.size(); ++i) {
      if (rates_[i] > 0) end = std::min(end, now + left_[active_[i]] / rates_[i]);
    }
    return end;
  }

  void Advance(double time) {
    for (size_t i = 0; i < active_.size(); ++i) {
      const double moved = std::min(left_[active_[i]], rates_[i] * time);
      left_[active_[i]] -= moved;
      for (const LinkId link : flows_[active_[i]].links) result_.link_busy_bytes[link.index()] += moved;
    }
  }

  /// A flow ends with what rounding leaves: of its bytes, and of the clock, which cannot tell shorter times apart.
  void Retire(double now) {
    size_t kept = 0;
    for (size_t i = 0; i < active_.size(); ++i) {
      const size_t flow = active_[i];
      const double rest = std::max(1e-12 * static_cast<double>(flows_[flow].bytes.count()), rates_[i] * (1e-15 + 1e-15 * now));
      if (left_[flow] > rest) {
        active_[kept++] = flow;
        continue;
      }
      for (const LinkId link : flows_[flow].links) result_.link_busy_bytes[link.index()] += left_[flow];
      left_[flow] = 0;
      result_.finish[flow] = Seconds(now);
      ++result_.events;
    }
    active_.resize(kept);
  }

  std::span<const BitsPerSecond> capacity_;
  std::span<const SimulatedFlow> flows_;
  std::vector<double> left_;
  std::vector<size_t> order_;  // by start
  size_t next_start_ = 0;
  std::vector<size_t> active_;
  std::vector<double> rates_;  // of active_
  SimulationResult result_;
};

}  // namespace

SimulationResult SimulateFlows(std::span<const BitsPerSecond> capacity, std::span<const SimulatedFlow> flows) {
  return Simulation(capacity, flows).Run();
}

}  // namespace weft::planner
