#include "planner/flows/instance.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <string>

#include "common/check.h"

namespace weft::planner::inline flows {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotWorse = 1e-3;  // what the fractional solver may leave on the table

/// What one flow puts on one link per level.
struct Crossing {
  int32_t flow;
  double share;
};

/// Progressive filling where a flow takes different amounts on different links. Links and demands wait in a heap by the
/// level at which they hold somebody; a link's level only rises while others are held, so that a stale key is too small.
class StripedFilling {
 public:
  StripedFilling(const Instance& instance, const Shares& shares)
      : instance_(instance), links_(instance.capacity.size()), rate_(instance.flows.size(), 0),
        speed_(instance.flows.size(), 0), begin_(1, 0) {
    for (size_t l = 0; l < links_.size(); ++l) links_[l].left = instance.capacity[l];
    for (size_t f = 0; f < instance.flows.size(); ++f) AddFlow(f, shares[f]);
    Transpose();
  }

  std::vector<double> Run() {
    std::vector<Key> keys;
    for (size_t l = 0; l < links_.size(); ++l) {
      if (links_[l].growing > 0) keys.push_back({LevelOf(l), l});
    }
    for (size_t f = 0; f < speed_.size(); ++f) {
      if (speed_[f] > 0) keys.push_back({instance_.flows[f].demand / speed_[f], links_.size() + f});
    }
    std::priority_queue<Key, std::vector<Key>, std::greater<>> heap(std::greater<>(), std::move(keys));
    while (!heap.empty()) {
      const Key top = heap.top();
      heap.pop();
      if (top.index >= links_.size()) {
        Hold(top.index - links_.size(), top.level);
        continue;
      }
      if (links_[top.index].growing == 0) continue;
      if (const double now = LevelOf(top.index); now > top.level) {
        heap.push({now, top.index});
        continue;
      }
      for (size_t i = by_link_begin_[top.index]; i < by_link_begin_[top.index + 1]; ++i) {
        Hold(static_cast<size_t>(by_link_[i].flow), top.level);
      }
    }
    return std::move(rate_);
  }

 private:
  struct LinkState {
    double left = 0, slope = 0, peak = 0;  // slope: what growing flows take per level; peak: when it was last summed
    size_t growing = 0;
  };
  struct Key {
    double level;
    size_t index;  // past the links: a flow's demand
    friend bool operator>(const Key& a, const Key& b) {
      return a.level != b.level ? a.level > b.level : a.index > b.index;
    }
  };
  struct OnLink {
    size_t link;
    double slope;
  };

  void AddFlow(size_t f, const std::vector<double>& shares) {
    const InstanceFlow& flow = instance_.flows[f];
    const double largest = *std::max_element(shares.begin(), shares.end());
    if (!flow.usable.empty() && largest > 0) {
      speed_[f] = 1 / largest;
      for (size_t p = 0; p < flow.paths.size(); ++p) {
        if (shares[p] > 0) AddPath(flow.paths[p], shares[p] * speed_[f]);
      }
    }
    for (size_t i = begin_.back(); i < crossings_.size(); ++i) {
      LinkState& link = links_[crossings_[i].link];
      link.slope += crossings_[i].slope;
      link.peak = link.slope;
      ++link.growing;
    }
    begin_.push_back(crossings_.size());
  }

  /// Links that several paths of the flow cross are one crossing.
  void AddPath(const PathLinks& path, double slope) {
    const size_t before = crossings_.size();
    for (const int32_t link : path) {
      const auto l = static_cast<size_t>(link);
      const auto there = std::find_if(crossings_.begin() + static_cast<std::ptrdiff_t>(begin_.back()),
                                      crossings_.begin() + static_cast<std::ptrdiff_t>(before),
                                      [&](const OnLink& c) { return c.link == l; });
      if (there != crossings_.begin() + static_cast<std::ptrdiff_t>(before)) there->slope += slope;
      else crossings_.push_back({l, slope});
    }
  }

  void Transpose() {
    by_link_begin_.assign(links_.size() + 1, 0);
    for (const OnLink& c : crossings_) ++by_link_begin_[c.link + 1];
    std::partial_sum(by_link_begin_.begin(), by_link_begin_.end(), by_link_begin_.begin());
    std::vector<size_t> next(by_link_begin_.begin(), by_link_begin_.end() - 1);
    by_link_.resize(crossings_.size());
    for (size_t f = 0; f + 1 < begin_.size(); ++f) {
      for (size_t i = begin_[f]; i < begin_[f + 1]; ++i) {
        by_link_[next[crossings_[i].link]++] = {static_cast<int32_t>(f), crossings_[i].slope};
      }
    }
  }

  double LevelOf(size_t l) const { return std::max(0.0, links_[l].left) / links_[l].slope; }

  void Hold(size_t f, double level) {
    if (speed_[f] <= 0) return;
    rate_[f] = level * speed_[f];
    speed_[f] = 0;
    for (size_t i = begin_[f]; i < begin_[f + 1]; ++i) {
      LinkState& link = links_[crossings_[i].link];
      link.left -= level * crossings_[i].slope;
      link.slope -= crossings_[i].slope;
      --link.growing;
      // What is left of a difference of nearly equal sums is rounding: add up again.
      if (link.growing > 0 && link.slope < 1e-6 * link.peak) Resum(crossings_[i].link);
    }
  }

  void Resum(size_t l) {
    links_[l].slope = 0;
    for (size_t i = by_link_begin_[l]; i < by_link_begin_[l + 1]; ++i) {
      if (speed_[static_cast<size_t>(by_link_[i].flow)] > 0) links_[l].slope += by_link_[i].share;
    }
    links_[l].peak = links_[l].slope;
  }

  const Instance& instance_;
  std::vector<LinkState> links_;
  std::vector<double> rate_, speed_;     // speed: rate per level, 1 / largest share; 0: held, or cannot be served
  std::vector<size_t> begin_;            // of each flow's crossings
  std::vector<OnLink> crossings_;
  std::vector<size_t> by_link_begin_;
  std::vector<Crossing> by_link_;
};

}  // namespace

Instance MakeInstance(const FlowProblem& problem) {
  Instance instance;
  for (const Link& link : problem.topology.links()) instance.capacity.push_back(link.capacity.value());
  std::map<std::string, size_t> jobs;
  for (const FlowDemand& flow : problem.flows) {
    WEFT_CHECK(!flow.paths.empty(), "a flow without a path");
    WEFT_CHECK(flow.demand.value() > 0, "a flow without demand");
    WEFT_CHECK(flow.present_shares.empty() || flow.present_shares.size() == flow.paths.size(),
               "present shares that are not one per path");
    InstanceFlow made{.demand = flow.demand.value(), .job = jobs.try_emplace(flow.job, jobs.size()).first->second};
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
  return StripedFilling(instance, shares).Run();
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

}  // namespace weft::planner::flows
