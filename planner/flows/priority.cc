#include "planner/flows/priority.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace weft::planner::inline flows {
namespace {

constexpr double kMostCorrection = 16;
constexpr double kGain = 1e-6;  // less is rounding
constexpr uint32_t kDraws = 8;  // starts from drawn orders and classes
constexpr size_t kDrawnUpTo = 12;
constexpr size_t kCutEdges = 200'000;  // above, the least cut over contentions would take seconds

std::vector<int32_t> PlaceInOrder(std::span<const size_t> order) {
  std::vector<int32_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int32_t>(i);
  return place;
}

/// Groups of jobs that meet, directly or through others; each ascending, in order of their first job.
std::vector<std::vector<size_t>> Groups(std::span<const BitsPerSecond> capacity, std::span<const PeriodicJob> jobs) {
  std::vector<size_t> parent(jobs.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t j) {
    while (parent[j] != j) j = parent[j] = parent[parent[j]];
    return j;
  };
  std::vector<int32_t> user(capacity.size(), -1);
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (const LinkLoad& load : jobs[j].loads) {
      if (load.bytes.count() == 0) continue;
      int32_t& first = user[load.link.index()];
      if (first < 0) first = static_cast<int32_t>(j);
      const size_t a = root(static_cast<size_t>(first)), b = root(j);
      parent[std::max(a, b)] = std::min(a, b);
    }
  }
  std::vector<std::vector<size_t>> groups;
  std::vector<size_t> group_of(jobs.size());
  for (size_t j = 0; j < jobs.size(); ++j) {
    const size_t r = root(j);
    if (r == j) {
      group_of[j] = groups.size();
      groups.emplace_back();
    }
    groups[group_of[r]].push_back(j);
  }
  return groups;
}

/// One group of jobs, numbered from 0.
class GroupPlanner {
 public:
  GroupPlanner(std::span<const BitsPerSecond> capacity, std::vector<PeriodicJob> jobs, std::vector<double> intensity,
               const PriorityOptions& options)
      : jobs_(std::move(jobs)), intensity_(std::move(intensity)), options_(options),
        simulator_(capacity, jobs_, options.simulation), left_(options.evaluations) {}

  PriorityPlan Run() {
    PriorityPlan plan;
    plan.order.resize(jobs_.size());
    std::iota(plan.order.begin(), plan.order.end(), size_t{0});
    std::stable_sort(plan.order.begin(), plan.order.end(),
                     [&](size_t a, size_t b) { return intensity_[a] > intensity_[b]; });
    if (!Simulates()) {
      plan.classes = ByWorth(plan.order);
      plan.complete = options_.evaluations == 0;
      return plan;
    }
    if (jobs_.size() > 1 && jobs_.size() <= options_.enumerate_up_to) {
      plan.order = EnumerateOrders(simulator_).order;
    } else if (options_.evaluations > 0) {
      ImproveOrder(&plan.order);
      complete_ &= left_ >= 0;
      DrawOrders(&plan.order);
    }
    plan.gpu_use_order = Use(PlaceInOrder(plan.order));
    left_ = options_.evaluations;
    Compress(&plan);
    plan.complete = complete_;
    return plan;
  }

 private:
  /// In large groups each simulation is dear and one descent takes them all.
  uint32_t Draws() const { return jobs_.size() <= kDrawnUpTo ? kDraws : 0; }
  bool Simulates() const { return jobs_.size() <= options_.simulate_up_to; }

  /// Classes by the worth of contentions: exact for the order, or over all orders that agree where jobs meet if that is
  /// affordable.
  std::vector<int32_t> ByWorth(const std::vector<size_t>& order) const {
    const CompressionProblem problem = Problem(order);
    const bool small = problem.contentions.size() * static_cast<size_t>(options_.classes) <= kCutEdges;
    return PerJob(order, small ? CompressPriorities(problem) : CompressOrder(problem));
  }

  CompressionProblem Problem(const std::vector<size_t>& order) const {
    CompressionProblem problem{.contentions = Contentions(jobs_, order), .classes = options_.classes};
    for (const size_t j : order) problem.weight.push_back(std::min(intensity_[j], 1e12));
    return problem;
  }

  static std::vector<int32_t> PerJob(const std::vector<size_t>& order, const std::vector<int32_t>& by_place) {
    std::vector<int32_t> classes(by_place.size());
    for (size_t i = 0; i < by_place.size(); ++i) classes[order[i]] = by_place[i];
    return classes;
  }

  double Use(const std::vector<int32_t>& classes) const { return simulator_.Run(classes).gpu_use; }
  bool Spend() { return left_-- > 0; }

  /// The same from a few orders drawn at random, the same in every run: loops of jobs that yield to each other have orders
  /// that no single move leads to.
  void DrawOrders(std::vector<size_t>* order) {
    double best = Use(PlaceInOrder(*order));
    for (uint32_t draw = 0; draw < Draws() && left_ > 0; ++draw) {
      std::mt19937 random(draw);
      std::vector<size_t> trial = *order;
      for (size_t i = trial.size(); i > 1; --i) std::swap(trial[i - 1], trial[random() % i]);
      const double use = ImproveOrder(&trial);
      if (use <= best + kGain) continue;
      best = use;
      *order = std::move(trial);
    }
  }

  /// Takes a job out and puts it elsewhere, near first, while that helps. Returns the GPU use.
  double ImproveOrder(std::vector<size_t>* order) {
    double best = Use(PlaceInOrder(*order));
    for (bool improved = true; improved;) {
      improved = false;
      for (size_t distance = 1; distance < order->size(); ++distance) {
        for (size_t at = 0; at + distance < order->size(); ++at) {
          for (const bool up : {true, false}) {
            if (distance == 1 && !up) continue;  // the same swap
            std::vector<size_t> trial = (*order);
            const auto begin = trial.begin() + static_cast<int64_t>(at);
            const auto end = begin + static_cast<int64_t>(distance) + 1;
            std::rotate(begin, up ? end - 1 : begin + 1, end);
            if (!Spend()) return best;
            const double use = Use(PlaceInOrder(trial));
            if (use <= best + kGain) continue;
            best = use;
            (*order) = std::move(trial);
            improved = true;
          }
        }
      }
    }
    return best;
  }

  /// Classes from the order: the exact compression by the worth of contentions, then moves by simulation.
  void Compress(PriorityPlan* plan) {
    plan->classes = ByWorth(plan->order);
    plan->gpu_use = Use(plan->classes);
    if (jobs_.size() < 2 || options_.evaluations == 0) return;
    if (jobs_.size() <= options_.enumerate_up_to && options_.classes <= 4) {
      PriorityPlan best = EnumerateClasses(simulator_, options_.classes);
      if (best.gpu_use <= plan->gpu_use + kGain) return;
      plan->classes = std::move(best.classes);
      plan->gpu_use = best.gpu_use;
      return;
    }
    std::vector<int32_t> whole_order = PerJob(plan->order, CompressOrder(Problem(plan->order)));
    const double use = Use(whole_order);
    if (use > plan->gpu_use + kGain) plan->classes = std::move(whole_order), plan->gpu_use = use;
    ImproveClasses(plan);
    complete_ &= left_ >= 0;
    for (uint32_t draw = 0; draw < Draws() && left_ > 0; ++draw) {
      std::mt19937 random(draw);
      PriorityPlan trial = *plan;
      for (int32_t& c : trial.classes) c = static_cast<int32_t>(random() % static_cast<uint32_t>(options_.classes));
      trial.gpu_use = Use(trial.classes);
      ImproveClasses(&trial);
      if (trial.gpu_use > plan->gpu_use + kGain) *plan = std::move(trial);
    }
  }

  bool Try(std::vector<int32_t> classes, PriorityPlan* plan) {
    if (!Spend()) return false;
    const double use = Use(classes);
    if (use <= plan->gpu_use + kGain) return false;
    plan->gpu_use = use;
    plan->classes = std::move(classes);
    return true;
  }

  /// Moves one job to another class, or swaps two, while that helps.
  void ImproveClasses(PriorityPlan* plan) {
    for (bool improved = true; improved && left_ > 0;) {
      improved = false;
      for (size_t a = 0; a < jobs_.size(); ++a) {
        for (int32_t c = 0; c < options_.classes; ++c) {
          std::vector<int32_t> trial = plan->classes;
          if (trial[a] == c) continue;
          trial[a] = c;
          improved |= Try(std::move(trial), plan);
        }
        for (size_t b = a + 1; b < jobs_.size(); ++b) {
          std::vector<int32_t> trial = plan->classes;
          if (trial[a] == trial[b]) continue;
          std::swap(trial[a], trial[b]);
          improved |= Try(std::move(trial), plan);
        }
      }
    }
  }

  const std::vector<PeriodicJob> jobs_;
  const std::vector<double> intensity_;
  const PriorityOptions& options_;
  const PeriodicSimulator simulator_;
  int64_t left_;
  bool complete_ = true;
};

}  // namespace

double GpuIntensity(std::span<const BitsPerSecond> capacity, const PeriodicJob& job) {
  const double alone = CommunicationAlone(capacity, job).count();
  return alone > 0 ? job.gpus * job.compute.count() / alone : std::numeric_limits<double>::infinity();
}

double IntensityCorrection(std::span<const BitsPerSecond> capacity, const PeriodicJob& reference,
                           const PeriodicJob& job) {
  const double times[2] = {CommunicationAlone(capacity, reference).count(), CommunicationAlone(capacity, job).count()};
  if (!(times[0] > 0) || !(times[1] > 0) || !(times[0] + times[1] < 1e300)) return 1;
  constexpr double kBytesPerSecond = 1e9;  // of one made-up link; only ratios of times matter
  const BitsPerSecond link(8 * kBytesPerSecond);
  PeriodicJob pair[2] = {reference, job};
  for (size_t i = 0; i < 2; ++i) {
    pair[i].loads = {{LinkId(0), Bytes(static_cast<int64_t>(times[i] * kBytesPerSecond)), 1}};
    pair[i].bursts.clear();  // the one that stands for them
    pair[i].start = Seconds(0);
  }
  const PeriodicSimulator simulator({&link, 1}, pair);
  const SteadyState first = simulator.Run(std::vector<int32_t>{0, 1});
  const SteadyState second = simulator.Run(std::vector<int32_t>{1, 0});
  const auto sent = [&](const SteadyState& state, size_t i) { return times[i] / state.iteration[i].count(); };
  const double lost = sent(first, 0) - sent(second, 0), gained = sent(second, 1) - sent(first, 1);
  if (gained <= kGain) return lost <= kGain ? 1 : 1 / kMostCorrection;
  return lost <= kGain ? kMostCorrection : std::clamp(gained / lost, 1 / kMostCorrection, kMostCorrection);
}

std::vector<double> CorrectedIntensity(std::span<const BitsPerSecond> capacity, std::span<const PeriodicJob> jobs) {
  std::vector<double> intensity;
  size_t reference = 0;
  Seconds most(-1);
  for (size_t j = 0; j < jobs.size(); ++j) {
    const Seconds alone = CommunicationAlone(capacity, jobs[j]);
    if (alone > most && alone.count() < 1e300) most = alone, reference = j;
    intensity.push_back(GpuIntensity(capacity, jobs[j]));
  }
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (j != reference) intensity[j] *= IntensityCorrection(capacity, jobs[reference], jobs[j]);
  }
  return intensity;
}

std::vector<Contention> Contentions(std::span<const PeriodicJob> jobs, std::span<const size_t> order) {
  std::vector<std::pair<int32_t, size_t>> uses;  // link, place
  for (size_t i = 0; i < order.size(); ++i) {
    for (const LinkLoad& load : jobs[order[i]].loads) {
      if (load.bytes.count() > 0) uses.emplace_back(load.link.value(), i);
    }
  }
  std::sort(uses.begin(), uses.end());
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t a = 0; a < uses.size(); ++a) {
    for (size_t b = a + 1; b < uses.size() && uses[b].first == uses[a].first; ++b) {
      pairs.emplace_back(uses[a].second, uses[b].second);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  std::vector<Contention> result;
  for (const auto& [first, second] : pairs) result.push_back({first, second});
  return result;
}

PriorityPlan PlanPriorities(std::span<const BitsPerSecond> capacity, std::span<const PeriodicJob> jobs,
                            const PriorityOptions& options) {
  PriorityPlan plan;
  plan.order.resize(jobs.size());
  plan.classes.assign(jobs.size(), 0);
  plan.intensity.assign(jobs.size(), 0);
  double gpus = 0;
  std::vector<double> place(jobs.size());  // of each job in its group, 0 … 1: merges the groups' orders
  for (const std::vector<size_t>& group : Groups(capacity, jobs)) {
    std::vector<PeriodicJob> members;
    double group_gpus = 0;
    for (const size_t j : group) {
      members.push_back(jobs[j]);
      group_gpus += jobs[j].gpus;
    }
    std::vector<double> intensity = CorrectedIntensity(capacity, members);
    const PriorityPlan part = GroupPlanner(capacity, std::move(members), intensity, options).Run();
    for (size_t i = 0; i < group.size(); ++i) {
      plan.classes[group[i]] = part.classes[i];
      plan.intensity[group[i]] = intensity[i];
      place[group[part.order[i]]] = static_cast<double>(i) / static_cast<double>(group.size());
    }
    plan.gpu_use_order += part.gpu_use_order * group_gpus;
    plan.gpu_use += part.gpu_use * group_gpus;
    plan.complete &= part.complete;
    gpus += group_gpus;
  }
  if (gpus > 0) plan.gpu_use_order /= gpus, plan.gpu_use /= gpus;
  std::iota(plan.order.begin(), plan.order.end(), size_t{0});
  std::stable_sort(plan.order.begin(), plan.order.end(), [&](size_t a, size_t b) { return place[a] < place[b]; });
  return plan;
}

PriorityPlan EnumerateClasses(const PeriodicSimulator& simulator, int32_t classes) {
  PriorityPlan best{.gpu_use = -1};
  std::vector<int32_t> trial(simulator.jobs(), 0);
  for (;;) {
    // Classes left out below a used one give the same strict order: each is tried once, without gaps.
    const int32_t highest = trial.empty() ? 0 : *std::max_element(trial.begin(), trial.end());
    bool dense = true;
    for (int32_t c = 0; c < highest; ++c) dense &= std::find(trial.begin(), trial.end(), c) != trial.end();
    if (dense) {
      const double use = simulator.Run(trial).gpu_use;
      if (use > best.gpu_use) best.gpu_use = use, best.classes = trial;
    }
    size_t j = 0;
    for (; j < trial.size() && trial[j] + 1 == classes; ++j) trial[j] = 0;
    if (j == trial.size()) return best;
    ++trial[j];
  }
}

PriorityPlan EnumerateOrders(const PeriodicSimulator& simulator) {
  PriorityPlan best{.gpu_use = -1};
  std::vector<size_t> order(simulator.jobs());
  std::iota(order.begin(), order.end(), size_t{0});
  do {
    std::vector<int32_t> classes = PlaceInOrder(order);
    const double use = simulator.Run(classes).gpu_use;
    if (use > best.gpu_use) best.order = order, best.classes = std::move(classes), best.gpu_use = use;
  } while (std::next_permutation(order.begin(), order.end()));
  best.gpu_use_order = best.gpu_use;
  return best;
}

}  // namespace weft::planner::flows
