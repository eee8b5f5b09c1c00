#include "planner/parallelism/layer_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::planner::inline parallelism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kWidths[] = {16, 256, std::numeric_limits<size_t>::max()};

/// The chain with one entry per layer, and its bounds.
class Chain {
 public:
  explicit Chain(const ChainProblem& problem) : problem_(problem) {
    for (const LayerRun& run : problem.runs) {
      for (int64_t i = 0; i < run.count; ++i) layers_.push_back(&run.options);
    }
    least_memory_.assign(layers_.size() + 1, 0);
    for (size_t l = layers_.size(); l-- > 0;) {
      int64_t least = std::numeric_limits<int64_t>::max();
      for (const LayerOption& option : *layers_[l]) least = std::min(least, option.memory);
      least_memory_[l] = least_memory_[l + 1] + least;
    }
    CheckTriangle();
    if (least_memory_[0] <= problem.budget) ChoosePrices();
  }

  size_t layers() const { return layers_.size(); }
  const std::vector<LayerOption>& options(size_t layer) const { return *layers_[layer]; }
  int64_t least_memory(size_t from) const { return least_memory_[from]; }
  int64_t budget() const { return problem_.budget; }
  bool triangle() const { return triangle_; }
  double Relayout(const LayerOption& from, const LayerOption& to) const {
    if (problem_.relayout.empty()) return 0;
    return problem_.relayout[from.layout * problem_.layouts + to.layout];
  }

  /// Of all answers.
  double bound() const { return bound_; }

  /// Least time of the layers after `layer`, which took `option`, within `spare` bytes: the best of all prices.
  double Rest(size_t layer, size_t option, int64_t spare) const {
    if (spare < least_memory_[layer + 1]) return kInfinity;
    double best = 0;
    for (const Priced& priced : prices_) {
      best = std::max(best, priced.rest[layer][option] - priced.price * static_cast<double>(spare));
    }
    return best;
  }

 private:
  struct Priced {
    double price;                           // seconds per byte
    std::vector<std::vector<double>> rest;  // [layer][option]: cheapest way to the end after it
    double whole = 0;
    int64_t memory = 0;                     // of one cheapest way
  };

  void CheckTriangle() {
    const size_t n = problem_.relayout.empty() ? 0 : problem_.layouts;
    const auto cost = [&](size_t a, size_t b) { return problem_.relayout[a * n + b]; };
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) {
        for (size_t c = 0; c < n; ++c) triangle_ = triangle_ && cost(a, c) <= cost(a, b) + cost(b, c);
      }
    }
  }

  Priced Price(double price) const {
    Priced priced{price, std::vector<std::vector<double>>(layers_.size()), 0, 0};
    std::vector<std::vector<size_t>> next(layers_.size());
    const auto own = [&](const LayerOption& o) { return o.time + price * static_cast<double>(o.memory); };
    for (size_t l = layers_.size(); l-- > 0;) {
      priced.rest[l].assign(layers_[l]->size(), 0.0);
      next[l].assign(layers_[l]->size(), 0);
      if (l + 1 == layers_.size()) continue;
      for (size_t i = 0; i < layers_[l]->size(); ++i) {
        double best = kInfinity;
        for (size_t k = 0; k < layers_[l + 1]->size(); ++k) {
          const LayerOption& to = (*layers_[l + 1])[k];
          const double cost = Relayout((*layers_[l])[i], to) + own(to) + priced.rest[l + 1][k];
          if (cost < best) {
            best = cost;
            next[l][i] = k;
          }
        }
        priced.rest[l][i] = best;
      }
    }
    if (layers_.empty()) return priced;
    size_t at = 0;
    priced.whole = kInfinity;
    for (size_t i = 0; i < layers_[0]->size(); ++i) {
      const double cost = own((*layers_[0])[i]) + priced.rest[0][i];
      if (cost < priced.whole) {
        priced.whole = cost;
        at = i;
      }
    }
    for (size_t l = 0; l < layers_.size(); at = next[l][at], ++l) priced.memory += (*layers_[l])[at].memory;
    return priced;
  }

  /// Prices around the one whose bound is highest: its cheapest way just fits.
  void ChoosePrices() {
    const auto keep = [&](Priced priced) {
      bound_ = std::max(bound_, priced.whole - priced.price * static_cast<double>(problem_.budget));
      prices_.push_back(std::move(priced));
    };
    Priced free = Price(0);
    const double scale = std::max(free.whole, 1e-300) / static_cast<double>(std::max<int64_t>(free.memory, 1));
    const bool fits = free.memory <= problem_.budget;
    keep(std::move(free));
    if (fits) return;
    double low = 0, high = scale;
    for (int i = 0; i < 60 && Price(high).memory > problem_.budget; ++i) high *= 4;
    for (int i = 0; i < 40; ++i) {
      const double middle = (low + high) / 2;
      (Price(middle).memory > problem_.budget ? low : high) = middle;
    }
    for (const double factor : {1.0, 0.97, 1.03, 0.8, 1.25, 0.5, 2.0}) keep(Price(high * factor));
  }

  const ChainProblem& problem_;
  std::vector<const std::vector<LayerOption>*> layers_;
  std::vector<int64_t> least_memory_;
  std::vector<Priced> prices_;
  double bound_ = 0;
  bool triangle_ = true;
};

struct Label {
  int64_t memory;
  double time;
  uint32_t parent;  // place in the layer before
  uint32_t option;
  double bound;
};

bool Before(const Label& a, const Label& b) {
  if (a.memory != b.memory) return a.memory < b.memory;
  if (a.time != b.time) return a.time < b.time;
  return a.option != b.option ? a.option < b.option : a.parent < b.parent;
}

class ChainPass {
 public:
  ChainPass(const Chain& chain, size_t width, int64_t most) : chain_(chain), width_(width), most_(most) {}

  /// True if an answer below `upper` was found; the least, unless narrowed.
  bool Run(double upper, double tolerance) {
    cut_ = upper * (1 - std::max(tolerance, 1e-15));
    for (size_t l = 0; l < chain_.layers(); ++l) {
      if (!Step(l)) return false;
    }
    best_ = 0;
    for (size_t i = 1; i < layers_.back().size(); ++i) {
      if (layers_.back()[i].time < layers_.back()[best_].time) best_ = i;
    }
    return true;
  }

  bool narrowed() const { return narrowed_; }
  bool complete() const { return complete_; }
  int64_t states() const { return states_; }
  const Label& best() const { return layers_.back()[best_]; }
  std::vector<size_t> Options() const {
    std::vector<size_t> options(layers_.size());
    size_t place = best_;
    for (size_t l = layers_.size(); l-- > 0;) {
      options[l] = layers_[l][place].option;
      place = layers_[l][place].parent;
    }
    return options;
  }

 private:
  void Extend(size_t layer, const Label* from, uint32_t parent, std::vector<Label>& out) {
    const std::vector<LayerOption>& options = chain_.options(layer);
    for (size_t k = 0; k < options.size(); ++k) {
      const int64_t memory = (from != nullptr ? from->memory : 0) + options[k].memory;
      double time = options[k].time;
      if (from != nullptr) time += from->time + chain_.Relayout(chain_.options(layer - 1)[from->option], options[k]);
      const double bound = time + chain_.Rest(layer, k, chain_.budget() - memory);
      if (bound < cut_) out.push_back({memory, time, parent, static_cast<uint32_t>(k), bound});
    }
    states_ += static_cast<int64_t>(options.size());
  }

  bool Step(size_t layer) {
    std::vector<Label> next;
    if (layer == 0) {
      Extend(layer, nullptr, 0, next);
    } else {
      for (size_t i = 0; i < layers_.back().size(); ++i) {
        Extend(layer, &layers_.back()[i], static_cast<uint32_t>(i), next);
      }
    }
    if (states_ > most_) {
      complete_ = false;
      return false;
    }
    std::sort(next.begin(), next.end(), Before);
    RemoveDominated(layer, next);
    if (next.size() > width_) {
      narrowed_ = true;
      std::stable_sort(next.begin(), next.end(), [](const Label& a, const Label& b) {
        return a.bound != b.bound ? a.bound < b.bound : a.memory > b.memory;
      });
      next.resize(width_);
      std::sort(next.begin(), next.end(), Before);
    }
    if (next.empty()) return false;
    layers_.push_back(std::move(next));
    return true;
  }

  /// In order of memory, a label stays only if it is earlier than what any other option reaches by a re-layout.
  void RemoveDominated(size_t layer, std::vector<Label>& labels) const {
    const std::vector<LayerOption>& options = chain_.options(layer);
    std::vector<double> earliest(options.size(), kInfinity);
    size_t kept = 0;
    for (const Label& label : labels) {
      if (label.time >= earliest[label.option]) continue;
      earliest[label.option] = label.time;
      if (chain_.triangle()) {
        for (size_t k = 0; k < options.size(); ++k) {
          earliest[k] = std::min(earliest[k], label.time + chain_.Relayout(options[label.option], options[k]));
        }
      }
      labels[kept++] = label;
    }
    labels.resize(kept);
  }

  const Chain& chain_;
  size_t width_;
  int64_t most_;
  double cut_ = kInfinity;
  bool narrowed_ = false, complete_ = true;
  int64_t states_ = 0;
  size_t best_ = 0;
  std::vector<std::vector<Label>> layers_;
};

}  // namespace

ChainAnswer SolveLayerChain(const ChainProblem& problem, const KnapsackLimits& limits) {
  ChainAnswer answer;
  const Chain chain(problem);
  if (chain.least_memory(0) > problem.budget) {
    answer.lower_bound = kInfinity;
    return answer;
  }
  answer.lower_bound = chain.bound();
  answer.time = limits.upper;
  if (chain.layers() == 0) {
    answer.feasible = true;
    answer.time = 0;
    return answer;
  }
  for (const size_t width : kWidths) {
    if (answer.lower_bound >= answer.time * (1 - limits.tolerance)) break;
    ChainPass pass(chain, width, limits.states - answer.states);
    const bool found = pass.Run(answer.time, limits.tolerance);
    answer.states += pass.states();
    answer.complete = pass.complete();
    if (found) {
      answer.feasible = true;
      answer.time = pass.best().time;
      answer.memory = pass.best().memory;
      answer.option = pass.Options();
    }
    if (!pass.narrowed()) break;  // nothing was left out: proved, or the limit is spent
  }
  if (answer.complete && answer.feasible) {
    answer.lower_bound = std::max(answer.lower_bound, answer.time * (1 - limits.tolerance));
  }
  return answer;
}

}  // namespace weft::planner::parallelism
