#include "planner/flows/periodic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"

namespace weft::planner::inline flows {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// How late job j first starts in a phase, as a share of its iteration. Between any two jobs the differences of successive
/// phases are multiples of the golden ratio, which fill the circle evenly however many phases there are.
double LateBy(size_t j, int32_t phase) {
  const double turns = 0.6180339887498949 * static_cast<double>(j) * phase;
  return turns - std::floor(turns);
}

}  // namespace

std::vector<PeriodicBurst> BurstsOf(const PeriodicJob& job) {
  if (!job.bursts.empty()) return job.bursts;
  return {{{job.release, job.compute}, job.loads}};
}

std::vector<BurstTimes> TimesOf(const PeriodicJob& job) {
  if (job.bursts.empty()) return {{job.release, job.compute}};
  std::vector<BurstTimes> times;
  for (const PeriodicBurst& burst : job.bursts) times.push_back(burst.times);
  return times;
}

std::vector<std::vector<LinkLoad>> LoadsOf(const PeriodicJob& job) {
  if (job.bursts.empty()) return {job.loads};
  std::vector<std::vector<LinkLoad>> loads;
  for (const PeriodicBurst& burst : job.bursts) loads.push_back(burst.loads);
  return loads;
}

Seconds SendingAlone(std::span<const BitsPerSecond> capacity, std::span<const LinkLoad> loads) {
  double worst = 0;
  for (const LinkLoad& load : loads) {
    if (load.bytes.count() == 0) continue;
    const double rate = capacity[load.link.index()].value();
    worst = std::max(worst, rate > 0 ? static_cast<double>(load.bytes.count()) * 8 / rate : kInfinity);
  }
  return Seconds(worst);
}

Seconds CommunicationAlone(std::span<const BitsPerSecond> capacity, const PeriodicJob& job) {
  if (job.bursts.empty()) return SendingAlone(capacity, job.loads);
  Seconds sum{0};
  for (const PeriodicBurst& burst : job.bursts) sum += SendingAlone(capacity, burst.loads);
  return sum;
}

Seconds IterationAlone(std::span<const BitsPerSecond> capacity, const PeriodicJob& job) {
  if (job.bursts.empty()) return std::max(job.compute, job.release + SendingAlone(capacity, job.loads));
  std::vector<double> sending;
  for (const PeriodicBurst& burst : job.bursts) sending.push_back(SendingAlone(capacity, burst.loads).count());
  return IterationOf(job.compute, TimesOf(job), sending);
}

PeriodicSimulator::PeriodicSimulator(std::span<const BitsPerSecond> capacity, std::span<const PeriodicJob> jobs,
                                     PeriodicOptions options)
    : options_(options) {
  std::vector<int32_t> dense(capacity.size(), -1);
  for (const PeriodicJob& job : jobs) {
    const double alone = IterationAlone(capacity, job).count();
    WEFT_CHECK(alone > 0, "a job that neither computes nor sends");
    period_.push_back(alone < kInfinity ? alone : 0);
    slowest_ = std::max(slowest_, period_.back());
    jobs_.push_back({.gpus = job.gpus, .compute = job.compute, .bursts = TimesOf(job), .start = job.start});
    loads_.push_back(LoadsOf(job));
    for (std::vector<LinkLoad>& loads : loads_.back()) {
      for (LinkLoad& load : loads) {
        int32_t& place = dense[load.link.index()];
        if (place < 0) {
          place = static_cast<int32_t>(capacity_.size());
          capacity_.push_back(capacity[load.link.index()]);
        }
        load.link = LinkId(place);
      }
    }
  }
}

/// Mean iterations from the first end after `warm`, or over all where there are no two.
SteadyState PeriodicSimulator::Measure(const FluidSimulation& fluid, double warm) const {
  SteadyState result{.events = fluid.events()};
  double gpus = 0;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    const FluidProgress& progress = fluid.progress(j);
    const size_t whole = progress.durations.size();
    double iteration = kInfinity, end = progress.begin;
    size_t before = 0;
    for (; before < whole && end + progress.durations[before] < warm; ++before) end += progress.durations[before];
    if (whole >= before + 2) {
      end += progress.durations[before];
      iteration = (progress.end - end) / static_cast<double>(whole - before - 1);
    } else if (whole > 0) {
      iteration = fluid.now().count() / static_cast<double>(whole);
    }
    result.whole.push_back(static_cast<int64_t>(whole));
    result.iteration.push_back(Seconds(iteration));
    gpus += jobs_[j].gpus;
    if (iteration < kInfinity) result.gpu_use += jobs_[j].gpus * jobs_[j].compute.count() / iteration;
  }
  if (gpus > 0) result.gpu_use /= gpus;
  return result;
}

SteadyState PeriodicSimulator::RunPhase(std::span<const int32_t> classes, int32_t phase) const {
  FluidSimulation fluid(capacity_);
  std::vector<FluidSetting> settings;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    FluidJob job = jobs_[j];
    job.start += Seconds(LateBy(j, phase) * period_[j]);
    fluid.Add(job);
    settings.push_back({.loads = loads_[j], .priority = classes[j]});
  }
  fluid.Apply(std::move(settings));
  const double warm = options_.warmup * slowest_, horizon = warm + options_.measured * slowest_;
  fluid.Run(Seconds(std::nextafter(horizon, 0)));  // what ends with the horizon does not count
  SteadyState state = Measure(fluid, warm);
  state.horizon = Seconds(horizon);
  return state;
}

SteadyState PeriodicSimulator::Run(std::span<const int32_t> classes) const {
  WEFT_CHECK(classes.size() == jobs_.size(), "not one class per job");
  SteadyState mean = RunPhase(classes, 0);
  if (options_.phases <= 1) return mean;
  std::vector<double> speed;
  for (const Seconds iteration : mean.iteration) speed.push_back(1 / iteration.count());
  for (int32_t phase = 1; phase < options_.phases; ++phase) {
    const SteadyState state = RunPhase(classes, phase);
    mean.gpu_use += state.gpu_use;
    mean.horizon += state.horizon;
    mean.events += state.events;
    for (size_t j = 0; j < speed.size(); ++j) {
      speed[j] += 1 / state.iteration[j].count();
      mean.whole[j] += state.whole[j];
    }
  }
  mean.gpu_use /= options_.phases;
  for (size_t j = 0; j < speed.size(); ++j) mean.iteration[j] = Seconds(options_.phases / speed[j]);
  return mean;
}

}  // namespace weft::planner::flows
