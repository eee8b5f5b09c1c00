// A cluster for the re-plan benchmark, seeded: 2,048 hosts of 8 GPUs on a rail-optimised fabric, one NIC per GPU, and
// 1,000 jobs that fill it, with sizes as in Alibaba's trace (10 % of the jobs have 64 GPUs or more, the largest 512).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/fabric/topology.h"

namespace weft::planner::bench {

struct ReplanFlow {
  NodeId from, to;
  int64_t bytes = 0;  ///< per iteration
};

struct ReplanJob {
  int64_t gpus = 0;
  double compute_s = 0, release_s = 0;
  std::vector<ReplanFlow> flows;
};

struct ReplanInstance {
  Topology topology;
  std::vector<ReplanJob> jobs;
  size_t flows = 0;
};

inline constexpr int kRails = 8, kHostsPerGroup = 32;

struct ReplanShape {
  int groups = 64;            ///< of 32 hosts, each with a leaf per rail
  int spines = 16;            ///< 32 NICs below a leaf, so 2 : 1 with 16 spines of the NICs' rate
  std::vector<std::pair<int, int>> sizes = {{512, 6}, {128, 40}, {64, 54}, {24, 100}, {4, 368}, {2, 432}};
};

/// Groups of hosts, a leaf per rail and group, all leaves under all spines. Returns the NICs in order of host and rail; each
/// stands for its GPU.
inline std::vector<NodeId> AddRailFabric(Topology& topology, const ReplanShape& shape, BitsPerSecond rate) {
  std::vector<NodeId> spines;
  for (int s = 1; s <= shape.spines; ++s) spines.push_back(topology.AddNode(fmt::format("spine{}", s), NodeKind::kSwitch));
  std::vector<NodeId> gpus;
  for (int g = 0; g < shape.groups; ++g) {
    std::vector<NodeId> leaves;
    for (int r = 0; r < kRails; ++r) {
      leaves.push_back(topology.AddNode(fmt::format("rail{}-{}", g + 1, r + 1), NodeKind::kSwitch));
      for (const NodeId spine : spines) topology.AddCable(leaves.back(), spine, rate);
    }
    for (int h = 0; h < kHostsPerGroup; ++h) {
      const int host = g * kHostsPerGroup + h + 1;
      for (int r = 0; r < kRails; ++r) {
        gpus.push_back(topology.AddNode(fmt::format("h{}/{}", host, r), NodeKind::kHost));
        topology.AddCable(gpus.back(), leaves[static_cast<size_t>(r)], rate);
      }
    }
  }
  return gpus;
}

inline ReplanInstance MakeReplanInstance(const ReplanShape& shape = {}, uint32_t seed = 1) {
  const BitsPerSecond rate = GigabitsPerSecond(400);
  ReplanInstance instance;
  const std::vector<NodeId> gpus = AddRailFabric(instance.topology, shape, rate);
  // Jobs take whole rows of rails on as many hosts as they need, at least two; hosts in random order, as after months.
  std::mt19937 random(seed);
  std::vector<size_t> hosts(gpus.size() / kRails);
  for (size_t h = 0; h < hosts.size(); ++h) hosts[h] = h;
  std::shuffle(hosts.begin(), hosts.end(), random);
  std::vector<int> used(hosts.size(), 0);
  size_t start = 0;
  for (const auto& [size, count] : shape.sizes) {
    for (int j = 0; j < count; ++j) {
      const int per_host = std::min(kRails, size / 2);
      ReplanJob job{.gpus = size, .compute_s = 0.1 * (1 + static_cast<double>(random() % 20)), .flows = {}};
      job.release_s = job.compute_s * 0.25 * static_cast<double>(random() % 4);
      std::vector<std::vector<NodeId>> rows;
      for (size_t i = start; i < hosts.size() && static_cast<int>(rows.size()) * per_host < size; ++i) {
        if (used[i] + per_host > kRails) continue;
        rows.emplace_back();
        for (int r = 0; r < per_host; ++r) {
          rows.back().push_back(gpus[hosts[i] * kRails + static_cast<size_t>(used[i] + r)]);
        }
        used[i] += per_host;
      }
      while (start < used.size() && used[start] == kRails) ++start;
      // A ring of hosts per rail, each over a few connections; communication is 20 to 60 % of compute on a free NIC.
      const int connections = size >= 512 ? 4 : 3;
      const double seconds = job.compute_s * (0.2 + 0.1 * static_cast<double>(random() % 5));
      for (size_t h = 0; h < rows.size() && rows.size() > 1; ++h) {
        for (size_t r = 0; r < rows[h].size(); ++r) {
          for (int c = 0; c < connections; ++c) {
            job.flows.push_back({rows[h][r], rows[(h + 1) % rows.size()][r],
                                 static_cast<int64_t>(seconds * rate.bytes_per_second()) / connections});
          }
        }
      }
      instance.flows += job.flows.size();
      instance.jobs.push_back(std::move(job));
    }
  }
  return instance;
}

}  // namespace weft::planner::bench
