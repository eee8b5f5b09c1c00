// A tensor that leaves one pipeline stage's GPUs in one layout and must reach the next stage's in another (cross-mesh
// resharding): cut into slices that all their receivers need whole, each slice sent in one of four ways, and the slices
// ordered so that no NIC waits long.
//
// Leaves out: that slices could share a NIC at half the rate each; layouts that cut a dimension over more than hosts and
// the devices of a host. Source: arXiv 2211.05322.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::planner::inline tasks {

/// How a tensor lies on hosts × devices: cut over the hosts in one dimension, over each host's devices in one (the same
/// is cut on), -1 where every one of them has all.
struct MeshLayout {
  int64_t hosts = 1;
  int64_t devices = 1;  ///< per host
  int32_t host_dimension = -1;
  int32_t device_dimension = -1;
};

struct ReshardProblem {
  std::vector<int64_t> shape;  ///< elements per dimension
  int64_t element_bytes = 2;
  MeshLayout from, to;         ///< on different hosts
};

/// A slice with the hosts that hold it and the hosts that need it.
struct ReshardSlice {
  Bytes bytes;
  std::vector<int32_t> senders;    ///< hosts of `from`, ascending
  std::vector<int32_t> receivers;  ///< hosts of `to`, ascending
  int64_t devices = 1;             ///< that need it on each receiver
};

/// The largest boxes that every device of both sides has whole or not at all; equal boxes with the same senders and
/// receivers are not merged.
/// Errors: kInvalidArgument for an empty shape, sizes below 1, a dimension that does not exist or that its cuts do not
/// divide, or more than 4096 slices. Complexity: O(slices · hosts).
[[nodiscard]] Result<std::vector<ReshardSlice>> CutSlices(const ReshardProblem& problem);

enum class ReshardMethod : uint8_t {
  kSeparateSends,     ///< to every device by itself
  kLocalAllGather,    ///< a part to every device of a host, which gather in the host
  kScatterAllGather,  ///< a part to every device, which gather over all hosts
  kBroadcastChain,    ///< in chunks along the chain of hosts
};

struct ReshardNetwork {
  BitsPerSecond nic;     ///< of a host, each way
  BitsPerSecond local;   ///< between the devices of a host
  Seconds latency{0};    ///< of a message between hosts
};

/// Time of one slice to A = receivers hosts with G = devices each; τ = bytes / nic, α = latency, ℓ = bytes / local:
///   separate sends      A·G(α + τ)
///   local all-gather    A(α + τ) + ℓ(G-1)/G
///   scatter all-gather  A·α + τ + (A-1)(α + τ/A) + ℓ(G-1)/G
///   broadcast chain     (κ + A-1)(α + τ/κ) + ℓ/κ with G > 1, κ chunks: the best of 1 to 256
/// Requires: A, G ≥ 1. Complexity: O(1).
Seconds SliceTime(ReshardMethod method, Bytes bytes, int64_t receivers, int64_t devices, const ReshardNetwork& network);

/// The chunks of the broadcast chain: about √((A-1)τ/α).
int64_t BroadcastChunks(Bytes bytes, int64_t receivers, int64_t devices, const ReshardNetwork& network);

/// The method with the least SliceTime; ties go to the first.
ReshardMethod BestReshardMethod(Bytes bytes, int64_t receivers, int64_t devices, const ReshardNetwork& network);

/// Who sends which slice, and in which order. A slice occupies its sender and all its receivers while it runs.
struct ReshardSchedule {
  Seconds makespan{0};
  std::vector<int32_t> order;    ///< slices by the order in which they claim their hosts
  std::vector<int32_t> sender;   ///< [slices] host
  std::vector<Seconds> start;    ///< [slices]
  bool optimal = false;          ///< proven
};

/// Depth-first over orders and senders with pruning for up to `exact_up_to` slices (and at most 200,000 nodes), else the
/// best of longest-first and 64 seeded random list schedules. Same input, same answer.
/// Errors: kInvalidArgument for a slice without sender or receiver, with a negative host, or a number of durations that is
/// not that of the slices. Complexity: O(slices² · hosts) for the list schedules.
[[nodiscard]] Result<ReshardSchedule> ScheduleSlices(std::span<const ReshardSlice> slices,
                                                     std::span<const Seconds> durations, size_t exact_up_to = 8);

}  // namespace weft::planner::tasks
