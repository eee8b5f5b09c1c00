#include <fmt/format.h>

#include "planner/baselines/baselines.h"

namespace weft::planner::inline baselines {
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

Decision DecideEcmp(const Situation& situation, uint64_t seed) {
  Decision decision;
  size_t flows = 0;
  for (size_t j = 0; j < situation.jobs.size(); ++j) {
    decision.paths.emplace_back();
    for (size_t f = 0; f < situation.jobs[j].flows.size(); ++f) {
      decision.paths[j].push_back(HashedPath(seed, situation.keys[j], f, situation.jobs[j].flows[f].WholePaths()));
    }
    flows += situation.jobs[j].flows.size();
  }
  decision.classes.assign(situation.jobs.size(), 0);
  decision.gates.assign(situation.jobs.size(), {});
  decision.why.push_back(fmt::format("{} flows of {} jobs hashed with seed {}", flows,
                                     situation.jobs.size(), seed));
  return decision;
}

}  // namespace weft::planner::baselines
