// Event-driven fluid simulation: transfers start at given times or when others end, share links by weighted max-min
// with strict priorities, and end when their bytes are through. Rates change only at starts and ends.
//
//   SimulateFlows   independent flows, one transfer each
//   SimulateLanes   sequences of equal transfers that wait for each other step by step: the shape of every collective
//
// Leaves out: queues, congestion control, packet headers. A lane whose links can never be full, whatever the others
// do, has one rate for ever; lanes that depend on no other kind are not simulated event by event but by the
// recurrence end(i, k) = max(end(i, k - 1), end(needs, k - lag)) + latency + bytes / rate, which is the same and
// far cheaper.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/network/max_min.h"

namespace weft::planner {

struct SimulatedFlow {
  std::vector<LinkId> links;
  Bytes bytes;
  Seconds start{0};
  double weight = 1;
  BitsPerSecond cap{1e300};
  int32_t priority = 0;              ///< ≥ 0; 0 is served first
};

struct SimulationResult {
  std::vector<Seconds> finish;            ///< per flow or lane; infinity where a link of capacity 0 blocks it for ever
  std::vector<double> link_busy_bytes;    ///< bytes carried per link
  int64_t events = 0;                     ///< starts and ends of transfers
};

/// Runs all flows to their end. Complexity: O(events · what an event reaches): see fair_shares.h.
SimulationResult SimulateFlows(std::span<const BitsPerSecond> capacity, std::span<const SimulatedFlow> flows);

/// Step k of a lane starts after step k - lag of `lane`; after its last step where it has fewer, at once where k <
/// lag.
struct LaneDependency {
  int32_t lane = 0;
  int32_t lag = 1;                   ///< ≥ 0
};

/// `steps` transfers of `bytes` each over the same path, one after the other. A transfer takes `latency` before its
/// bytes flow.
struct TransferLane {
  std::vector<LinkId> links;
  Bytes bytes;
  int32_t steps = 1;
  Seconds latency{0};
  Seconds start{0};                  ///< of step 0, at the earliest
  double weight = 1;
  BitsPerSecond cap{1e300};
  int32_t priority = 0;
  std::vector<LaneDependency> needs;
};

struct LaneOptions {
  bool recurrence = true;            ///< off: every step is an event, which gives the same answer
};

/// Runs all lanes to their end; `finish` is that of the last step. Lanes that wait for each other in a circle never
/// finish. Requires: steps ≥ 1, dependencies on lanes that exist. Complexity: O(steps · dependencies) for lanes
/// whose links cannot be full, else as SimulateFlows.
SimulationResult SimulateLanes(std::span<const BitsPerSecond> capacity, std::span<const TransferLane> lanes,
                               LaneOptions options = {});

}  // namespace weft::planner
