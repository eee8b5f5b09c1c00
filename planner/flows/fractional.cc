#include "planner/flows/fractional.h"

#include <algorithm>
#include <cmath>

namespace weft::planner::inline flows {
namespace {

constexpr double kTightEnough = 2e-4;   // relative duality gap at which the search ends
constexpr double kFinestTau = 1e-5;     // of the bottleneck
constexpr int kSweepsPerTau = 60;
constexpr int kBisections = 30;
/// From so many flows on the certificate need not be that tight, and exponentials are kept per link while none underflows.
constexpr size_t kMany = 4096;
constexpr double kTightEnoughForMany = 5e-3;
constexpr double kCoarsestForMany = 1.0 / 400;  // of the bottleneck: exp(-400) is still a number
constexpr int kSweepsPerTauForMany = 12;
constexpr int kBisectionsForMany = 12;

class SoftMaximum {
 public:
  SoftMaximum(const Instance& instance, Shares start)
      : instance_(instance), shares_(std::move(start)), use_(instance.capacity.size(), 0) {
    const std::vector<double> load = Loads(instance, shares_);
    for (size_t l = 0; l < use_.size(); ++l) use_[l] = instance.capacity[l] > 0 ? load[l] / instance.capacity[l] : 0;
  }

  /// Keeps the links' exponentials for this τ, relative to the worst link, until the next call.
  void KeepWeights(double tau) {
    kept_peak_ = Worst();
    weight_.resize(use_.size());
    for (size_t l = 0; l < use_.size(); ++l) weight_[l] = Weight(l, tau);
    kept_tau_ = tau;
  }

  double Worst() const { return use_.empty() ? 0 : *std::max_element(use_.begin(), use_.end()); }

  /// Balances one flow's dearest used path against its cheapest. Returns the share moved.
  double Update(size_t f, double tau) {
    const InstanceFlow& flow = instance_.flows[f];
    if (flow.usable.size() < 2) return 0;
    std::vector<double>& share = shares_[f];
    const double peak = Peak(flow, share);
    size_t dearest = flow.paths.size(), cheapest = flow.usable.front();
    double high = -1, low = -1;
    for (const size_t p : flow.usable) {
      const double cost = Cost(flow.paths[p], tau, peak);
      if (share[p] > 0 && cost > high) high = cost, dearest = p;
      if (low < 0 || cost < low) low = cost, cheapest = p;
    }
    if (dearest == flow.paths.size() || dearest == cheapest || !(high > low * (1 + (Keeps() ? 1e-4 : 1e-9)))) return 0;
    const double moved = LineSearch(flow, dearest, cheapest, share[dearest], tau, peak);
    share[dearest] -= moved;
    share[cheapest] += moved;
    Add(flow.paths[dearest], -moved * flow.demand);
    Add(flow.paths[cheapest], moved * flow.demand);
    for (const size_t p : {dearest, cheapest}) {
      for (const int32_t l : flow.paths[p]) {
        if (Keeps()) weight_[static_cast<size_t>(l)] = Weight(static_cast<size_t>(l), tau);
      }
    }
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
  bool Keeps() const { return kept_tau_ > 0; }

  double Weight(size_t l, double tau) const {
    return instance_.capacity[l] > 0 ? std::exp((use_[l] - kept_peak_) / tau) / instance_.capacity[l] : 0;
  }

  /// What exponents are taken relative to: the worst link in use, so that none overflows there.
  double Peak(const InstanceFlow& flow, const std::vector<double>& share) const {
    if (Keeps()) return kept_peak_;
    double peak = 0;
    for (const size_t p : flow.usable) {
      if (share[p] <= 0) continue;
      for (const int32_t l : flow.paths[p]) peak = std::max(peak, use_[static_cast<size_t>(l)]);
    }
    return peak;
  }

  double Cost(const PathLinks& path, double tau, double peak) const {
    double cost = 0;
    if (Keeps()) {
      for (const int32_t link : path) cost += weight_[static_cast<size_t>(link)];
      return cost;
    }
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
    for (int i = Keeps() ? kBisections - kBisectionsForMany : 0; i < kBisections; ++i) {
      const double middle = (low + high) / 2;
      (difference(middle) > 0 ? low : high) = middle;
    }
    return low;
  }

  const Instance& instance_;
  Shares shares_;
  std::vector<double> use_;  // load / capacity; 0 on dead links, which no usable path crosses
  std::vector<double> weight_;  // if kept: exp((use - kept_peak_) / kept_tau_) / capacity
  double kept_tau_ = 0, kept_peak_ = 0;
};

}  // namespace

FractionalResult FractionalOptimum(const Instance& instance, Shares start, int64_t updates, const std::stop_token& stop) {
  SoftMaximum soft(instance, std::move(start));
  FractionalResult result;
  double tau = soft.Worst() / 8;
  const bool many = instance.flows.size() >= kMany;
  const double tight = many ? kTightEnoughForMany : kTightEnough;
  while (tau > 0 && updates > 0) {
    for (int sweep = 0; sweep < (many ? kSweepsPerTauForMany : kSweepsPerTau) && updates > 0; ++sweep) {
      if (stop.stop_requested()) updates = 0;
      if (many) soft.KeepWeights(tau);
      double moved = 0;
      for (const size_t f : instance.order) moved = std::max(moved, soft.Update(f, tau));
      updates -= static_cast<int64_t>(instance.flows.size());
      if (moved < 1e-7) break;
    }
    result.bound = std::max(result.bound, soft.Bound(tau));
    const double worst = soft.Worst();
    if (worst - result.bound <= tight * worst || tau <= (many ? kCoarsestForMany : kFinestTau) * worst) break;
    tau /= 2;
  }
  result.bottleneck = soft.Worst();
  result.bound = std::min(result.bound, result.bottleneck);
  result.shares = soft.TakeShares();
  return result;
}

}  // namespace weft::planner::flows
