#include "planner/flows/instance.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/check.h"

namespace weft::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotWorse = 1e-3;  // what the fractional solver may leave on the table

/// What one flow puts on one link per unit of its rate.
struct Crossing {
  int32_t flow;
  double share;
};

}  // namespace

Instance MakeInstance(const FlowProblem& problem) {
  Instance instance;
  for (const Link& link : problem.topology.links()) instance.capacity.push_back(link.capacity.value());
  for (const FlowDemand& flow : problem.flows) {
    WEFT_CHECK(!flow.paths.empty(), "a flow without a path");
    WEFT_CHECK(flow.demand.value() > 0, "a flow without demand");
    WEFT_CHECK(flow.present_shares.empty() || flow.present_shares.size() == flow.paths.size(),
               "present shares that are not one per path");
    InstanceFlow made{.demand = flow.demand.value()};
    for (const CandidatePath& path : flow.paths) {
      PathLinks links;
      bool alive = true;
      for (const LinkId link : path.links) {
        links.push_back(link.value());
        alive &= instance.capacity[link.index()] > 0;
      }
      if (alive) made.usable.push_back(made.paths.size());
      made.paths.push_back(std::move(links));
    }
    instance.flows.push_back(std::move(made));
  }
  instance.order.resize(problem.flows.size());
  std::iota(instance.order.begin(), instance.order.end(), size_t{0});
  std::stable_sort(instance.order.begin(), instance.order.end(), [&](size_t a, size_t b) {
    const FlowDemand &first = problem.flows[a], &second = problem.flows[b];
    if (first.intensity != second.intensity) return first.intensity > second.intensity;
    if (first.demand != second.demand) return first.demand > second.demand;
    return first.key < second.key;
  });
  return instance;
}

std::vector<double> Loads(const Instance& instance, const Shares& shares) {
  std::vector<double> load(instance.capacity.size(), 0);
  for (size_t f = 0; f < instance.flows.size(); ++f) {
    const InstanceFlow& flow = instance.flows[f];
    if (flow.usable.empty()) continue;
    for (size_t p = 0; p < flow.paths.size(); ++p) {
      if (shares[f][p] <= 0) continue;
      for (const int32_t link : flow.paths[p]) load[static_cast<size_t>(link)] += flow.demand * shares[f][p];
    }
  }
  return load;
}

double Bottleneck(const Instance& instance, const Shares& shares) {
  const std::vector<double> load = Loads(instance, shares);
  double worst = 0;
  for (size_t l = 0; l < load.size(); ++l) {
    if (load[l] > 0) worst = std::max(worst, instance.capacity[l] > 0 ? load[l] / instance.capacity[l] : kInfinity);
  }
  return worst;
}

std::vector<double> StripedRates(const Instance& instance, const Shares& shares) {
  const size_t flows = instance.flows.size(), links = instance.capacity.size();
  std::vector<double> rate(flows, 0), speed(flows, 0);  // speed: rate per unit of level, 1 / largest share
  std::vector<std::vector<Crossing>> crossings(links);
  for (size_t f = 0; f < flows; ++f) {
    const InstanceFlow& flow = instance.flows[f];
    const double largest = *std::max_element(shares[f].begin(), shares[f].end());
    if (flow.usable.empty() || largest <= 0) continue;
    speed[f] = 1 / largest;
    for (size_t p = 0; p < flow.paths.size(); ++p) {
      if (shares[f][p] <= 0) continue;
      for (const int32_t link : flow.paths[p]) {
        auto& on_link = crossings[static_cast<size_t>(link)];
        if (!on_link.empty() && on_link.back().flow == static_cast<int32_t>(f)) {
          on_link.back().share += shares[f][p];
        } else {
          on_link.push_back({static_cast<int32_t>(f), shares[f][p]});
        }
      }
    }
  }
  std::vector<double> left = instance.capacity;
  std::vector<bool> growing(flows);
  for (size_t f = 0; f < flows; ++f) growing[f] = speed[f] > 0;
  for (;;) {
    // The lowest level at which a link is full or a flow has its demand.
    double level = kInfinity;
    for (size_t f = 0; f < flows; ++f) {
      if (growing[f]) level = std::min(level, instance.flows[f].demand / speed[f]);
    }
    if (level == kInfinity) return rate;
    std::vector<double> link_level(links, kInfinity);
    for (size_t l = 0; l < links; ++l) {
      double per_level = 0;
      for (const Crossing& c : crossings[l]) {
        if (growing[static_cast<size_t>(c.flow)]) per_level += c.share * speed[static_cast<size_t>(c.flow)];
      }
      if (per_level > 0) link_level[l] = std::max(0.0, left[l]) / per_level;
      level = std::min(level, link_level[l]);
    }
    std::vector<bool> held(flows, false);
    for (size_t f = 0; f < flows; ++f) held[f] = growing[f] && instance.flows[f].demand / speed[f] <= level;
    for (size_t l = 0; l < links; ++l) {
      if (link_level[l] > level * (1 + 1e-12)) continue;
      for (const Crossing& c : crossings[l]) held[static_cast<size_t>(c.flow)] = true;
    }
    for (size_t f = 0; f < flows; ++f) {
      if (!held[f] || !growing[f]) continue;
      growing[f] = false;
      rate[f] = level * speed[f];
      for (size_t p = 0; p < shares[f].size(); ++p) {
        for (const int32_t link : instance.flows[f].paths[p]) left[static_cast<size_t>(link)] -= rate[f] * shares[f][p];
      }
    }
  }
}

std::vector<double> Served(const Instance& instance, const Shares& shares) {
  std::vector<double> served = StripedRates(instance, shares);
  for (size_t f = 0; f < served.size(); ++f) served[f] /= instance.flows[f].demand;
  std::sort(served.begin(), served.end());
  return served;
}

bool ClearlyBetter(const std::vector<double>& base, const std::vector<double>& candidate, double gain) {
  for (size_t i = 0; i < base.size(); ++i) {
    if (candidate[i] > base[i] && candidate[i] >= base[i] * (1 + gain)) return true;
    if (candidate[i] < base[i] * (1 - kNotWorse)) return false;
  }
  return false;
}

}  // namespace weft::planner
