#include "planner/flows/priority.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

namespace weft::planner::inline flows {
namespace {

constexpr double kMostCorrection = 16;
constexpr double kGain = 1e-6;  // less is rounding
constexpr double kMostWeight = 1e12;
constexpr double kMostPeriods = 1000;  // of one job in one of another, that are simulated
constexpr size_t kMostOrdered = 4096;  // jobs, whose pairs are looked at
constexpr size_t kCutEdges = 200'000;  // above, the least cut over contentions would take seconds

}  // namespace

double GpuIntensity(std::span<const BitsPerSecond> capacity, const PeriodicJob& job) {
  const double alone = CommunicationAlone(capacity, job).count();
  return alone > 0 ? job.gpus * job.compute.count() / alone : std::numeric_limits<double>::infinity();
}

double IntensityCorrection(std::span<const BitsPerSecond> capacity, const PeriodicJob& reference,
                           const PeriodicJob& job) {
  const double times[2] = {CommunicationAlone(capacity, reference).count(), CommunicationAlone(capacity, job).count()};
  if (!(times[0] > 0) || !(times[1] > 0) || !(times[0] + times[1] < 1e300)) return 1;
  const double periods[2] = {std::max(reference.compute.count(), reference.release.count() + times[0]),
                             std::max(job.compute.count(), job.release.count() + times[1])};
  const double longest = std::max(periods[0], periods[1]);
  if (longest > kMostPeriods * std::min(periods[0], periods[1])) return 1;  // they hardly know of each other
  constexpr double kBytesPerSecond = 1e9;  // of one made-up link; only ratios of times matter
  const BitsPerSecond link(8 * kBytesPerSecond);
  PeriodicJob pair[2] = {reference, job};
  for (size_t i = 0; i < 2; ++i) {
    // In units of the longer period, so that no time is too short or too long for whole bytes.
    pair[i].loads = {{LinkId(0), Bytes(std::max<int64_t>(1, static_cast<int64_t>(times[i] / longest * kBytesPerSecond))), 1}};
    pair[i].compute /= longest, pair[i].release /= longest;
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
  // One bit per pair of jobs: thousands of links that hundreds of jobs share name each pair many times.
  const size_t words = (order.size() + 63) / 64;
  std::vector<uint64_t> meets(order.size() * words, 0), users(words, 0);
  for (size_t begin = 0, end = 0; begin < uses.size(); begin = end) {
    std::fill(users.begin(), users.end(), 0);
    for (end = begin; end < uses.size() && uses[end].first == uses[begin].first; ++end) {
      users[uses[end].second / 64] |= uint64_t{1} << uses[end].second % 64;
    }
    for (size_t use = begin; use < end; ++use) {
      for (size_t w = 0; w < words; ++w) meets[uses[use].second * words + w] |= users[w];
    }
  }
  std::vector<Contention> result;
  for (size_t first = 0; first < order.size(); ++first) {
    for (size_t second = first + 1; second < order.size(); ++second) {
      if (meets[first * words + second / 64] >> second % 64 & 1) result.push_back({first, second});
    }
  }
  return result;
}

std::vector<int32_t> ClassesByValue(std::span<const PeriodicJob> jobs, std::span<const double> value, int32_t classes) {
  if (jobs.size() > kMostOrdered) return std::vector<int32_t>(jobs.size(), 0);
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return value[a] > value[b]; });
  CompressionProblem problem{.weight = {}, .contentions = Contentions(jobs, order), .classes = classes};
  for (const size_t j : order) problem.weight.push_back(std::min(value[j], kMostWeight));
  const bool small = problem.contentions.size() * static_cast<size_t>(classes) <= kCutEdges;
  const std::vector<int32_t> by_place = small ? CompressPriorities(problem) : CompressOrder(problem);
  std::vector<int32_t> made(jobs.size());
  for (size_t i = 0; i < order.size(); ++i) made[order[i]] = by_place[i];
  return made;
}

EnumeratedClasses EnumerateClasses(const PeriodicSimulator& simulator, int32_t classes) {
  EnumeratedClasses best;
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

}  // namespace weft::planner::flows
