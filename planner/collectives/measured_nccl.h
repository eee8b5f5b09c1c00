// How long NCCL's own collectives take on hardware that people have: closed forms like algorithm.h's, with the few constants
// that measurements of a link type give. Three paths compete, as in NCCL's protocols: `flags` is for the smallest (LL), `fast` starts early and loses bandwidth
// (LL128, trees), `bulk` fills the wires after a longer start (Simple; rings, or sums in the NVSwitch where there is one).
// With n ranks on M hosts of p, S bytes, h = log2 M:
//
//   flags  T = 0.52 of the fast start + S / (0.13 fast_share · B)              the smallest messages
//   fast   T = base + 2 (p-1) step_fast + 2 h hop + S / (fast_share · B)
//   bulk   T = base + 2 (n-1) step_bulk + 2 h hop + S / B                      rings
//          T = switch_start + 2 h hop + S / B                                  sums in the NVSwitch, tree between hosts
//   B      ring: bus · n / 2(n-1), bus the lower of the host's links and its NICs (one NIC per GPU at most, NCCL pairs
//          channels with NICs); switch: what the switch gives, or the NICs' rate for two or more hosts (a tree sends each
//          byte over the network once per direction)
//
// all-gather and reduce-scatter move half of a ring all-reduce, all-to-all (p2p) as much as an all-gather.
//
// Source of the constants: tests/validation/collectives.csv (published nccl-tests runs, named per constant in the .cc);
// the shape follows NCCL 2.30's src/graph/tuning.cc. Bandwidth in GB/s (10^9 bytes per second), times in microseconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

/// Constants of what joins the GPUs of a host, together with the NCCL that comes with it.
struct HostLinkConstants {
  std::string_view name;      ///< "nvlink3-switch"
  double bus = 0;             ///< GB/s per GPU of a ring, counted as nccl-tests' busbw
  double switch_bus = 0;      ///< the same when the switch sums; 0: it cannot
  double fast_share = 1;      ///< of the bandwidth, on the fast path
  double base = 0;            ///< us
  double step_fast = 0;       ///< us
  double step_bulk = 0;       ///< us
  double switch_start = 0;    ///< us
  std::string_view source;
};

/// Constants of the network between hosts.
struct NetworkConstants {
  std::string_view name;      ///< "infiniband", "roce"
  double efficiency = 1;      ///< of the NICs' line rate
  double gather_share = 1;    ///< of that, for collectives that are not reductions
  double fast_share = 1;
  double hop = 0;             ///< us
  std::string_view source;
};

/// All that is known, in a fixed order.
/// Errors: kNotFound with the known names.
[[nodiscard]] Result<HostLinkConstants> FindHostLink(std::string_view name);
[[nodiscard]] Result<NetworkConstants> FindNetwork(std::string_view name);

/// One communicator that fills its hosts evenly.
struct NcclCommunicator {
  HostLinkConstants link;
  NetworkConstants network;
  int32_t hosts = 1;
  int32_t gpus_per_host = 8;
  int32_t nics_per_host = 0;
  BitsPerSecond nic_rate;

  int32_t ranks() const { return hosts * gpus_per_host; }
};

/// Time of one collective that NCCL chooses itself; `bytes` is the full buffer. Requires: hosts ≥ 1, gpus_per_host ≥ 1; with
/// more than one host a NIC. Complexity: O(1).
Seconds MeasuredNcclTime(const NcclCommunicator& communicator, Collective collective, Bytes bytes);

/// The share of the peak bus bandwidth that a cluster reaches: e = 1 / (1 / limit + (fixed + per_rank n) / S), the same
/// latency and bandwidth in other units.
struct EfficiencyConstants {
  std::string_view fabric;     ///< "NIC-bound" …, as the table names it
  bool all_to_all = false;
  double limit = 1;
  double fixed_mib = 0;        ///< MiB that latency costs
  double per_rank_mib = 0;
  std::string_view source;
};
std::span<const EfficiencyConstants> EfficiencyTable();
double Efficiency(const EfficiencyConstants& constants, int32_t ranks, Bytes bytes);

}  // namespace weft::planner::collectives
