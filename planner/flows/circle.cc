#include "planner/flows/circle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/check.h"

namespace weft::planner::inline flows {
namespace {

constexpr double kSame = 1e-9;  // of a perimeter or of what it could carry: rounding

struct Edge {
  double at;
  double change;  // of demand, bits per second
};

double Modulo(double value, double period) {
  const double rest = value - period * std::floor(value / period);
  return rest < period ? rest : 0;
}

/// The edges of job j, late by `rotation`, and what it already sends where the circle begins.
void AddEdges(const LinkCircle& circle, size_t j, double rotation, std::vector<Edge>* edges, double* at_zero) {
  const CircleJob& job = circle.jobs[j];
  const double perimeter = circle.perimeter.count(), period = job.period.count();
  for (const Burst& burst : job.bursts) {
    for (int32_t copy = 0; copy < job.repeats; ++copy) {
      const double begin = Modulo(burst.begin.count() + rotation + copy * period, perimeter);
      const double end = begin + (burst.end - burst.begin).count();
      edges->push_back({begin, burst.rate.value()});
      edges->push_back({end < perimeter ? end : end - perimeter, -burst.rate.value()});
      if (end >= perimeter) *at_zero += burst.rate.value();
    }
  }
}

/// Excess of the jobs named in `placed` only.
double ExcessOf(const LinkCircle& circle, std::span<const size_t> placed, std::span<const double> rotation,
                std::vector<Edge>* edges) {
  edges->clear();
  double demand = 0;
  for (const size_t j : placed) AddEdges(circle, j, rotation[j], edges, &demand);
  std::sort(edges->begin(), edges->end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  const double capacity = circle.capacity.value();
  double excess = 0, from = 0;
  for (const Edge& edge : *edges) {
    excess += std::max(0.0, demand - capacity) * (edge.at - from);
    from = edge.at;
    demand += edge.change;
  }
  return excess + std::max(0.0, demand - capacity) * (circle.perimeter.count() - from);
}

/// What a search may still spend.
struct Budget {
  int64_t left;

  explicit Budget(int64_t evaluations)
      : left(evaluations > 0 ? evaluations : std::numeric_limits<int64_t>::max()) {}
  bool Spent() const { return left <= 0; }
};

/// Branch and bound over the trees of meetings that tie all jobs to job 0.
class ExactFit {
 public:
  ExactFit(const LinkCircle& circle, int64_t evaluations)
      : circle_(circle), budget_(evaluations), rotation_(circle.jobs.size(), 0), best_(rotation_), used_(circle.jobs.size(), false),
        nothing_(kSame * circle.capacity.value() * circle.perimeter.count()) {}

  CircleFit Run() {
    if (!circle_.jobs.empty()) {
      placed_.push_back(0);
      used_[0] = true;
      Extend();
    }
    const bool whole = least_ <= nothing_ || !budget_.Spent();
    return {best_, least_ < std::numeric_limits<double>::infinity() ? least_ : CircleExcess(circle_, best_), 1, whole, whole};
  }

 private:
  /// One more job only adds demand, so a part that is no better than the best whole need not be finished.
  void Extend() {
    --budget_.left;
    const double excess = ExcessOf(circle_, placed_, rotation_, &edges_);
    if (excess >= least_ - nothing_) return;
    if (placed_.size() == circle_.jobs.size()) {
      least_ = excess;
      best_ = rotation_;
      return;
    }
    for (size_t j = 0; j < circle_.jobs.size(); ++j) {
      if (used_[j]) continue;
      std::vector<double> candidates{0};
      for (const size_t k : placed_) {
        const std::vector<double> more = Meetings(circle_, j, k, rotation_[k]);
        candidates.insert(candidates.end(), more.begin(), more.end());
      }
      std::sort(candidates.begin(), candidates.end());
      candidates.erase(std::unique(candidates.begin(), candidates.end(), [&](double a, double b) {
        return b - a <= kSame * circle_.perimeter.count();
      }), candidates.end());
      used_[j] = true;
      placed_.push_back(j);
      for (const double candidate : candidates) {
        rotation_[j] = candidate;
        Extend();
        if (least_ <= nothing_ || budget_.Spent()) break;
      }
      rotation_[j] = 0;
      placed_.pop_back();
      used_[j] = false;
      if (least_ <= nothing_ || budget_.Spent()) return;
    }
  }

  const LinkCircle& circle_;
  Budget budget_;
  std::vector<double> rotation_, best_;
  std::vector<bool> used_;
  std::vector<size_t> placed_;
  std::vector<Edge> edges_;
  double least_ = std::numeric_limits<double>::infinity();
  const double nothing_;
};

/// Jobs by falling traffic, each where it fits best; then one job at a time is moved while that helps.
CircleFit GreedyFit(const LinkCircle& circle, int64_t evaluations) {
  const size_t n = circle.jobs.size();
  CircleFit fit{std::vector<double>(n, 0), 0, 1, false};
  Budget budget(evaluations);
  std::vector<size_t> order(n), placed;
  std::vector<double> traffic(n, 0);
  for (size_t j = 0; j < n; ++j) {
    order[j] = j;
    for (const Burst& b : circle.jobs[j].bursts) {
      traffic[j] += circle.jobs[j].repeats * (b.end - b.begin).count() * b.rate.value();
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return traffic[a] > traffic[b]; });
  std::vector<Edge> edges;
  const double something = kSame * circle.capacity.value() * circle.perimeter.count();
  const auto improve = [&](size_t j, double best) {
    const double old = best;
    double chosen = fit.rotation[j];
    for (const size_t k : placed) {
      if (k == j) continue;
      for (const double candidate : Meetings(circle, j, k, fit.rotation[k])) {
        if (budget.left-- <= 0) break;
        fit.rotation[j] = candidate;
        const double excess = ExcessOf(circle, placed, fit.rotation, &edges);
        if (excess < best - something) best = excess, chosen = candidate;
      }
    }
    fit.rotation[j] = chosen;
    return best < old - something;
  };
  for (const size_t j : order) {
    placed.push_back(j);
    improve(j, ExcessOf(circle, placed, fit.rotation, &edges));
  }
  for (bool improved = true; improved && !budget.Spent();) {
    improved = false;
    for (const size_t j : order) improved |= improve(j, ExcessOf(circle, placed, fit.rotation, &edges));
  }
  const double turn = n > 0 ? fit.rotation[0] : 0;
  for (size_t j = 0; j < n; ++j) fit.rotation[j] = Modulo(fit.rotation[j] - turn, circle.jobs[j].period.count());
  fit.excess = ExcessOf(circle, placed, fit.rotation, &edges);
  fit.complete = !budget.Spent();
  return fit;
}

}  // namespace

LinkCircle MakeCircle(BitsPerSecond capacity, std::span<const CommunicationPattern> jobs, const CircleOptions& options) {
  WEFT_CHECK(capacity.value() > 0, "a circle for a link without capacity");
  LinkCircle circle{.capacity = capacity};
  double longest = 0;
  for (const CommunicationPattern& job : jobs) {
    WEFT_CHECK(job.period.count() > 0, "a pattern without a period");
    longest = std::max(longest, job.period.count());
  }
  std::vector<int32_t> repeats(jobs.size(), 1), best;
  double least = std::numeric_limits<double>::infinity();
  for (int32_t turns = 1; turns <= options.most_repeats && least > options.tolerance; ++turns) {
    double perimeter = 0;
    for (size_t j = 0; j < jobs.size(); ++j) {
      const double ratio = std::min(longest / jobs[j].period.count(), kMostPeriodRatio);  // in range of what counts them
      repeats[j] = static_cast<int32_t>(turns * ratio * (1 + kSame));
      // The nearest number of repeats may need all others to grow a little, which can be less than this one's growth.
      const double more = (repeats[j] + 1) * jobs[j].period.count() / (turns * longest) - 1;
      if (more <= options.tolerance) ++repeats[j];
      perimeter = std::max(perimeter, repeats[j] * jobs[j].period.count());
    }
    double stretch = 0;
    for (size_t j = 0; j < jobs.size(); ++j) {
      stretch = std::max(stretch, perimeter / (repeats[j] * jobs[j].period.count()) - 1);
    }
    if (stretch < least - kSame) {
      least = stretch;
      best = repeats;
      circle.perimeter = Seconds(perimeter);
    }
  }
  circle.stretch = jobs.empty() ? 0 : std::max(0.0, least);
  for (size_t j = 0; j < jobs.size(); ++j) {
    circle.jobs.push_back({best[j], circle.perimeter / best[j], jobs[j].bursts});
  }
  return circle;
}

double CircleExcess(const LinkCircle& circle, std::span<const double> rotation) {
  std::vector<size_t> all(circle.jobs.size());
  for (size_t j = 0; j < all.size(); ++j) all[j] = j;
  std::vector<Edge> edges;
  return ExcessOf(circle, all, rotation, &edges);
}

double CircleScore(const LinkCircle& circle, double excess) {
  return circle.perimeter.count() > 0 ? 1 - excess / (circle.perimeter.count() * circle.capacity.value()) : 1;
}

std::vector<double> Meetings(const LinkCircle& circle, size_t j, size_t k, double rotation) {
  const CircleJob &job = circle.jobs[j], &other = circle.jobs[k];
  std::vector<double> result;
  for (const Burst& burst : other.bursts) {
    for (const Seconds edge : {burst.begin, burst.end}) {
      for (int32_t copy = 0; copy < other.repeats; ++copy) {
        const double at = edge.count() + rotation + copy * other.period.count();
        for (const Burst& own : job.bursts) {
          for (const Seconds mine : {own.begin, own.end}) result.push_back(Modulo(at - mine.count(), job.period.count()));
        }
      }
    }
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end(), [&](double a, double b) {
    return b - a <= kSame * circle.perimeter.count();
  }), result.end());
  return result;
}

CircleFit FitCircle(const LinkCircle& circle, const CircleOptions& options) {
  const bool small = circle.jobs.size() <= options.exact_up_to;
  CircleFit fit = small ? ExactFit(circle, options.evaluations).Run() : GreedyFit(circle, options.evaluations);
  if (small && !fit.complete) {  // the first trees of many need not be good ones
    CircleFit greedy = GreedyFit(circle, options.evaluations);
    greedy.complete = false;
    if (greedy.excess < fit.excess) fit = std::move(greedy);
  }
  fit.score = CircleScore(circle, fit.excess);
  return fit;
}

}  // namespace weft::planner::flows
