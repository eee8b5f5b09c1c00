#include "planner/flows/time_shift.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace weft::planner::inline flows {
namespace {

constexpr double kSame = 1e-9;
constexpr int64_t kLeastEvaluations = 100;  // for the circle of each link
constexpr size_t kPerturbed = 12;  // jobs of a group for which moving one job by force is tried as well

/// A link on which jobs can collide, and its circle.
struct SharedLink {
  LinkId link;
  std::vector<size_t> jobs;   // ascending, as in the circle
  LinkCircle circle;
  CircleFit best;
  double before = 0;          // excess with no shifts
};

double Fraction(double turns) {
  const double rest = turns - std::floor(turns);
  return rest < 1 ? rest : 0;
}

class ShiftPlanner {
 public:
  ShiftPlanner(std::span<const BitsPerSecond> capacity, std::span<const ShiftJob> jobs, const CircleOptions& options)
      : jobs_(jobs), options_(options), phase_(jobs.size(), 0), links_of_(jobs.size()), group_(jobs.size()) {
    FindShared(capacity);
  }

  ShiftPlan Run() {
    ShiftPlan plan;
    Tie(&plan);
    for (const std::vector<size_t>& group : Groups()) {
      if (group.size() < 2) continue;
      if (plan.loops && group.size() <= options_.exact_up_to) {
        SolveGroup(group);
      } else {
        Improve(group);
        if (plan.loops && group.size() <= kPerturbed) Perturb(group);
      }
    }
    Report(&plan);
    return plan;
  }

 private:
  /// Whether the search must end where it is.
  bool Spent() const { return options_.evaluations > 0 && evaluations_ > options_.evaluations; }

  void FindShared(std::span<const BitsPerSecond> capacity) {
    std::map<int32_t, std::vector<std::pair<size_t, const LinkUse*>>> users;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      for (const LinkUse& use : jobs_[j].uses) {
        if (!use.bursts.empty()) users[use.link.value()].emplace_back(j, &use);
      }
    }
    std::vector<Collision> collisions;
    for (const auto& [link, uses] : users) {
      const double rate = capacity[static_cast<size_t>(link)].value();
      double peak = 0;
      for (const auto& [j, use] : uses) {
        double highest = 0;
        for (const Burst& burst : use->bursts) highest = std::max(highest, burst.rate.value());
        peak += highest;
      }
      if (uses.size() > 1 && peak > rate * (1 + kSame)) collisions.push_back({link, peak - rate, &uses});
    }
    LeaveOut(&collisions);
    CircleOptions circles = options_;  // the links share what may be spent
    const auto count = static_cast<int64_t>(std::max<size_t>(1, collisions.size()));
    if (circles.evaluations > 0) circles.evaluations = std::max(kLeastEvaluations, circles.evaluations / count);
    for (const Collision& collision : collisions) {
      SharedLink shared{.link = LinkId(collision.link)};
      std::vector<CommunicationPattern> patterns;
      for (const auto& [j, use] : *collision.uses) {
        shared.jobs.push_back(j);
        patterns.push_back({jobs_[j].period, use->bursts});
      }
      const auto [fastest, slowest] = std::ranges::minmax(
          patterns, [](const auto& a, const auto& b) { return a.period < b.period; });
      if (slowest.period.count() > kMostPeriodRatio * fastest.period.count()) {
        ++left_out_;
        continue;
      }
      shared.circle = MakeCircle(capacity[static_cast<size_t>(collision.link)], patterns, options_);
      if (options_.edges > 0 && Edges(shared.circle) > options_.edges) {
        ++left_out_;
        continue;
      }
      shared.best = FitCircle(shared.circle, circles);
      cut_short_ |= !shared.best.complete;
      shared.before = CircleExcess(shared.circle, std::vector<double>(shared.jobs.size(), 0));
      for (const size_t j : shared.jobs) links_of_[j].push_back(links_.size());
      links_.push_back(std::move(shared));
    }
  }

  static size_t Edges(const LinkCircle& circle) {
    size_t edges = 0;
    for (const CircleJob& job : circle.jobs) edges += 2 * static_cast<size_t>(job.repeats) * job.bursts.size();
    return edges;
  }

  using Uses = std::vector<std::pair<size_t, const LinkUse*>>;
  struct Collision {
    int32_t link;
    double above;   // bits per second that can lie above capacity
    const Uses* uses;
  };

  /// Keeps the links that are among the worst of one of their jobs.
  void LeaveOut(std::vector<Collision>* collisions) {
    if (options_.links_per_job == 0) return;
    std::stable_sort(collisions->begin(), collisions->end(),
                     [](const Collision& a, const Collision& b) { return a.above > b.above; });
    std::vector<size_t> kept(jobs_.size(), 0);
    const size_t all = collisions->size();
    std::erase_if(*collisions, [&](const Collision& collision) {
      const bool full = std::ranges::all_of(*collision.uses, [&](const auto& use) {
        return kept[use.first] >= options_.links_per_job;
      });
      for (const auto& use : *collision.uses) kept[use.first] += !full;
      return full;
    });
    std::sort(collisions->begin(), collisions->end(),
              [](const Collision& a, const Collision& b) { return a.link < b.link; });
    left_out_ = all - collisions->size();
  }

  size_t Root(size_t j) {
    while (group_[j] != j) j = group_[j] = group_[group_[j]];
    return j;
  }

  /// Links in order of what shifts can gain on them; each is turned as a whole to fit the jobs already placed. A job keeps
  /// the phase of the first link that ties it to its group, a second tie is a loop.
  void Tie(ShiftPlan* plan) {
    std::iota(group_.begin(), group_.end(), size_t{0});
    std::vector<size_t> order(links_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return Gain(a) > Gain(b); });
    for (const size_t l : order) {
      const SharedLink& shared = links_[l];
      for (size_t i = 0; i < shared.jobs.size(); ++i) {
        const size_t base = shared.jobs[0], j = shared.jobs[i];
        if (i == 0) continue;
        if (Root(j) == Root(base)) {
          plan->loops = true;
          continue;
        }
        // Turn j's whole group, so that j stands to `base` as this circle wants it.
        const double period = shared.circle.jobs[i].period.count(), base_period = shared.circle.jobs[0].period.count();
        const double turned = phase_[base] * base_period - shared.best.rotation[0];
        const double wanted = Fraction((shared.best.rotation[i] + turned) / period);
        const double late = (wanted - phase_[j]) * jobs_[j].period.count();
        const size_t root = Root(j);
        for (size_t k = 0; k < jobs_.size(); ++k) {
          if (Root(k) == root) phase_[k] = Fraction(phase_[k] + late / jobs_[k].period.count());
        }
        phase_[j] = wanted;
        group_[root] = Root(base);
      }
    }
  }

  double Gain(size_t l) const {
    return (links_[l].before - links_[l].best.excess) / links_[l].circle.perimeter.count();
  }

  std::vector<std::vector<size_t>> Groups() {
    std::map<size_t, std::vector<size_t>> by_root;
    for (size_t j = 0; j < jobs_.size(); ++j) by_root[Root(j)].push_back(j);
    std::vector<std::vector<size_t>> groups;
    for (auto& [root, members] : by_root) groups.push_back(std::move(members));
    return groups;
  }

  /// Mean excess per second on one link with the present phases.
  double Excess(size_t l) const {
    const SharedLink& shared = links_[l];
    ++evaluations_;
    std::vector<double> rotation;
    for (size_t i = 0; i < shared.jobs.size(); ++i) {
      rotation.push_back(phase_[shared.jobs[i]] * shared.circle.jobs[i].period.count());
    }
    return CircleExcess(shared.circle, rotation) / shared.circle.perimeter.count();
  }

  double ExcessAround(size_t j) const {
    double sum = 0;
    for (const size_t l : links_of_[j]) sum += Excess(l);
    return sum;
  }

  /// Phases at which an edge of j meets one of another job on some link; with `placed`, only of those that are.
  std::vector<double> Candidates(size_t j, const std::vector<bool>* placed) const {
    std::vector<double> result;
    for (const size_t l : links_of_[j]) {
      const SharedLink& shared = links_[l];
      const size_t me = static_cast<size_t>(std::find(shared.jobs.begin(), shared.jobs.end(), j) - shared.jobs.begin());
      const double period = shared.circle.jobs[me].period.count();
      for (size_t i = 0; i < shared.jobs.size(); ++i) {
        if (i == me || (placed != nullptr && !(*placed)[shared.jobs[i]])) continue;
        const double other = phase_[shared.jobs[i]] * shared.circle.jobs[i].period.count();
        for (const double rotation : Meetings(shared.circle, me, i, other)) result.push_back(rotation / period);
      }
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end(), [](double a, double b) { return b - a <= kSame; }),
                 result.end());
    return result;
  }

  double Something() const {
    double capacity = 0;
    for (const SharedLink& shared : links_) capacity = std::max(capacity, shared.circle.capacity.value());
    return kSame * capacity;
  }

  /// One job at a time to where its links collide least, while that helps.
  void Improve(const std::vector<size_t>& group) {
    for (bool improved = true; improved && !Spent();) {
      improved = false;
      for (const size_t j : group) {
        if (Spent()) return;
        double best = ExcessAround(j), chosen = phase_[j];
        if (best <= Something()) continue;
        const double old = best;
        for (const double candidate : Candidates(j, nullptr)) {
          if (Spent()) break;
          phase_[j] = candidate;
          const double excess = ExcessAround(j);
          if (excess < best - Something()) best = excess, chosen = candidate;
        }
        phase_[j] = chosen;
        improved |= best < old - Something();
      }
    }
  }

  double Total(const std::vector<size_t>& group) {
    double excess = 0;
    for (size_t l = 0; l < links_.size(); ++l) {
      if (Root(links_[l].jobs[0]) == Root(group[0])) excess += Excess(l);
    }
    return excess;
  }

  /// Puts one job somewhere by force and lets the others follow, while that helps: loops have answers that no single move
  /// leads to.
  void Perturb(const std::vector<size_t>& group) {
    std::vector<double> best = phase_;
    double least = Total(group);
    for (bool improved = true; improved && least > Something() && !Spent();) {
      improved = false;
      for (const size_t j : group) {
        std::vector<size_t> others = group;
        others.erase(std::find(others.begin(), others.end(), j));
        phase_ = best;
        for (const double candidate : Candidates(j, nullptr)) {
          if (Spent()) break;
          phase_ = best;
          phase_[j] = candidate;
          Improve(others);
          Improve(group);
          const double excess = Total(group);
          if (excess >= least - Something()) continue;
          least = excess;
          best = phase_;
          improved = true;
          if (least <= Something() || Spent()) break;
        }
        if (least <= Something() || Spent()) break;
      }
    }
    phase_ = best;
  }

  /// All trees of meetings over a small group, as circle.cc does for one link.
  void SolveGroup(const std::vector<size_t>& group) {
    Improve(group);
    std::vector<bool> placed(jobs_.size(), false);
    std::vector<double> best = phase_;
    double least = Total(group);
    std::vector<size_t> links;
    for (size_t l = 0; l < links_.size(); ++l) {
      if (Root(links_[l].jobs[0]) == Root(group[0])) links.push_back(l);
    }
    placed[group[0]] = true;
    Extend(group, links, 1, &placed, &best, &least);
    phase_ = best;
  }

  void Extend(const std::vector<size_t>& group, const std::vector<size_t>& links, size_t count,
              std::vector<bool>* placed, std::vector<double>* best, double* least) {
    if (count == group.size()) {
      double excess = 0;
      for (const size_t l : links) excess += Excess(l);
      if (excess < *least - Something()) *least = excess, *best = phase_;
      return;
    }
    for (const size_t j : group) {
      if ((*placed)[j]) continue;
      const double old = phase_[j];
      (*placed)[j] = true;
      for (const double candidate : Candidates(j, placed)) {
        phase_[j] = candidate;
        Extend(group, links, count + 1, placed, best, least);
        if (*least <= Something() || Spent()) break;
      }
      (*placed)[j] = false;
      phase_[j] = old;
      if (*least <= Something() || Spent()) return;
    }
  }

  void Report(ShiftPlan* plan) const {
    plan->links_left_out = left_out_;
    plan->complete = !Spent() && !cut_short_;
    for (size_t j = 0; j < jobs_.size(); ++j) plan->shift.push_back(jobs_[j].period * phase_[j]);
    for (size_t l = 0; l < links_.size(); ++l) {
      const SharedLink& shared = links_[l];
      const double perimeter = shared.circle.perimeter.count(), excess = Excess(l);
      plan->links.push_back({shared.link, CircleScore(shared.circle, shared.before),
                             CircleScore(shared.circle, excess * perimeter), shared.best.score, shared.circle.stretch,
                             shared.best.exact});
      plan->excess_before += shared.before / perimeter;
      plan->excess += excess;
      plan->excess_bound += shared.best.excess / perimeter;
    }
  }

  const std::span<const ShiftJob> jobs_;
  const CircleOptions options_;
  std::vector<SharedLink> links_;
  std::vector<double> phase_;                   // shift / period
  std::vector<std::vector<size_t>> links_of_;   // indices of links_
  std::vector<size_t> group_;                   // union-find
  size_t left_out_ = 0;
  bool cut_short_ = false;                      // of some circle's search
  mutable int64_t evaluations_ = 0;             // of one link's excess
};

}  // namespace

ShiftPlan PlanTimeShifts(std::span<const BitsPerSecond> capacity, std::span<const ShiftJob> jobs,
                         const CircleOptions& options) {
  return ShiftPlanner(capacity, jobs, options).Run();
}

ShiftJob PatternOf(std::span<const BitsPerSecond> capacity, const PeriodicJob& job) {
  ShiftJob pattern{.period = IterationAlone(capacity, job)};
  const double alone = CommunicationAlone(capacity, job).count();
  if (!(alone > 0) || alone > 1e300) return pattern;
  const std::vector<PeriodicBurst> bursts = BurstsOf(job);
  std::vector<double> sending, ends;
  for (const PeriodicBurst& burst : bursts) sending.push_back(SendingAlone(capacity, burst.loads).count());
  IterationOf(job.compute, TimesOf(job), sending, &ends);
  std::map<int32_t, size_t> place;  // of a link among the uses
  for (size_t b = 0; b < bursts.size(); ++b) {
    const Seconds begin(ends[b] - sending[b]), end(ends[b]);
    for (const LinkLoad& load : bursts[b].loads) {
      if (load.bytes.count() == 0) continue;
      const auto [at, added] = place.try_emplace(load.link.value(), pattern.uses.size());
      if (added) pattern.uses.push_back({load.link, {}});
      pattern.uses[at->second].bursts.push_back({begin, end, load.bytes / Seconds(sending[b])});
    }
  }
  return pattern;
}

}  // namespace weft::planner::flows
