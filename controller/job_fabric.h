// What the network between the hosts of a job gives: if nobody else sends, and now, with what other jobs carry taken off. As clusters
// with tiers, which a search can price. Pure.
//
//   const JobFabric fabric = LookAtFabric(hosts, view, cluster);
//   if (fabric.loaded) ... search on fabric.now as well as on fabric.alone, and compare
//
// The rates of a cluster's nodes are configured; those of links come from probes, which may have seen only some of a host's NICs. So
// what a unit lets out is taken relative to what its nodes' own links carry, and times the configured rate of a node.
//
// Leaves out: that others may send elsewhere once the job is there (paths are planned again within a second), and that they may end
// or wait for each other: a strategy is for the whole life of a job, what links carry is not.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "controller/rank_order.h"
#include "planner/planner.h"

namespace weft::controller {

struct JobFabric {
  planner::ClusterSpec alone;         ///< the job's hosts; with tiers where these let out less than the hosts can send
  planner::ClusterSpec now;           ///< the same with what is left of links
  bool known = false;                 ///< probes have joined all hosts; else the network counts as one that blocks nobody
  bool loaded = false;                ///< `now` gives less than `alone`, by a twentieth and more
  std::vector<std::string> order;     ///< hosts, those of one unit after each other
  std::vector<std::string> why;       ///< what differs, with figures
};

/// `hosts` in the order of ranks, at least one, none twice; `cluster` is of their kind and as many nodes. Where probes have not joined all
/// hosts the network counts as one that blocks nobody, and `why` says so. Complexity: as planner::FindNodeTiers, twice.
JobFabric LookAtFabric(const std::vector<std::string>& hosts, const PlacementView& view, const planner::ClusterSpec& cluster);

}  // namespace weft::controller
