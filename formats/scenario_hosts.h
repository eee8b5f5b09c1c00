// Which hosts and GPUs the jobs of a scenario get. Hosts are shared only when all have a job already: a job gets the
// hosts with the fewest jobs before it, and in them the GPUs with the fewest. Internal to formats/.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/scenario_cluster.h"
#include "planner/jobs/simulate/job_traffic.h"

namespace weft::formats {

enum class Placement : uint8_t {
  kPacked,   ///< neighbours in the order of the cluster
  kSpread,   ///< one host under each first switch in turn
  kRandom,   ///< drawn by the scenario's seed
};
std::optional<Placement> ParsePlacement(std::string_view text);

/// One host of a job, in order of its ranks.
struct JobHost {
  size_t host = 0;                  ///< in the cluster
  planner::TrafficEnd senders;
  int64_t gpus = 1;
};

class HostBook {
 public:
  /// `cluster` must outlive the book.
  HostBook(const ScenarioCluster& cluster, uint64_t seed);

  /// Whether Take() would find `name`.
  bool Knows(std::string_view name) const;

  /// Takes `count` hosts with `gpus` GPUs in each. Requires: 1 ≤ count ≤ hosts, 1 ≤ gpus ≤ gpus per host.
  std::vector<JobHost> Place(int64_t count, Placement placement, int64_t gpus);

  /// Takes the host of that name with `gpus` GPUs, or the one GPU of that name ("h1/gpu0"); nullopt for another name.
  std::optional<JobHost> Take(std::string_view name, int64_t gpus);

 private:
  JobHost TakeHost(size_t host, int64_t gpus);

  const ScenarioCluster& cluster_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::unordered_map<int32_t, size_t> host_of_gpu_;   // by node
  std::vector<int64_t> jobs_;                         // by host
  std::vector<std::vector<int64_t>> uses_;            // by host and GPU
  std::vector<std::pair<size_t, size_t>> spread_;     // by host: place under its switch, switch
  std::mt19937_64 random_;                            // its numbers are the standard's, on every platform
};

}  // namespace weft::formats
