// Where an all-reduce between hosts is summed: on the GPUs themselves, on CPUs (of the job's hosts or of spare machines) or
// in the switches; and which jobs get the switches' few trees.
//
//   const auto places = PlaceReduction(site, 256_MiB);   // cheapest first
//
// In all cases the GPUs of a host first reduce among themselves, so that each holds its part of the host's sum, and gather
// at the end; what differs is how the hosts' sums meet. GPUs and switches cost what collective_cost.h says; of servers, with H
// hosts, S bytes, B and a rate and latency of a host's NICs together, k spare machines, C the bytes per second that a CPU sums:
//
//   GPUs            HierarchicalAllReduceTime: a ring of hosts, 2 (H-1) (a + S/(H B)), or a tree
//   own CPUs        2 a + max(2 (H-1)/H S/B, (H-1)/H S/C), every host serves an equal part
//   spare CPUs      2 a + max(wire of parameter_server.h, what the busiest CPU sums / C)
//   switches        SwitchSumTime: S/B, or the job's trees' rate if lower; and the hops
//
// Source: parameter_server.h; the CPU's own time is derived here: a server that gets x bytes sums x bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/collective_cost.h"
#include "planner/collectives/parameter_server.h"

namespace weft::planner::inline collectives {

enum class ReductionPlace : uint8_t { kGpus, kOwnCpus, kSpareCpus, kSwitches };
std::string_view ReductionPlaceName(ReductionPlace place);  ///< "GPUs", "own CPUs", "spare CPUs", "switches"

struct ReductionSite {
  int32_t hosts = 0;
  GroupNetwork network;            ///< a host is a node, its GPUs have its NICs' rate between them
  BitsPerSecond cpu_sum;           ///< that one machine's CPUs sum; 0: they may not be used
  int32_t spare_machines = 0;      ///< with NICs and CPUs like the hosts'; more than `hosts` are of no use
  SwitchReduction switches;        ///< trees of this job; 0 trees: none
};

struct PlacedReduction {
  ReductionPlace place = ReductionPlace::kGpus;
  int32_t spare_machines = 0;      ///< used
  Seconds time{0};
  std::string why;                 ///< "spare CPUs: 8 machines, 3.1 ms on the wire, 2.0 ms of sums"
};

/// Every place that the site has, cheapest first, ties in the order of the enumeration.
/// Errors: kInvalidArgument for a site without hosts or with a rate that is not positive.
[[nodiscard]] Result<std::vector<PlacedReduction>> PlaceReduction(const ReductionSite& site, Bytes bytes);

/// A job that would gain from a tree in the switches.
struct TreeWish {
  double weight = 1;               ///< GPUs that wait, for instance
  Seconds without{0}, with{0};     ///< time of its reductions per second of its life, or per iteration: same unit for all
};
/// Who gets one of `trees`: the jobs with the largest weight · (without - with), none that gains nothing; ties go to the
/// first. Largest total gain, as every job takes one. Complexity: O(jobs log jobs).
std::vector<bool> AssignTrees(std::span<const TreeWish> jobs, int32_t trees);

}  // namespace weft::planner::collectives
