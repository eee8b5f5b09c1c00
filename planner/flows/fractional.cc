#include "planner/flows/fractional.h"

#include <algorithm>
#include <cmath>

namespace weft::planner {
namespace {

constexpr double kTightEnough = 2e-4;   // relative duality gap at which the search ends
constexpr double kFinestTau = 1e-5;     // of the bottleneck
constexpr int kSweepsPerTau = 60;
constexpr int kBisections = 30;

class SoftMaximum {
 public:
  SoftMaximum(const Instance& instance, Shares start)
      : instance_(instance), shares_(std::move(start)), use_(instance.capacity.size(), 0) {
    const std::vector<double> load = Loads(instance, shares_);
    for (size_t l = 0; l < use_.size(); ++l) use_[l] = instance.capacity[l] > 0 ? load[l] / instance.capacity[l] : 0;
  }

  double Worst() const { return use_.empty() ? 0 : *std::max_element(use_.begin(), use_.end()); }

  /// Balances one flow's dearest used path against its cheapest. Returns the share moved.
  double Update(size_t f, double tau) {
    const InstanceFlow& flow = instance_.flows[f];
    if (flow.usable.size() < 2) return 0;
    std::vector<double>& share = shares_[f];
    double peak = 0;  // exponents are taken relative to the worst link in use, so that none overflows there
    for (const size_t p : flow.usable) {
      if (share[p] <= 0) continue;
      for (const int32_t l : flow.paths[p]) peak = std::max(peak, use_[static_cast<size_t>(l)]);
    }
    size_t dearest = flow.paths.size(), cheapest = flow.usable.front();
    double high = -1, low = -1;
    for (const size_t p : flow.usable) {
      const double cost = Cost(flow.paths[p], tau, peak);
      if (share[p] > 0 && cost > high) high = cost, dearest = p;
      if (low < 0 || cost < low) low = cost, cheapest = p;
    }
    if (dearest == flow.paths.size() || dearest == cheapest || !(high > low * (1 + 1e-9))) return 0;
    const double moved = LineSearch(flow, dearest, cheapest, share[dearest], tau, peak);
    share[dearest] -= moved;
    share[cheapest] += moved;
    Add(flow.paths[dearest], -moved * flow.demand);
    Add(flow.paths[cheapest], moved * flow.demand);
    return moved;
  }

  /// The dual bound of the soft maximum's prices.
  double Bound(double tau) const {
    const double worst = Worst();
    std::vector<double> price(use_.size(), 0);
    double all = 0;
    for (size_t l = 0; l < use_.size(); ++l) {
      if (instance_.capacity[l] <= 0) continue;
      const double weight = std::exp((use_[l] - worst) / tau);
      all += weight;
      price[l] = weight / instance_.capacity[l];
    }
    double bound = 0;
    for (const InstanceFlow& flow : instance_.flows) {
      double least = -1;
      for (const size_t p : flow.usable) {
        double cost = 0;
        for (const int32_t l : flow.paths[p]) cost += price[static_cast<size_t>(l)];
        if (least < 0 || cost < least) least = cost;
      }
      if (least > 0) bound += flow.demand * least;
    }
    return all > 0 ? bound / all : 0;
  }

  Shares TakeShares() { return std::move(shares_); }

 private:
  double Cost(const PathLinks& path, double tau, double peak) const {
    double cost = 0;
    for (const int32_t link : path) {
      const size_t l = static_cast<size_t>(link);
      cost += std::exp((use_[l] - peak) / tau) / instance_.capacity[l];
    }
    return cost;
  }

  void Add(const PathLinks& path, double load) {
    for (const int32_t link : path) {
      const size_t l = static_cast<size_t>(link);
      use_[l] = std::max(0.0, use_[l] + load / instance_.capacity[l]);
    }
  }

  /// The share that makes both paths equally dear, by bisection: the difference falls with it. Links on both cancel.
  double LineSearch(const InstanceFlow& flow, size_t from, size_t to, double most, double tau, double peak) const {
    const PathLinks &a = flow.paths[from], &b = flow.paths[to];
    const auto difference = [&](double moved) {
      double sum = 0;
      for (const int32_t link : a) {
        const size_t l = static_cast<size_t>(link);
        if (std::find(b.begin(), b.end(), link) != b.end()) continue;
        sum += std::exp((use_[l] - moved * flow.demand / instance_.capacity[l] - peak) / tau) / instance_.capacity[l];
      }
      for (const int32_t link : b) {
        const size_t l = static_cast<size_t>(link);
        if (std::find(a.begin(), a.end(), link) != a.end()) continue;
        sum -= std::exp((use_[l] + moved * flow.demand / instance_.capacity[l] - peak) / tau) / instance_.capacity[l];
      }
      return sum;
    };
    if (difference(most) >= 0) return most;
    double low = 0, high = most;
    for (int i = 0; i < kBisections; ++i) {
      const double middle = (low + high) / 2;
      (difference(middle) > 0 ? low : high) = middle;
    }
    return low;
  }

  const Instance& instance_;
  Shares shares_;
  std::vector<double> use_;  // load / capacity; 0 on dead links, which no usable path crosses
};

}  // namespace

FractionalResult FractionalOptimum(const Instance& instance, Shares start, int64_t updates) {
  SoftMaximum soft(instance, std::move(start));
  FractionalResult result;
  double tau = soft.Worst() / 8;
  while (tau > 0 && updates > 0) {
    for (int sweep = 0; sweep < kSweepsPerTau && updates > 0; ++sweep) {
      double moved = 0;
      for (const size_t f : instance.order) moved = std::max(moved, soft.Update(f, tau));
      updates -= static_cast<int64_t>(instance.flows.size());
      if (moved < 1e-7) break;
    }
    result.bound = std::max(result.bound, soft.Bound(tau));
    const double worst = soft.Worst();
    if (worst - result.bound <= kTightEnough * worst || tau <= kFinestTau * worst) break;
    tau /= 2;
  }
  result.bottleneck = soft.Worst();
  result.bound = std::min(result.bound, result.bottleneck);
  result.shares = soft.TakeShares();
  return result;
}

}  // namespace weft::planner
