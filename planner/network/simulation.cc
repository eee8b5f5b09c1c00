#include "planner/network/simulation.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/check.h"
#include "planner/network/lane_events.h"

namespace weft::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Lanes that depend on each other, directly or not, have one root.
class Components {
 public:
  explicit Components(std::span<const TransferLane> lanes) : parent_(lanes.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    for (size_t i = 0; i < lanes.size(); ++i) {
      for (const LaneDependency& need : lanes[i].needs) parent_[Root(i)] = Root(static_cast<size_t>(need.lane));
    }
  }
  size_t Root(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }

 private:
  std::vector<size_t> parent_;
};

/// The lanes in an order in which a lane stands after those whose same step it needs; shorter if they form a circle.
std::vector<size_t> SameStepOrder(std::span<const TransferLane> lanes, const std::vector<bool>& chosen) {
  std::vector<int32_t> open(lanes.size(), 0);
  std::vector<std::vector<size_t>> after(lanes.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!chosen[i]) continue;
    for (const LaneDependency& need : lanes[i].needs) {
      if (need.lag > 0) continue;
      ++open[i];
      after[static_cast<size_t>(need.lane)].push_back(i);
    }
    if (open[i] == 0) order.push_back(i);
  }
  for (size_t next = 0; next < order.size(); ++next) {
    for (const size_t lane : after[order[next]]) {
      if (--open[lane] == 0) order.push_back(lane);
    }
  }
  return order;
}

/// The recurrence of the header for lanes with a rate of their own. ends_[k mod depth][lane] is when step k ends.
class Recurrence {
 public:
  Recurrence(std::span<const TransferLane> lanes, std::span<const LaneRate> rates, std::vector<size_t> order)
      : lanes_(lanes), order_(std::move(order)), duration_(lanes.size()) {
    size_t depth = 2;
    for (const size_t i : order_) {
      const double bytes = static_cast<double>(lanes[i].bytes.count());
      duration_[i] = std::max(0.0, lanes[i].latency.count()) + (bytes > 0 ? bytes / rates[i].peak : 0);
      for (const LaneDependency& need : lanes[i].needs) depth = std::max(depth, static_cast<size_t>(need.lag) + 1);
      steps_ = std::max(steps_, lanes[i].steps);
    }
    ends_.assign(depth, std::vector<double>(lanes.size(), 0));
  }

  void Run(SimulationResult* result) {
    for (int32_t k = 0; k < steps_; ++k) {
      for (const size_t i : order_) End(k, i);
    }
    for (const size_t i : order_) {
      const double bytes = static_cast<double>(lanes_[i].bytes.count());
      const double end = At(steps_ - 1)[i];
      result->finish[i] = Seconds(end);
      if (end < kNever) result->events += 2 * int64_t{lanes_[i].steps};
      for (const LinkId link : lanes_[i].links) {
        if (end < kNever) result->link_busy_bytes[link.index()] += bytes * lanes_[i].steps;
      }
    }
  }

 private:
  std::vector<double>& At(int32_t step) { return ends_[static_cast<size_t>(step) % ends_.size()]; }

  void End(int32_t k, size_t i) {
    const TransferLane& lane = lanes_[i];
    double begin = k == 0 ? std::max(0.0, lane.start.count()) : At(k - 1)[i];
    if (k >= lane.steps) {
      At(k)[i] = begin;  // over since before: what others wait for
      return;
    }
    for (const LaneDependency& need : lane.needs) {
      if (k >= need.lag) begin = std::max(begin, At(k - need.lag)[static_cast<size_t>(need.lane)]);
    }
    At(k)[i] = begin + duration_[i];
  }

  std::span<const TransferLane> lanes_;
  std::vector<size_t> order_;
  std::vector<double> duration_;
  std::vector<std::vector<double>> ends_;
  int32_t steps_ = 0;
};

}  // namespace

SimulationResult SimulateLanes(std::span<const BitsPerSecond> capacity, std::span<const TransferLane> lanes,
                               LaneOptions options) {
  for (const TransferLane& lane : lanes) {
    WEFT_CHECK(lane.steps >= 1, "a lane without steps");
    for (const LaneDependency& need : lane.needs) {
      WEFT_CHECK(need.lane >= 0 && static_cast<size_t>(need.lane) < lanes.size() && need.lag >= 0,
                 "a lane needs one that does not exist");
    }
  }
  SimulationResult result{.finish = std::vector<Seconds>(lanes.size(), Seconds(kNever)),
                          .link_busy_bytes = std::vector<double>(capacity.size(), 0)};
  const std::vector<LaneRate> rates = LaneRates(capacity, lanes);
  Components components(lanes);
  std::vector<bool> by_events(lanes.size(), !options.recurrence);
  // A lane with a latency of nothing to send, blocked lanes and circles are left to the events.
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (rates[i].shared || rates[i].peak <= 0) by_events[components.Root(i)] = true;
  }
  std::vector<bool> simple(lanes.size());
  for (size_t i = 0; i < lanes.size(); ++i) simple[i] = !by_events[components.Root(i)];
  const std::vector<size_t> order = SameStepOrder(lanes, simple);
  std::vector<bool> rest(lanes.size(), true);
  if (order.size() == static_cast<size_t>(std::count(simple.begin(), simple.end(), true))) {
    for (const size_t i : order) rest[i] = false;
    if (!order.empty()) Recurrence(lanes, rates, order).Run(&result);
  }
  if (std::count(rest.begin(), rest.end(), true) > 0) RunLaneEvents(capacity, lanes, rates, rest, &result);
  return result;
}

SimulationResult SimulateFlows(std::span<const BitsPerSecond> capacity, std::span<const SimulatedFlow> flows) {
  std::vector<TransferLane> lanes;
  lanes.reserve(flows.size());
  for (const SimulatedFlow& flow : flows) {
    lanes.push_back({.links = flow.links, .bytes = flow.bytes, .start = flow.start, .weight = flow.weight,
                     .cap = flow.cap, .priority = flow.priority});
  }
  return SimulateLanes(capacity, lanes);
}

}  // namespace weft::planner
