// NCCL's tuner interface, versions 2 to 6, as laid out on x86-64 Linux: our own declarations of the documented tables,
// pinned by the static_asserts below. A plugin exports one struct `ncclTunerPlugin_vN` per version.
//
// Only data layouts and constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "netplugin/abi/nccl_net.h"

namespace weft::nccl {

/// ncclFunc_t, as far as a tuner is asked about it.
enum Function : int { kBroadcast = 0, kReduce = 1, kAllGather = 2, kReduceScatter = 3, kAllReduce = 4 };
inline constexpr int kTunedFunctions = 5;

inline constexpr int kAlgorithms = 7;  ///< TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT (since 2.23)
inline constexpr int kProtocols = 3;   ///< LL, LL128, SIMPLE
inline constexpr int kHardwareLinks = 3;  ///< NVLINK, PCI, NET
inline constexpr int kNetLink = 2;
inline constexpr int kComputeCapabilities = 4;
inline constexpr int kNodeScales = 3;  ///< one node, two, more
/// An entry of the cost table that is not available and must stay so.
inline constexpr float kCostIgnore = -1.0f;

struct NvlDomainInfo {
  int domains;
  int least_ranks;
  int most_ranks;
};

/// What the cost model is built from, in microseconds and gigabytes per second; arrives filled in, may be edited.
struct TunerConstants {
  double base_latencies[kAlgorithms][kProtocols];
  double hardware_latencies[kHardwareLinks][kAlgorithms][kProtocols];
  double ll_max_bandwidths[kComputeCapabilities][kNodeScales];
  double channel_ring_ll128_bandwidths[kComputeCapabilities][kNodeScales];
  double channel_tree_ll128_bandwidths[kComputeCapabilities][kNodeScales];
  double channel_tree_bandwidths[kComputeCapabilities][kNodeScales];
  double channel_nvls_tree_bandwidths[kComputeCapabilities][kNodeScales];
};

/// `init` of versions 2 to 4, and since 5.
using TunerInit = int (*)(size_t ranks, size_t nodes, Logger logger, void** context);
using TunerInitWithId = int (*)(void** context, uint64_t comm_id, size_t ranks, size_t nodes, Logger logger,
                                NvlDomainInfo* domains, TunerConstants* constants);
/// `get_coll_info` since version 4. `costs` is declared float** but is one contiguous float[algorithms][protocols], in
/// microseconds; version 3 has it too, without `registered`.
using TunerChoice = int (*)(void* context, int function, size_t bytes, int pipelined_operations, float** costs,
                            int algorithms, int protocols, int registered, int* channels);

struct TunerV2 {
  const char* name;
  TunerInit init;
  int (*get_coll_info)(void* context, int function, size_t bytes, int collnet, int nvls, int pipelined_operations,
                       int* algorithm, int* protocol, int* channels);
  int (*destroy)(void* context);
};

struct TunerV3 {
  const char* name;
  TunerInit init;
  int (*get_coll_info)(void* context, int function, size_t bytes, int pipelined_operations, float** costs,
                       int algorithms, int protocols, int* channels);
  int (*destroy)(void* context);
};

struct TunerV4 {
  const char* name;
  TunerInit init;
  TunerChoice get_coll_info;
  int (*destroy)(void* context);
};

struct TunerV5 {
  const char* name;
  TunerInitWithId init;
  TunerChoice get_coll_info;
  int (*finalize)(void* context);
};

struct TunerV6 {
  const char* name;
  TunerInitWithId init;
  TunerChoice get_coll_info;
  int (*finalize)(void* context);
  /// May be nullptr: NCCL's own chunk size.
  int (*get_chunk_size)(void* context, int function, size_t bytes, int algorithm, int protocol, int channels,
                        size_t* chunk_bytes);
};

static_assert(sizeof(TunerV2) == 32 && sizeof(TunerV3) == 32 && sizeof(TunerV4) == 32 && sizeof(TunerV5) == 32);
static_assert(sizeof(TunerV6) == 40 && offsetof(TunerV6, get_chunk_size) == 32);
static_assert(offsetof(TunerV5, get_coll_info) == 16 && offsetof(TunerV5, finalize) == 24);
static_assert(sizeof(NvlDomainInfo) == 12 && sizeof(TunerConstants) == 1152);
static_assert(offsetof(TunerConstants, hardware_latencies) == 168 && offsetof(TunerConstants, ll_max_bandwidths) == 672);
static_assert(offsetof(TunerConstants, channel_nvls_tree_bandwidths) == 1056);

}  // namespace weft::nccl
