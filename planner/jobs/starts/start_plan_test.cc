#include "planner/jobs/starts/start_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace weft::planner::inline jobs {
namespace {

/// Fewest late jobs over all schedules in which jobs begin when another ends: written without the code under test.
class Schedules {
 public:
  explicit Schedules(const StartState& state) : state_(state), begun_(state.waiting.size(), false) {
    for (const FreedHosts& freed : state.freed) ends_.emplace(freed.after.count(), freed.hosts);
  }

  int FewestLate() {
    Try(0, state_.free, 0);
    return fewest_;
  }

 private:
  void Try(double now, int32_t free, int late) {
    if (late >= fewest_) return;
    if (std::ranges::all_of(begun_, [](bool begun) { return begun; })) {
      fewest_ = late;
      return;
    }
    for (size_t j = 0; j < begun_.size(); ++j) {
      if (begun_[j]) continue;
      begun_[j] = true;
      for (const StartSize& size : state_.waiting[j].sizes) {
        if (size.hosts > free) continue;
        const double end = now + size.runtime.count();
        const auto at = ends_.emplace(end, size.hosts);
        const auto& deadline = state_.waiting[j].deadline;
        Try(now, free - size.hosts, late + (deadline && end > deadline->count() ? 1 : 0));
        ends_.erase(at);
      }
      begun_[j] = false;
    }
    const auto next = ends_.upper_bound(now);
    if (next == ends_.end()) return;
    const double then = next->first;
    int32_t freed = 0;
    for (auto at = next; at != ends_.end() && at->first == then; ++at) freed += at->second;
    Try(then, free + freed, late);
  }

  const StartState& state_;
  std::vector<bool> begun_;
  std::multimap<double, int32_t> ends_;
  int fewest_ = 1000;
};

StartState RandomState(std::mt19937_64* random, size_t jobs) {
  const auto pick = [&](int64_t least, int64_t most) { return least + static_cast<int64_t>((*random)() % static_cast<uint64_t>(most - least + 1)); };
  StartState state{.hosts = static_cast<int32_t>(pick(3, 8))};
  const auto busy = static_cast<int32_t>(pick(0, state.hosts - 1));
  state.free = state.hosts - busy;
  if (busy > 0) state.freed = {{Seconds(static_cast<double>(pick(1, 50))), busy}};
  for (size_t j = 0; j < jobs; ++j) {
    WaitingJob job{.deadline = Seconds(static_cast<double>(pick(20, 160)))};
    const int64_t least = pick(1, state.hosts), most = pick(least, state.hosts), work = pick(20, 120);
    for (int64_t hosts = least; hosts <= std::min(most, least + 2); ++hosts) {
      job.sizes.push_back({static_cast<int32_t>(hosts), Seconds(static_cast<double>(work) / static_cast<double>(hosts) + 5)});
    }
    state.waiting.push_back(std::move(job));
  }
  return state;
}

/// No moment at which more hosts are taken than there are.
void ExpectFits(const StartState& state, const StartPlan& plan) {
  std::vector<std::pair<double, int32_t>> changes = {{0, state.free}};
  for (const FreedHosts& freed : state.freed) changes.emplace_back(freed.after.count(), freed.hosts);
  for (const PlannedStart& start : plan.starts) {
    const StartSize& size = state.waiting[start.job].sizes[start.size];
    changes.emplace_back(start.begin.count(), -size.hosts);
    changes.emplace_back(start.end.count(), size.hosts);
  }
  std::sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return std::pair(a.first, -a.second) < std::pair(b.first, -b.second); });
  int32_t free = 0;
  for (const auto& [at, hosts] : changes) {
    free += hosts;
    EXPECT_GE(free, 0) << "at " << at << " s";
  }
}

TEST(PlanStartsTest, FewJobsMissNoDeadlineThatAScheduleKeeps) {
  std::mt19937_64 random(11);
  int some_late = 0, some_kept = 0;
  for (int round = 0; round < 300; ++round) {
    const StartState state = RandomState(&random, 1 + random() % 4);
    const StartPlan plan = PlanStarts(state);
    const int fewest = Schedules(state).FewestLate();
    EXPECT_TRUE(plan.enumerated);
    EXPECT_EQ(plan.late, fewest) << "round " << round;
    EXPECT_EQ(plan.starts.size(), state.waiting.size());
    ExpectFits(state, plan);
    some_late += fewest > 0 ? 1 : 0;
    some_kept += fewest == 0 ? 1 : 0;
  }
  EXPECT_GT(some_late, 30);
  EXPECT_GT(some_kept, 30);
}

TEST(PlanStartsTest, TheSearchOfSixJobsComesAsFarAsEnumeration) {
  std::mt19937_64 random(12);
  int searched = 0;
  for (int round = 0; round < 60; ++round) {
    const StartState state = RandomState(&random, 6);
    const StartPlan plan = PlanStarts(state);
    searched += plan.enumerated ? 0 : 1;
    ExpectFits(state, plan);
    EXPECT_EQ(plan.late, Schedules(state).FewestLate()) << "round " << round;
  }
  EXPECT_GT(searched, 15);
}

TEST(PlanStartsTest, TheBoundIsNeverAboveTheBestSchedule) {
  std::mt19937_64 random(13);
  int tight = 0;
  for (int round = 0; round < 200; ++round) {
    StartState state = RandomState(&random, 1 + random() % 4);
    state.free = state.hosts;
    state.freed.clear();
    std::vector<BoundedJob> jobs;
    for (const WaitingJob& job : state.waiting) {
      BoundedJob bounded{.deadline = job.deadline, .fastest = Seconds(1e9), .least = 1e18};
      for (const StartSize& size : job.sizes) {
        bounded.fastest = std::min(bounded.fastest, size.runtime);
        bounded.least = std::min(bounded.least, size.runtime.count() * size.hosts);
      }
      jobs.push_back(bounded);
    }
    const int fewest = Schedules(state).FewestLate();
    EXPECT_LE(BoundLate(jobs, state.hosts), fewest);
    tight += fewest > 0 && BoundLate(jobs, state.hosts) == fewest ? 1 : 0;
  }
  EXPECT_GT(tight, 10);
}

TEST(PlanStartsTest, ALargeJobKeepsItsPlaceBeforeSmallOnesThatWouldDelayIt) {
  // Four hosts, two of them free; the large job needs all of them in 10 s. One small job is through by then, the other is not.
  StartState state{.hosts = 4, .free = 2, .freed = {{Seconds(10), 2}}};
  state.waiting = {{.deadline = Seconds(111), .sizes = {{4, Seconds(100)}}}, {.sizes = {{1, Seconds(9)}}}, {.sizes = {{1, Seconds(60)}}}};
  const StartPlan plan = PlanStarts(state);
  ASSERT_EQ(plan.late, 0);
  std::vector<double> begin(3);
  for (const PlannedStart& start : plan.starts) begin[start.job] = start.begin.count();
  EXPECT_EQ(begin[0], 10);
  EXPECT_EQ(begin[1], 0);
  EXPECT_EQ(begin[2], 110);
}

TEST(PlanStartsTest, JobsWithoutAnEndAndJobsWithoutAPlaceAreAnswered) {
  const Seconds forever(std::numeric_limits<double>::infinity());
  StartState state{.hosts = 2, .free = 1};   // the other host is never free
  state.waiting = {{.sizes = {{2, Seconds(5)}}}, {.sizes = {{1, forever}}}, {.sizes = {{1, Seconds(5)}}}};
  const StartPlan plan = PlanStarts(state);
  ASSERT_EQ(plan.starts.size(), 3u);
  EXPECT_EQ(plan.starts[0].job, 2u);
  EXPECT_EQ(plan.starts[1].job, 1u);
  EXPECT_EQ(plan.starts[1].begin.count(), 5);
  EXPECT_EQ(plan.starts[2].begin, forever);
}

TEST(PlanStartsTest, OfManyJobsEachIsPlanned) {
  std::mt19937_64 random(14);
  const StartState state = RandomState(&random, 200);
  const StartPlan plan = PlanStarts(state, 200);
  EXPECT_EQ(plan.starts.size(), 200u);
  ExpectFits(state, plan);
}

}  // namespace
}  // namespace weft::planner::jobs
