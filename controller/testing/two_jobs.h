// Two jobs on a small cluster, and what the core says of it.
#pragma once

#include <string>
#include <vector>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller::testing::two_jobs {

inline std::vector<v1::Decision> DecisionsOf(const Core& core, const std::string& kind) {
  std::vector<v1::Decision> found;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == kind) found.push_back(decision);
  }
  return found;
}

inline v1::LinkStatus LinkOf(const Core& core, const std::string& from, const std::string& to) {
  for (const v1::LinkStatus& link : core.Links()) {
    if (link.from() == from && link.to() == to) return link;
  }
  return {};
}

// Two 2-rank rings between two leaves, both over spine 1 at first; every link 100 Mbit/s. Alone, an iteration takes
// 0.4 s + 12 MB / 100 Mbit/s = 0.4 + 0.96 = 1.36 s; in collision the communication takes twice as long.
inline const FakeJob kJobA{.id = "a", .ring = {"h1", "h3"}};
inline const FakeJob kJobB{.id = "b", .ring = {"h2", "h4"}};
inline constexpr double kAlone = 1.36;

inline CoreOptions Options(v1::Mode mode = v1::MODE_ENFORCE) {
  CoreOptions options;
  options.mode = mode;
  options.rates.line_rate = MegabitsPerSecond(100);
  return options;
}

inline void StartBoth(FakeCluster& cluster) {
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start(kJobA, 0);
  cluster.Start(kJobB, 0);
  cluster.Run(0.3);
  cluster.Probe("a");
  cluster.Probe("b");
}

}  // namespace weft::controller::testing::two_jobs
