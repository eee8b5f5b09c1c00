#include "planner/jobs/starts/start_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <random>
#include <tuple>
#include <utility>

namespace weft::planner::inline jobs {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1.1;                 // run times that deadlines should stand
constexpr double kForever = 1e12, kNever = 1e13;  // seconds, of jobs without an end, and without a begin
constexpr double kShortest = 1e-9;             // seconds: a job takes time
constexpr double kTightShare = 0.3;            // of a late job, while searching
constexpr double kHot = 0.1;                   // first temperature, of the wait
constexpr uint64_t kSeed = 0x7374617274;

/// What a schedule comes to; less is better.
struct Cost {
  int32_t late = 0, tight = 0;                 // past their deadlines; also with kSlack
  double wait = kInfinity;

  auto operator<=>(const Cost&) const = default;
};

struct Choice {
  std::vector<size_t> order, size;             // of jobs; per job
};

/// Free hosts over time, as steps that hold until the next one.
class Profile {
 public:
  Profile(const StartState& state, double stretch) {
    steps_.emplace_back(0, state.free);
    std::vector<std::pair<double, int32_t>> freed;
    for (const FreedHosts& one : state.freed) freed.emplace_back(std::max(0.0, one.after.count() * stretch), one.hosts);
    std::sort(freed.begin(), freed.end());
    for (const auto& [after, hosts] : freed) {
      const int32_t now = steps_.back().second + hosts;
      if (after > steps_.back().first) steps_.emplace_back(after, now);
      else steps_.back().second = now;
    }
  }

  /// Takes `hosts` for `runtime` from the earliest time on; infinite where they never become free.
  double Take(int32_t hosts, double runtime) {
    for (size_t from = 0; from < steps_.size(); ++from) {
      size_t until = from;
      const double end = steps_[from].first + runtime;
      while (until < steps_.size() && steps_[until].first < end && steps_[until].second >= hosts) ++until;
      if (until < steps_.size() && steps_[until].first < end) {
        from = until;                          // too few there: no begin up to it will do
        continue;
      }
      const double begin = steps_[from].first;
      if (until == steps_.size() || steps_[until].first > end) {
        steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(until), {end, steps_[until - 1].second});
      }
      for (size_t s = from; s < until; ++s) steps_[s].second -= hosts;
      return begin;
    }
    return kInfinity;
  }

 private:
  std::vector<std::pair<double, int32_t>> steps_;
};

class StartSearch {
 public:
  StartSearch(const StartState& state, int64_t schedules) : state_(state), left_(schedules), random_(kSeed) {
    for (const WaitingJob& job : state.waiting) weight_ += job.weight;
  }

  StartPlan Run() {
    const std::vector<size_t> searched = Searched();
    if (Count(searched) <= static_cast<double>(left_)) {
      Enumerate(searched);
      return Plan(true);
    }
    for (const Choice& start : Starts(searched)) Offer(start);
    Improve();
    return Plan(false);
  }

 private:
  /// The jobs whose order and size are looked for.
  std::vector<size_t> Searched() const {
    std::vector<size_t> jobs(state_.waiting.size());
    std::iota(jobs.begin(), jobs.end(), 0);
    if (jobs.size() <= kMostSearched) return jobs;
    std::vector<size_t> urgent = jobs;
    std::stable_sort(urgent.begin(), urgent.end(), [&](size_t a, size_t b) { return DeadlineOf(a) < DeadlineOf(b); });
    urgent.resize(kMostSearched / 2);
    std::erase_if(urgent, [&](size_t j) { return DeadlineOf(j) == kInfinity; });
    for (size_t j = 0; j < jobs.size() && urgent.size() < kMostSearched; ++j) {
      if (std::ranges::find(urgent, j) == urgent.end()) urgent.push_back(j);
    }
    std::sort(urgent.begin(), urgent.end());
    return urgent;
  }

  double DeadlineOf(size_t j) const { return state_.waiting[j].deadline ? state_.waiting[j].deadline->count() : kInfinity; }

  double Count(const std::vector<size_t>& jobs) const {
    double count = jobs.size() == state_.waiting.size() ? 1 : kInfinity;
    for (size_t i = 0; i < jobs.size(); ++i) count *= static_cast<double>((i + 1) * state_.waiting[jobs[i]].sizes.size());
    return count;
  }

  void Enumerate(std::vector<size_t> order) {
    do {
      Choice choice{order, std::vector<size_t>(order.size(), 0)};
      for (size_t place = 0; place < order.size();) {
        Offer(choice);
        for (place = 0; place < order.size(); ++place) {
          if (++choice.size[place] < state_.waiting[place].sizes.size()) break;
          choice.size[place] = 0;
        }
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }

  /// Orders by arrival, deadline, run time and size, each with all jobs at their fastest, their cheapest and their smallest sizes.
  std::vector<Choice> Starts(const std::vector<size_t>& searched) const {
    std::vector<Choice> starts;
    const std::vector<std::function<double(const StartSize&)>> sizes = {
        [](const StartSize& s) { return s.runtime.count(); }, [](const StartSize& s) { return s.runtime.count() * s.hosts; },
        [](const StartSize& s) { return static_cast<double>(s.hosts); }};
    for (const auto& least : sizes) {
      std::vector<size_t> size;
      for (const WaitingJob& job : state_.waiting) {
        const auto at = std::min_element(job.sizes.begin(), job.sizes.end(), [&](const auto& a, const auto& b) { return least(a) < least(b); });
        size.push_back(static_cast<size_t>(at - job.sizes.begin()));
      }
      const auto chosen = [&](size_t j) -> const StartSize& { return state_.waiting[j].sizes[size[j]]; };
      const std::vector<std::function<double(size_t)>> orders = {
          [](size_t j) { return static_cast<double>(j); }, [&](size_t j) { return DeadlineOf(j) - chosen(j).runtime.count(); },
          [&](size_t j) { return DeadlineOf(j); }, [&](size_t j) { return chosen(j).runtime.count(); },
          [&](size_t j) { return -static_cast<double>(chosen(j).hosts); }};
      for (const auto& key : orders) {
        std::vector<size_t> order = searched;
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
        for (size_t j = 0; j < state_.waiting.size(); ++j) {
          if (!std::ranges::binary_search(searched, j)) order.push_back(j);
        }
        starts.push_back({std::move(order), size});
      }
    }
    return starts;
  }

  /// Annealed from the best: another place in the order, another size, or both, while schedules are left.
  void Improve() {
    Choice now = best_;
    Cost cost = best_cost_;
    const size_t n = std::min(now.order.size(), kMostSearched);
    const auto schedules = static_cast<double>(left_);
    const double unit = best_cost_.wait;       // what a late job counts
    const auto energy = [&](const Cost& c) { return unit * (c.late + kTightShare * c.tight) + c.wait; };
    while (left_ > 0) {
      const double temperature = kHot * unit * static_cast<double>(left_) / schedules;
      Choice trial = now;
      Move(n, &trial);
      const Cost reached = Offer(trial);
      const double worse = energy(reached) - energy(cost);
      if (worse <= 0 || Uniform() < std::exp(-worse / temperature)) now = std::move(trial), cost = reached;
    }
  }

  void Move(size_t n, Choice* choice) {
    const uint64_t kind = random_() % 3;
    if (kind != 1) {
      const size_t from = random_() % n, to = random_() % n, job = choice->order[from];
      choice->order.erase(choice->order.begin() + static_cast<std::ptrdiff_t>(from));
      choice->order.insert(choice->order.begin() + static_cast<std::ptrdiff_t>(to), job);
    }
    if (kind != 0) {
      const size_t job = choice->order[random_() % n];
      choice->size[job] = random_() % state_.waiting[job].sizes.size();
    }
  }

  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  Cost Offer(const Choice& choice) {
    --left_;
    Cost cost = Judge(choice, 1, nullptr);
    cost.tight = Judge(choice, kSlack, nullptr).late;
    if (best_.order.empty() || cost < best_cost_) best_ = choice, best_cost_ = cost;
    return cost;
  }

  Cost Judge(const Choice& choice, double stretch, std::vector<PlannedStart>* starts) const {
    Profile profile(state_, stretch);
    Cost cost{.wait = 0};
    double all = 0, weighed = 0, wasted = 0;
    for (const size_t j : choice.order) {
      const WaitingJob& job = state_.waiting[j];
      const StartSize& size = job.sizes[choice.size[j]];
      const double runtime = std::max(kShortest, size.runtime.count() * stretch);
      const double begin = profile.Take(size.hosts, runtime), end = begin + runtime;
      cost.late += end > DeadlineOf(j) ? 1 : 0;
      const double response = job.waited.count() + (begin == kInfinity ? kNever : end == kInfinity ? kForever + begin : end);
      all += response / static_cast<double>(choice.order.size());
      if (weight_ > 0) weighed += job.weight * response / weight_;
      if (end < kInfinity) wasted += size.runtime.count() * size.hosts - Cheapest(job);
      if (starts != nullptr) starts->push_back({j, choice.size[j], Seconds(begin), Seconds(end)});
    }
    cost.wait = all + weighed + state_.load * wasted / std::max(1, state_.hosts);
    return cost;
  }

  static double Cheapest(const WaitingJob& job) {
    double least = kInfinity;
    for (const StartSize& size : job.sizes) least = std::min(least, size.runtime.count() * size.hosts);
    return least;
  }

  StartPlan Plan(bool enumerated) const {
    StartPlan plan{.enumerated = enumerated};
    plan.late = Judge(best_, 1, &plan.starts).late;
    std::stable_sort(plan.starts.begin(), plan.starts.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return plan;
  }

  const StartState& state_;
  int64_t left_;
  double weight_ = 0;
  Choice best_;
  Cost best_cost_{.late = std::numeric_limits<int32_t>::max()};
  std::mt19937_64 random_;
};

}  // namespace

StartPlan PlanStarts(const StartState& state, int64_t schedules) {
  if (state.waiting.empty()) return {.enumerated = true};
  return StartSearch(state, schedules).Run();
}

int64_t BoundLate(const std::vector<BoundedJob>& jobs, int32_t hosts) {
  int64_t late = 0;
  std::vector<std::pair<double, double>> due;    // deadline, host seconds
  for (const BoundedJob& job : jobs) {
    if (!job.deadline) continue;
    if (job.arrival + job.fastest > *job.deadline) ++late;
    else due.emplace_back(job.deadline->count(), job.least);
  }
  std::sort(due.begin(), due.end());
  std::priority_queue<double> taken;
  double sum = 0;
  for (const auto& [deadline, least] : due) {
    taken.push(least);
    sum += least;
    if (sum <= deadline * hosts * (1 + 1e-12)) continue;
    sum -= taken.top();
    taken.pop();
    ++late;
  }
  return late;
}

}  // namespace weft::planner::jobs
