// The engine against jobs in small steps of time.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "planner/network/fluid.h"

namespace weft::planner::inline network {
namespace {

/// The same jobs in small steps of time, rates filled anew in every step: no events, no groups, nothing remembered.
class SteppedJobs {
 public:
  struct Burst {
    BurstTimes times;
    std::vector<LinkLoad> loads;
  };
  struct Job {
    Seconds compute;
    std::vector<Burst> bursts;
    int32_t priority = 0;
    double computed = 0, left = 1;
    size_t burst = 0;
    int64_t whole = 0;
  };

  SteppedJobs(std::vector<BitsPerSecond> capacity, std::vector<Job> jobs) : capacity_(std::move(capacity)), jobs_(std::move(jobs)) {}

  void Run(double seconds, double step) {
    for (double now = 0; now < seconds; now += step) {
      const std::vector<double> rate = Rates();
      for (size_t j = 0; j < jobs_.size(); ++j) Step(&jobs_[j], rate[j], step);
    }
  }
  const Job& job(size_t j) const { return jobs_[j]; }

 private:
  static bool Sends(const Job& job) {
    return job.burst < job.bursts.size() && job.computed >= job.bursts[job.burst].times.release.count() - 1e-12;
  }

  static void Step(Job* job, double rate, double step) {
    // What is left of a step when its burst is through is lost: less than one step per burst.
    if (Sends(*job)) {
      job->left -= rate * step;
      if (job->left <= 1e-12 || job->bursts[job->burst].loads.empty()) job->left = 1, ++job->burst;
    }
    double until = job->compute.count();
    if (job->burst < job->bursts.size()) until = std::min(until, job->bursts[job->burst].times.needed.count());
    job->computed = std::min(until, job->computed + step);
    if (job->burst < job->bursts.size() || job->computed < job->compute.count()) return;
    ++job->whole;
    job->computed = 0;
    job->burst = 0;
  }

  /// Bursts per second. Level by level: all jobs of a class grow by what their largest flow asks for until some link is full.
  std::vector<double> Rates() const {
    std::vector<double> rate(jobs_.size(), 0), left;
    for (const BitsPerSecond c : capacity_) left.push_back(c.value());
    for (int32_t c = 0; c < 4; ++c) {
      std::set<size_t> growing;
      for (size_t j = 0; j < jobs_.size(); ++j) {
        if (jobs_[j].priority == c && Sends(jobs_[j]) && !jobs_[j].bursts[jobs_[j].burst].loads.empty()) growing.insert(j);
      }
      while (!growing.empty()) Grow(&growing, &rate, &left);
    }
    return rate;
  }

  void Grow(std::set<size_t>* growing, std::vector<double>* rate, std::vector<double>* left) const {
    std::vector<double> demand(left->size(), 0);
    std::map<size_t, double> speed;
    for (const size_t j : *growing) {
      double largest = 0;
      for (const LinkLoad& load : Now(j)) largest = std::max(largest, Bits(load) / load.flows);
      speed[j] = 1 / largest;
      for (const LinkLoad& load : Now(j)) demand[load.link.index()] += Bits(load) * speed[j];
    }
    double level = std::numeric_limits<double>::infinity();
    for (size_t l = 0; l < demand.size(); ++l) {
      if (demand[l] > 0) level = std::min(level, (*left)[l] / demand[l]);
    }
    for (const size_t j : *growing) {
      (*rate)[j] += level * speed[j];
      for (const LinkLoad& load : Now(j)) (*left)[load.link.index()] -= Bits(load) * level * speed[j];
    }
    std::erase_if(*growing, [&](size_t j) {
      return std::any_of(Now(j).begin(), Now(j).end(), [&](const LinkLoad& load) {
        return (*left)[load.link.index()] < 1e-9 * capacity_[load.link.index()].value();
      });
    });
  }

  static double Bits(const LinkLoad& load) { return 8 * static_cast<double>(load.bytes.count()); }
  const std::vector<LinkLoad>& Now(size_t j) const { return jobs_[j].bursts[jobs_[j].burst].loads; }

  std::vector<BitsPerSecond> capacity_;
  std::vector<Job> jobs_;
};

TEST(Fluid, AgreesWithSmallStepsOfTime) {
  constexpr double kSeconds = 20, kStep = 1e-4;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto between = [&](int low, int high) { return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1)); };
    const std::vector<BitsPerSecond> capacity{GigabytesPerSecond(1), GigabytesPerSecond(2), GigabytesPerSecond(0.5)};
    std::vector<SteppedJobs::Job> jobs;
    FluidSimulation fluid(capacity);
    std::vector<FluidSetting> settings;
    for (int j = between(2, 5); j > 0; --j) {
      const Seconds compute(0.01 * between(10, 60));
      std::vector<double> places;
      const int bursts = between(1, 3);
      for (int b = 0; b < 2 * bursts; ++b) places.push_back(compute.count() * between(0, 4) / 4);
      std::sort(places.begin(), places.end());
      SteppedJobs::Job job{.compute = compute, .bursts = {}, .priority = between(0, 2)};
      for (size_t b = 0; b < static_cast<size_t>(bursts); ++b) {
        SteppedJobs::Burst burst{{Seconds(places[2 * b]), Seconds(places[2 * b + 1])}, {}};
        for (int32_t l = 0; l < 3; ++l) {
          if (between(0, 1) == 0) continue;
          burst.loads.push_back({LinkId(l), Bytes(1'000'000 * int64_t{between(10, 100)}), 1.0 * between(1, 3)});
        }
        job.bursts.push_back(std::move(burst));
      }
      FluidJob added{.compute = compute, .bursts = {}};
      settings.push_back({.loads = {}, .priority = job.priority});
      for (const SteppedJobs::Burst& burst : job.bursts) {
        added.bursts.push_back(burst.times);
        settings.back().loads.push_back(burst.loads);
      }
      fluid.Add(added);
      jobs.push_back(std::move(job));
    }
    fluid.Apply(settings);
    fluid.Run(Seconds(kSeconds));
    SteppedJobs stepped(capacity, jobs);
    stepped.Run(kSeconds, kStep);
    for (size_t j = 0; j < jobs.size(); ++j) {
      const auto whole = static_cast<double>(stepped.job(j).whole);
      EXPECT_NEAR(static_cast<double>(fluid.progress(j).durations.size()), whole, 1 + 0.01 * whole) << "seed " << seed << ", job " << j;
    }
  }
}

}  // namespace
}  // namespace weft::planner::network
