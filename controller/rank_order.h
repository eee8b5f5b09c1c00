// Which host holds which rank: rings are cheapest where neighbours share a leaf switch.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/planner.h"

namespace weft::controller {

/// A job that has a host.
struct HostUse {
  std::string job;
  std::optional<Seconds> left;              ///< until it ends, as far as that is known
};

/// What the controller knows about hosts when a job is planned.
struct PlacementView {
  std::set<std::string> connected;          ///< hosts whose agent is here
  std::map<std::string, std::string> leaf;  ///< host -> first switch, where probes have shown it or a file says it
  std::map<std::string, BitsPerSecond> rate;  ///< host -> what its link to that switch gives, where probes have shown it
  planner::Topology topology;               ///< what probes have shown, with what each link gives now
  std::vector<BitsPerSecond> carried;       ///< [links of `topology`] for other jobs, in the mean; what is missing: nothing
  std::set<std::string> tree_jobs;          ///< jobs that hold a tree of the switches (job_reduction.h)
  std::map<std::string, HostUse> used;      ///< host -> the job of others that has it, of several the last to end; where hosts are asked for
};

/// Hosts of a job in an order of ranks in which the ring crosses between leaf switches least often; the given order
/// where that is as good. A host whose leaf is unknown counts as a leaf of its own.
std::vector<std::string> OrderHosts(const std::vector<std::string>& hosts, const PlacementView& view);

}  // namespace weft::controller
