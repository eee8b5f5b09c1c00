// NCCL's own table of predicted times, by which it chooses algorithm and protocol for a collective: what it believes, not what
// is so. It assumes a network that blocks nobody: congestion, oversubscription and collisions are invisible to it.
//
// Leaves out: CollNet, PAT, the precision guard of FP8, and the search for channels: the caller says how many channels there
// are and how fast each is (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH prints it), or asks ChannelsOf for what the search finds on
// machines with one NIC per GPU.
//
// Source: NCCL 2.30.7, src/graph/tuning.cc and src/graph/search.cc; the maintainers on the assumption: NVIDIA/nccl issue 1128.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/units.h"
#include "planner/collectives/algorithm_kind.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

enum class GpuGeneration : uint8_t { kVolta, kAmpere, kHopper, kBlackwell };

std::string_view NcclAlgorithmName(Algorithm algorithm);  ///< as NCCL_ALGO takes it; "" for what it has no word for
std::string_view NcclProtocolName(Protocol protocol);     ///< as NCCL_PROTO takes it

/// What NCCL knows of a communicator.
struct NcclGraph {
  GpuGeneration generation = GpuGeneration::kHopper;
  int32_t ranks = 0;
  int32_t nodes = 1;
  int32_t channels = 0;            ///< of the ring and tree graph, before doubling
  double inside_gbs = 0;           ///< GB/s per channel inside a node
  double across_gbs = 0;           ///< GB/s per channel between nodes
  bool nvlink = true;              ///< joins the GPUs of a node (else PCI)
  bool nvswitch = false;
  bool nvls = false;               ///< multicast sums are on
  bool amd_cpu = false;            ///< or mixed CPUs: other limits of LL between nodes
  bool plain_tree = false;         ///< some node's tree pattern is plain TREE; always so with one GPU per node
  int32_t communicator_channels = 0;  ///< 0: twice the graph's
  double nic_latency_us = 0;
};

/// One cell of the table. `time` is for the size asked; the others belong to the algorithm and protocol.
struct NcclEntry {
  Algorithm algorithm;
  Protocol protocol;
  double latency_us = 0;
  double bandwidth_gbs = 0;        ///< algorithm bandwidth, before the correction for size
  Seconds time{0};
};

/// All cells that NCCL would compare for `bytes` (the full buffer), fastest first; ties to the tree, then the ring, then NVLS, and in the order of Protocol.
/// Empty for collectives that have no such choice (all-to-all, send/recv) and for one rank.
/// Requires: ranks a multiple of nodes, channels ≥ 1, rates > 0.
std::vector<NcclEntry> NcclTable(const NcclGraph& graph, Collective collective, Bytes bytes);

/// How many channels a chosen cell starts with for `bytes`. Requires: ring or tree.
int32_t NcclChannels(const NcclGraph& graph, const NcclEntry& entry, Bytes bytes);

struct ChannelSpeed {
  int32_t channels = 0;
  double inside_gbs = 0, across_gbs = 0;
};
/// The channels and their speed that the search finds for hosts of `gpus` GPUs with `nics` NICs each (one per GPU at most used),
/// where NVLink is no narrower than the network: the largest speed step that a NIC can carry, a channel for each NIC.
/// Requires: gpus ≥ 1, nics ≥ 1. Source: src/graph/search.cc, the tables of speeds.
ChannelSpeed ChannelsOf(GpuGeneration generation, int32_t gpus, int32_t nics, BitsPerSecond nic_rate);

}  // namespace weft::planner::collectives
