#include "planner/jobs/decide/situation.h"

#include <utility>

namespace weft::planner::inline jobs {
namespace {

/// A round of SplitMix64. Source: Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

size_t HashedPath(uint64_t seed, uint64_t key, size_t flow, size_t paths) {
  return paths < 2 ? 0 : static_cast<size_t>(Mix(Mix(Mix(seed) ^ key) ^ flow) % paths);
}

uint64_t KeyOf(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

FluidJob FluidOf(const RoutableJob& job) {
  std::vector<BurstTimes> bursts = job.bursts;
  if (bursts.empty()) bursts.push_back({job.release, job.compute});
  return {.gpus = job.gpus, .compute = job.compute, .bursts = std::move(bursts)};
}

Situation WithWays(const Situation& situation, const std::vector<size_t>& ways, Seconds pause) {
  Situation other = situation;
  if (ways == situation.way) return other;
  const auto state = std::make_shared<FluidSimulation>(*situation.state);
  state->set_trace(nullptr);
  for (size_t j = 0; j < ways.size(); ++j) {
    if (ways[j] == situation.way[j]) continue;
    const SituationWay& way = situation.ways[j][ways[j]];
    other.jobs[j] = way.job;
    other.alone[j] = way.alone;
    other.way[j] = ways[j];
    FluidJob job = FluidOf(way.job);
    job.start = pause;
    state->Restart(situation.slots[j], job);
  }
  other.state = state;
  return other;
}

std::vector<PeriodicJob> OnPaths(const Situation& situation, const JobPaths& paths) {
  std::vector<PeriodicJob> jobs;
  for (size_t j = 0; j < paths.size(); ++j) jobs.push_back(OnPaths(situation.jobs[j], paths[j]));
  return jobs;
}

}  // namespace weft::planner::jobs
