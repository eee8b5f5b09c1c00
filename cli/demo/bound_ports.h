// What the jobs of the bound share: the hosts' links, the spines between two leaves, and each job's core.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/demo/bound.h"
#include "planner/tasks/program_tasks.h"

namespace weft::cli {

/// What one host sends another.
struct HostFlow {
  std::string from, to;
  double bytes = 0;
};

class BoundPorts {
 public:
  /// Requires: as ComputeBound().
  BoundPorts(const BoundFabric& fabric, const std::vector<CableFactor>& cables, const std::vector<BackgroundFlow>& background);

  /// Of flows that move in lock step: as long as the slowest port takes. Between hosts that are the same nothing is sent.
  planner::TaskCost CostOf(std::span<const HostFlow> flows) const;
  /// A computation on the core of job `job`, of two.
  planner::TaskCost OnCore(size_t job, Seconds took) const;
  /// Whether a port is one that traffic takes.
  bool IsLink(int32_t port) const { return port < static_cast<int32_t>(rate_.size()); }
  int32_t count() const { return static_cast<int32_t>(rate_.size()) + kMostJobs; }

 private:
  static constexpr int32_t kMostJobs = 2;

  int LeafOf(const std::string& host) const;

  int hosts_per_leaf_;
  std::vector<double> rate_;  // bytes a second: of each host up and down, then from leaf to leaf
};

}  // namespace weft::cli
