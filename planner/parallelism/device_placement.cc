#include "planner/parallelism/device_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kExactStages = 12;  // sets of stages that dynamic programming goes through
constexpr size_t kStarts = 8;

using Group = std::vector<int64_t>;  // devices

size_t At(const PlacementProblem& p, int64_t a, int64_t b) { return static_cast<size_t>(a * p.devices + b); }

double SendTime(const PlacementProblem& p, int64_t a, int64_t b) {
  return p.latency[At(p, a, b)] + static_cast<double>(p.message.count()) / p.rate[At(p, a, b)];
}

double ExchangeTime(const PlacementProblem& p, const Group& group) {
  const double share = static_cast<double>(p.gradients.count()) / static_cast<double>(p.replicas);
  double slowest = 0;
  for (const int64_t a : group) {
    double sum = 0;
    for (const int64_t b : group) {
      if (a != b) sum += 2 * (p.latency[At(p, a, b)] + share / p.rate[At(p, a, b)]);
    }
    slowest = std::max(slowest, sum);
  }
  return slowest;
}

/// Pairs `from` with `to` over edges of at most `limit`; to each of `to` its partner's place in `from`, or -1.
class Matching {
 public:
  Matching(const PlacementProblem& p, const Group& from, const Group& to) : p_(p), from_(from), to_(to) {}

  bool Perfect(double limit) {
    limit_ = limit;
    partner_.assign(to_.size(), -1);
    for (size_t i = 0; i < from_.size(); ++i) {
      seen_.assign(to_.size(), false);
      if (!Augment(i)) return false;
    }
    return true;
  }
  const std::vector<int64_t>& partner() const { return partner_; }

 private:
  bool Augment(size_t i) {
    for (size_t k = 0; k < to_.size(); ++k) {
      if (seen_[k] || SendTime(p_, from_[i], to_[k]) > limit_) continue;
      seen_[k] = true;
      if (partner_[k] < 0 || Augment(static_cast<size_t>(partner_[k]))) {
        partner_[k] = static_cast<int64_t>(i);
        return true;
      }
    }
    return false;
  }

  const PlacementProblem& p_;
  const Group& from_;
  const Group& to_;
  double limit_ = 0;
  std::vector<int64_t> partner_;
  std::vector<bool> seen_;
};

/// The least slowest pair; `order`, if not null, becomes the members of `to` as `from` is paired with them.
double Bottleneck(const PlacementProblem& p, const Group& from, const Group& to, Group* order = nullptr) {
  std::vector<double> times;
  for (const int64_t a : from) {
    for (const int64_t b : to) times.push_back(SendTime(p, a, b));
  }
  std::sort(times.begin(), times.end());
  Matching matching(p, from, to);
  const auto least = std::partition_point(times.begin(), times.end(),
                                          [&](double limit) { return !matching.Perfect(limit); });
  if (order != nullptr) {
    matching.Perfect(*least);
    for (size_t k = 0; k < to.size(); ++k) (*order)[static_cast<size_t>(matching.partner()[k])] = to[k];
  }
  return *least;
}

/// The open path of least length through all groups: exact up to kExactStages, from the best nearest-neighbour tour
/// improved by 2-opt beyond.
class Path {
 public:
  explicit Path(const std::vector<std::vector<double>>& length) : length_(length), n_(length.size()) {}

  std::vector<size_t> Shortest() const { return n_ <= kExactStages ? Exact() : Improved(); }
  double Length(const std::vector<size_t>& order) const {
    double sum = 0;
    for (size_t i = 1; i < order.size(); ++i) sum += length_[order[i - 1]][order[i]];
    return sum;
  }

 private:
  std::vector<size_t> Exact() const {
    const size_t sets = size_t{1} << n_;
    std::vector<std::vector<double>> best(sets, std::vector<double>(n_, kInfinity));
    std::vector<std::vector<size_t>> before(sets, std::vector<size_t>(n_, 0));
    for (size_t i = 0; i < n_; ++i) best[size_t{1} << i][i] = 0;
    for (size_t set = 1; set < sets; ++set) {
      for (size_t last = 0; last < n_; ++last) {
        if (best[set][last] == kInfinity) continue;
        for (size_t next = 0; next < n_; ++next) {
          if (set >> next & 1) continue;
          const size_t with = set | size_t{1} << next;
          const double sum = best[set][last] + length_[last][next];
          if (sum >= best[with][next]) continue;
          best[with][next] = sum;
          before[with][next] = last;
        }
      }
    }
    size_t set = sets - 1;
    size_t last = static_cast<size_t>(std::min_element(best[set].begin(), best[set].end()) - best[set].begin());
    std::vector<size_t> order;
    for (size_t i = 0; i < n_; ++i) {
      order.push_back(last);
      const size_t previous = before[set][last];
      set ^= size_t{1} << last;
      last = previous;
    }
    std::reverse(order.begin(), order.end());
    return order;
  }

  std::vector<size_t> Improved() const {
    std::vector<size_t> order(n_);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = 1; i < n_; ++i) {
      std::iter_swap(order.begin() + static_cast<std::ptrdiff_t>(i),
                     std::min_element(order.begin() + static_cast<std::ptrdiff_t>(i), order.end(), [&](size_t a, size_t b) {
                       return length_[order[i - 1]][a] < length_[order[i - 1]][b];
                     }));
    }
    for (bool better = true; better;) {
      better = false;
      for (size_t i = 0; i + 1 < n_; ++i) {
        for (size_t k = i + 2; k <= n_; ++k) {
          std::vector<size_t> turned = order;
          std::reverse(turned.begin() + static_cast<std::ptrdiff_t>(i), turned.begin() + static_cast<std::ptrdiff_t>(k));
          if (Length(turned) >= Length(order) * (1 - 1e-12)) continue;
          order = std::move(turned);
          better = true;
        }
      }
    }
    return order;
  }

  const std::vector<std::vector<double>>& length_;
  size_t n_;
};

/// Groups with what they cost: after an exchange only two are priced anew.
class Search {
 public:
  explicit Search(const PlacementProblem& p) : p_(p), n_(static_cast<size_t>(p.stages)) {}

  DevicePlacement From(std::vector<Group> groups) {
    groups_ = std::move(groups);
    exchange_.assign(n_, 0);
    length_.assign(n_, std::vector<double>(n_, 0));
    for (size_t g = 0; g < n_; ++g) Price(g);
    double best = Total();
    for (bool better = true; better;) {
      better = false;
      for (size_t a = 0; a < n_; ++a) {
        for (size_t b = a + 1; b < n_; ++b) better = Exchange(a, b, best) || better;
      }
    }
    return Ordered();
  }

 private:
  void Price(size_t g) {
    exchange_[g] = ExchangeTime(p_, groups_[g]);
    for (size_t other = 0; other < n_; ++other) {
      if (other != g) length_[g][other] = length_[other][g] = Bottleneck(p_, groups_[g], groups_[other]);
    }
  }

  double Total() const {
    const Path path(length_);
    return *std::max_element(exchange_.begin(), exchange_.end()) + path.Length(path.Shortest());
  }

  /// Keeps the first exchanges between two groups that help.
  bool Exchange(size_t a, size_t b, double& best) {
    bool any = false;
    for (int64_t& x : groups_[a]) {
      for (int64_t& y : groups_[b]) {
        const auto exchange = exchange_;
        const auto length = length_;
        std::swap(x, y);
        Price(a);
        Price(b);
        const double now = Total();
        if (now < best * (1 - 1e-12)) {
          best = now;
          any = true;
          continue;
        }
        std::swap(x, y);
        exchange_ = exchange;
        length_ = length;
      }
    }
    return any;
  }

  DevicePlacement Ordered() const {
    const std::vector<size_t> order = Path(length_).Shortest();
    std::vector<int64_t> device;
    Group last = groups_[order[0]];
    for (size_t i = 0; i < n_; ++i) {
      Group here = groups_[order[i]];
      if (i > 0) Bottleneck(p_, last, groups_[order[i]], &here);
      device.insert(device.end(), here.begin(), here.end());
      last = std::move(here);
    }
    return PlacementCost(p_, std::move(device));
  }

  const PlacementProblem& p_;
  size_t n_;
  std::vector<Group> groups_;
  std::vector<double> exchange_;
  std::vector<std::vector<double>> length_;
};

/// Groups grown one after another, each from a device and those that it exchanges gradients with fastest.
std::vector<Group> Grown(const PlacementProblem& p, int64_t first) {
  std::vector<bool> taken(static_cast<size_t>(p.devices), false);
  std::vector<Group> groups;
  for (int64_t g = 0; g < p.stages; ++g) {
    int64_t seed = first;
    while (taken[static_cast<size_t>(seed)]) seed = (seed + 1) % p.devices;
    groups.push_back({seed});
    taken[static_cast<size_t>(seed)] = true;
    while (static_cast<int64_t>(groups.back().size()) < p.replicas) {
      int64_t nearest = -1;
      for (int64_t d = 0; d < p.devices; ++d) {
        if (taken[static_cast<size_t>(d)]) continue;
        if (nearest < 0 || ExchangeTime(p, {seed, d}) < ExchangeTime(p, {seed, nearest})) nearest = d;
      }
      groups.back().push_back(nearest);
      taken[static_cast<size_t>(nearest)] = true;
    }
  }
  return groups;
}

Status Check(const PlacementProblem& p) {
  const auto pairs = static_cast<size_t>(p.devices * p.devices);
  if (p.devices < 1 || p.devices > 4096 || p.stages < 1 || p.replicas < 1 || p.stages * p.replicas != p.devices) {
    return Fail(Code::kInvalidArgument, fmt::format("stages {} x replicas {}: expected the {} devices, 1 to 4096", p.stages,
                                                    p.replicas, p.devices));
  }
  if (p.latency.size() != pairs || p.rate.size() != pairs) {
    return Fail(Code::kInvalidArgument, fmt::format("latency and rate: {} and {} entries, expected {} x {}",
                                                    p.latency.size(), p.rate.size(), p.devices, p.devices));
  }
  for (int64_t a = 0; a < p.devices; ++a) {
    for (int64_t b = 0; b < p.devices; ++b) {
      const double rate = p.rate[At(p, a, b)], latency = p.latency[At(p, a, b)];
      if (a == b || (rate > 0 && latency >= 0 && std::isfinite(latency))) continue;
      return Fail(Code::kInvalidArgument, fmt::format("devices {} and {}: rate {} byte/s, latency {} s, expected a positive "
                                                      "rate and 0 s or more", a, b, rate, latency));
    }
  }
  return Ok();
}

}  // namespace

DevicePlacement PlacementCost(const PlacementProblem& p, std::vector<int64_t> device) {
  DevicePlacement placement;
  double exchange = 0, pipeline = 0;
  for (int64_t stage = 0; stage < p.stages; ++stage) {
    const auto begin = device.begin() + stage * p.replicas;
    exchange = std::max(exchange, ExchangeTime(p, Group(begin, begin + p.replicas)));
    double slowest = 0;
    for (int64_t r = 0; stage > 0 && r < p.replicas; ++r) {
      slowest = std::max(slowest, SendTime(p, *(begin + r - p.replicas), *(begin + r)));
    }
    pipeline += slowest;
  }
  placement.device = std::move(device);
  placement.exchange = Seconds(exchange);
  placement.pipeline = Seconds(pipeline);
  return placement;
}

Result<DevicePlacement> PlaceDevices(const PlacementProblem& p) {
  WEFT_RETURN_IF_ERROR(Check(p));
  DevicePlacement best;
  const auto starts = std::min<int64_t>(p.devices, kStarts);
  for (int64_t i = 0; i < starts; ++i) {
    DevicePlacement placement = Search(p).From(Grown(p, i * p.devices / starts));
    if (i == 0 || placement.total() < best.total()) best = std::move(placement);
  }
  return best;
}

}  // namespace weft::planner
