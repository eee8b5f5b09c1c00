#include "planner/flows/local_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace weft::planner::inline flows {
namespace {

constexpr double kSame = 1e-9;  // two utilisations that differ by less, or by less of them, are equal but for rounding

/// Whether a is lexically smaller than b; both sorted, worst first.
bool Smaller(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) <= kSame * std::max({1.0, a[i], b[i]})) continue;
    return a[i] < b[i];
  }
  return false;
}

}  // namespace

LocalSearch::LocalSearch(const Instance& instance, int32_t units, int32_t grain,
                         std::vector<std::vector<int32_t>> start)
    : instance_(instance), units_(units), grain_(grain), shares_(std::move(start)), load_(instance.capacity.size(), 0) {
  for (size_t f = 0; f < shares_.size(); ++f) {
    for (size_t p = 0; p < shares_[f].size(); ++p) AddLoad(f, p, shares_[f][p]);
  }
}

void LocalSearch::AddLoad(size_t f, size_t path, int32_t units) {
  const InstanceFlow& flow = instance_.flows[f];
  if (units == 0 || flow.usable.empty()) return;
  for (const int32_t link : flow.paths[path]) load_[static_cast<size_t>(link)] += flow.demand * units / units_;
}

void LocalSearch::Apply(const Move& move) {
  shares_[move.flow][move.from] -= move.units;
  shares_[move.flow][move.to] += move.units;
  AddLoad(move.flow, move.from, -move.units);
  AddLoad(move.flow, move.to, move.units);
}

/// Utilisation of every link on a path of `moves`, worst first.
std::vector<double> LocalSearch::Use(const Move* moves, size_t count) const {
  std::vector<int32_t> links;
  for (size_t i = 0; i < count; ++i) {
    for (const size_t path : {moves[i].from, moves[i].to}) {
      const PathLinks& on_path = instance_.flows[moves[i].flow].paths[path];
      links.insert(links.end(), on_path.begin(), on_path.end());
    }
  }
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  std::vector<double> use;
  for (const int32_t link : links) {
    const size_t l = static_cast<size_t>(link);
    use.push_back(UseAt(link, load_[l]));
  }
  std::sort(use.begin(), use.end(), std::greater<>());
  return use;
}

double LocalSearch::UseAt(int32_t link, double load) const {
  const double capacity = instance_.capacity[static_cast<size_t>(link)];
  // A dead link is worse than any load; only flows that are leaving it are on it.
  return capacity > 0 ? load / capacity : load > 1e-6 ? 1e300 : 0;
}

void LocalSearch::AddChange(const PathLinks& path, double load) {
  for (const int32_t link : path) {
    const auto there = std::find_if(change_.begin(), change_.end(), [&](const auto& c) { return c.first == link; });
    if (there != change_.end()) there->second += load;
    else change_.emplace_back(link, load);
  }
}

/// Whether the loads that change_ adds make the links concerned lexically less used, worst first. Links that stay as they
/// are would stand on both sides and never decide.
bool LocalSearch::ChangeImproves() {
  before_.clear();
  after_.clear();
  for (const auto& [link, load] : change_) {
    if (load == 0) continue;
    before_.push_back(UseAt(link, load_[static_cast<size_t>(link)]));
    after_.push_back(UseAt(link, load_[static_cast<size_t>(link)] + load));
  }
  std::sort(before_.begin(), before_.end(), std::greater<>());
  std::sort(after_.begin(), after_.end(), std::greater<>());
  return Smaller(after_, before_);
}

/// Makes the moves if they improve.
bool LocalSearch::Keep(const Move* moves, size_t count) {
  change_.clear();
  for (size_t i = 0; i < count; ++i) {
    const InstanceFlow& flow = instance_.flows[moves[i].flow];
    const double load = flow.demand * moves[i].units / units_;
    AddChange(flow.paths[moves[i].from], -load);
    AddChange(flow.paths[moves[i].to], load);
  }
  if (!ChangeImproves()) return false;
  for (size_t i = 0; i < count; ++i) Apply(moves[i]);
  return true;
}

void LocalSearch::Place(size_t f) {
  const InstanceFlow& flow = instance_.flows[f];
  if (flow.usable.empty()) {
    shares_[f][0] = units_;
    return;
  }
  size_t best = flow.usable.front();
  AddLoad(f, best, units_);
  for (const size_t p : flow.usable) {
    if (p == best) continue;
    const Move move{f, best, p, units_};
    shares_[f][best] = units_;
    if (Keep(&move, 1)) best = p;
  }
  shares_[f][best] = units_;
}

bool LocalSearch::ImproveFlow(size_t f, Budget* budget) {
  bool improved = false;
  const InstanceFlow& flow = instance_.flows[f];
  for (size_t from = 0; from < flow.paths.size(); ++from) {
    for (const size_t to : flow.usable) {
      if (to == from) continue;
      // Large moves first: fewer evaluations, and whole flows stay whole where that is as good.
      for (int32_t units = units_; units >= grain_; units /= 2) {
        if (units > shares_[f][from]) continue;
        const Move move{f, from, to, units};
        if (!budget->Spend()) return improved;
        if (Keep(&move, 1)) improved = true;
      }
    }
  }
  return improved;
}

bool LocalSearch::TryPairs(const Move& first, const Users& users, Budget* budget) {
  // Flows that are on the target path, in their order.
  std::vector<size_t> places;
  for (const int32_t link : instance_.flows[first.flow].paths[first.to]) {
    const std::vector<size_t>& on_link = users[static_cast<size_t>(link)];
    places.insert(places.end(), on_link.begin(), on_link.end());
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const PathLinks& target = instance_.flows[first.flow].paths[first.to];
  for (const size_t place : places) {
    const size_t g = instance_.order[place];
    if (g == first.flow) continue;
    const InstanceFlow& other = instance_.flows[g];
    for (size_t from = 0; from < other.paths.size(); ++from) {
      if (shares_[g][from] == 0) continue;
      const bool meets = std::any_of(other.paths[from].begin(), other.paths[from].end(), [&](int32_t link) {
        return std::find(target.begin(), target.end(), link) != target.end();
      });
      if (!meets) continue;
      for (const size_t to : other.usable) {
        if (to == from) continue;
        const Move moves[2] = {first, {g, from, to, shares_[g][from]}};
        if (!budget->Spend()) return false;
        if (Keep(moves, 2)) return true;
      }
    }
  }
  return false;
}

/// Per link: the places in the order of the movable flows that are on it.
LocalSearch::Users LocalSearch::UsersOf(const std::vector<bool>& movable) const {
  Users users(load_.size());
  for (size_t place = 0; place < instance_.order.size(); ++place) {
    const size_t f = instance_.order[place];
    if (!movable[f] || instance_.flows[f].usable.empty()) continue;
    for (size_t p = 0; p < shares_[f].size(); ++p) {
      if (shares_[f][p] == 0) continue;
      for (const int32_t link : instance_.flows[f].paths[p]) users[static_cast<size_t>(link)].push_back(place);
    }
  }
  return users;
}

/// Moves a flow off the worst link together with one that makes room for it.
bool LocalSearch::ImproveByPairs(const std::vector<bool>& movable, Budget* budget) {
  double worst = 0;
  for (size_t l = 0; l < load_.size(); ++l) {
    if (instance_.capacity[l] > 0) worst = std::max(worst, load_[l] / instance_.capacity[l]);
  }
  const Users users = UsersOf(movable);
  for (const size_t f : instance_.order) {
    if (!movable[f]) continue;
    const InstanceFlow& flow = instance_.flows[f];
    for (const size_t from : flow.usable) {
      if (shares_[f][from] == 0) continue;
      const bool on_worst = std::any_of(flow.paths[from].begin(), flow.paths[from].end(), [&](int32_t link) {
        const size_t l = static_cast<size_t>(link);
        return load_[l] >= worst * (1 - kSame) * instance_.capacity[l];
      });
      if (!on_worst) continue;
      for (const size_t to : flow.usable) {
        if (to == from) continue;
        if (TryPairs({f, from, to, shares_[f][from]}, users, budget)) return true;
        if (budget->exhausted()) return false;
      }
    }
  }
  return false;
}

void LocalSearch::Descend(const std::vector<bool>& movable, Budget* budget) {
  for (;;) {
    bool improved = false;
    for (const size_t f : instance_.order) {
      if (movable[f]) improved |= ImproveFlow(f, budget);
    }
    if (budget->exhausted()) return;
    if (!improved && !ImproveByPairs(movable, budget)) return;
  }
}

void LocalSearch::Sparsify(double slack, Budget* budget) {
  for (const size_t f : instance_.order) {
    const InstanceFlow& flow = instance_.flows[f];
    std::vector<size_t> by_share = flow.usable;
    std::stable_sort(by_share.begin(), by_share.end(), [&](size_t a, size_t b) { return shares_[f][a] < shares_[f][b]; });
    for (const size_t from : by_share) {  // smallest first, onto the largest that takes it
      for (size_t i = by_share.size(); i > 0; --i) {
        const size_t to = by_share[i - 1];
        if (from == to || shares_[f][from] == 0 || shares_[f][to] == 0) continue;
        if (!budget->Spend()) return;
        const Move move{f, from, to, shares_[f][from]};
        const double before = Use(&move, 1).front();
        Apply(move);
        if (Use(&move, 1).front() > before * slack) Apply({f, to, from, move.units});
      }
    }
  }
}

Shares LocalSearch::AsShares() const {
  Shares shares;
  for (const auto& row : shares_) {
    shares.emplace_back();
    for (const int32_t units : row) shares.back().push_back(static_cast<double>(units) / units_);
  }
  return shares;
}

std::vector<std::vector<int32_t>> RoundShares(const Shares& shares, int32_t units) {
  std::vector<std::vector<int32_t>> rounded;
  for (const auto& row : shares) {
    std::vector<int32_t> whole;
    std::vector<size_t> by_rest(row.size());
    std::iota(by_rest.begin(), by_rest.end(), size_t{0});
    for (const double share : row) whole.push_back(static_cast<int32_t>(std::floor(share * units)));
    std::stable_sort(by_rest.begin(), by_rest.end(), [&](size_t a, size_t b) {
      return row[a] * units - whole[a] > row[b] * units - whole[b];
    });
    int32_t missing = units - std::accumulate(whole.begin(), whole.end(), 0);
    for (size_t i = 0; missing > 0; i = (i + 1) % by_rest.size(), --missing) ++whole[by_rest[i]];
    rounded.push_back(std::move(whole));
  }
  return rounded;
}

}  // namespace weft::planner::flows
