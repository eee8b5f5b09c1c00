// Which device of a wide-area or multi-tier network runs which stage and which replica, where every pair of devices has a
// latency and a rate of its own. Two levels:
//   groups   the replicas of one stage; a group's gradients cost what its slowest member pays to all its peers
//   order    of the groups along the pipeline: between neighbours replicas are paired so that the slowest pair is fastest,
//            and the groups form the path of least total
// Pairing and order are exact (a bottleneck matching; dynamic programming over sets up to 12 stages, beyond it 2-opt); the
// groups come from a local search that exchanges two devices of different groups, from several starts.
//
//   const auto placement = PlaceDevices({.links = links, .stages = 4, .replicas = 2, ...});
//   placement->device[stage * 2 + replica]
//
// Leaves out: computation (all devices alike), overlap of messages and gradients with it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::planner {

struct PlacementProblem {
  int64_t devices = 0;
  std::vector<double> latency;      ///< s, [devices × devices], symmetric; the diagonal is not read
  std::vector<double> rate;         ///< byte/s, likewise
  int64_t stages = 1, replicas = 1; ///< their product is the number of devices
  Bytes gradients;                  ///< of one stage
  Bytes message;                    ///< activations of one micro-batch over one stage boundary
};

struct DevicePlacement {
  std::vector<int64_t> device;      ///< [stage × replicas]: replica r of a stage sends to replica r of the next
  Seconds exchange{0};              ///< gradients of the slowest group
  Seconds pipeline{0};              ///< messages along the path, one micro-batch
  Seconds total() const { return exchange + pipeline; }
};

/// What a given placement costs. Source: arXiv 2206.01288, section 3: a device pays 2(α + S/(replicas · rate)) to each
/// peer of its group, a boundary the slowest of its pairs. Requires: a checked problem, each device once.
DevicePlacement PlacementCost(const PlacementProblem& problem, std::vector<int64_t> device);

/// A placement that no exchange of two devices improves. Deterministic. Errors: kInvalidArgument naming the size that does
/// not match, or a pair whose rate is not positive.
/// Complexity: starts · exchanges · (stages · replicas^2.5 · log + 2^stages · stages^2).
[[nodiscard]] Result<DevicePlacement> PlaceDevices(const PlacementProblem& problem);

}  // namespace weft::planner
