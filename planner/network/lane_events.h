// Lanes simulated event by event over FairShares. Internal to planner/network.
#pragma once

#include <span>
#include <vector>

#include "planner/network/simulation.h"

namespace weft::planner {

/// What the simulation knows of a lane beforehand.
struct LaneRate {
  double peak = 0;      ///< bytes per second when nobody else sends
  bool shared = false;  ///< some link of it may be full; otherwise its rate is always `peak`
};

/// Whether each lane's links may be full: the peaks of all lanes of a link exceed its capacity. Complexity:
/// O(Σ|links|).
std::vector<LaneRate> LaneRates(std::span<const BitsPerSecond> capacity, std::span<const TransferLane> lanes);

/// Runs the lanes with `chosen[lane]` to their end, which depend on chosen lanes only, and writes their finish times.
void RunLaneEvents(std::span<const BitsPerSecond> capacity, std::span<const TransferLane> lanes,
                   std::span<const LaneRate> rates, const std::vector<bool>& chosen, SimulationResult* result);

}  // namespace weft::planner
