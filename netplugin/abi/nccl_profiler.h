// NCCL's profiler interface, versions 1 to 6, as laid out on x86-64 Linux: our own declarations of the documented tables
// and event descriptors, pinned by the static_asserts below. A plugin exports one struct `ncclProfiler_vN` per version.
//
// Only data layouts and constants.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "netplugin/abi/nccl_net.h"

namespace weft::nccl {

/// Event types: bits of the activation mask.
inline constexpr uint64_t kEventGroup = 1 << 0, kEventColl = 1 << 1, kEventP2p = 1 << 2, kEventProxyOp = 1 << 3,
                          kEventProxyStep = 1 << 4, kEventProxyCtrl = 1 << 5, kEventKernelCh = 1 << 6,
                          kEventNetPlugin = 1 << 7, kEventGroupApi = 1 << 8, kEventCollApi = 1 << 9,
                          kEventP2pApi = 1 << 10, kEventKernelLaunch = 1 << 11, kEventCeColl = 1 << 12,
                          kEventCeSync = 1 << 13, kEventCeBatch = 1 << 14;

/// States of recordEventState that the versions from 4 on send for steps and kernels.
inline constexpr int kStateSendGpuWait = 8, kStateSendWait = 9, kStateRecvWait = 10, kStateRecvFlushWait = 11,
                     kStateRecvGpuWait = 12, kStateSendPeerWait = 20, kStateKernelChStop = 22;

struct CollEventV1 {
  const char* name;
  uint64_t comm_hash, sequence;
  uint8_t function;
  const void* send_buffer;
  void* recv_buffer;
  size_t count;
  int root;
  uint8_t datatype;
  uint32_t op;
  size_t traffic_bytes;
  uint8_t channels, warps, algorithm, protocol;
  int is_collnet, is_nvls;
};
struct CollEventV2 {
  const char* name;
  uint64_t comm_hash, sequence;
  const char* function;
  const void* send_buffer;
  void* recv_buffer;
  size_t count;
  int root;
  const char* datatype;
  size_t traffic_bytes;
  uint8_t channels, warps;
  const char *algorithm, *protocol;
};
struct CollEventV3 {
  const char* name;
  uint64_t comm_hash, sequence;
  const char* function;
  const void* send_buffer;
  void* recv_buffer;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels, warps;
  const char *algorithm, *protocol;
};
struct CollEventV4 {
  uint64_t sequence;  ///< of this function in this communicator
  const char* function;
  const void* send_buffer;
  void* recv_buffer;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels, warps;
  const char *algorithm, *protocol;
};
struct CollEventV5 {
  uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* recv_buffer;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels, warps;
  const char *algorithm, *protocol;
  void* parent_group;
};

struct P2pEventV1 {
  const char* name;
  uint64_t comm_hash;
  uint8_t function;
  void* buffer;
  uint8_t datatype;
  size_t count;
  int peer;
};
struct P2pEventV2 {
  const char* name;
  uint64_t comm_hash;
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
};
struct P2pEventV4 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
};
struct P2pEventV5 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
  void* parent_group;
};

struct ProxyOpEvent {
  pid_t pid;  ///< of the process whose operation it is: with PXN not the one that runs it
  uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};
struct ProxyStepEvent {
  int step;
};
struct KernelChEventV3 {
  uint8_t channel;
};
struct KernelChEvent {
  uint8_t channel;
  uint64_t gpu_ns;  ///< GPU globaltimer
};
struct NetPluginEvent {
  int64_t id;
  void* data;
};
struct GroupApiEvent {
  bool graph_captured;
  int depth;
};
struct CollApiEvent {
  const char* function;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graph_captured;
};
struct P2pApiEvent {
  const char* function;
  size_t count;
  const char* datatype;
  void* stream;
  bool graph_captured;
};
struct KernelLaunchEvent {
  void* stream;
};
struct CeCollEvent {
  uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* recv_buffer;
  size_t count;
  int root;
  const char* datatype;
  const char* sync_strategy;
  bool intra_batch_sync;
  uint32_t batch_size, batches, ce_sequence;
  void* stream;
};
struct CeSyncEvent {
  bool is_complete;
  int ranks;
};
struct CeBatchEvent {
  int operations;
  size_t total_bytes;
  bool use_intra_sync;
};

template <typename CollEvent, typename P2pEvent>
struct ProfilerDescriptorPlain {
  uint8_t type;
  void* parent;
  int rank;
  union {
    CollEvent coll;
    P2pEvent p2p;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
  };
};
using ProfilerDescriptorV1 = ProfilerDescriptorPlain<CollEventV1, P2pEventV1>;
using ProfilerDescriptorV2 = ProfilerDescriptorPlain<CollEventV2, P2pEventV2>;

template <typename CollEvent, typename P2pEvent, typename KernelEvent>
struct ProfilerDescriptorWithKernels {
  uint8_t type;
  void* parent;
  int rank;
  union {
    CollEvent coll;
    P2pEvent p2p;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelEvent kernel;
    NetPluginEvent net;
  };
};
using ProfilerDescriptorV3 = ProfilerDescriptorWithKernels<CollEventV3, P2pEventV2, KernelChEventV3>;
using ProfilerDescriptorV4 = ProfilerDescriptorWithKernels<CollEventV4, P2pEventV4, KernelChEvent>;

struct ProfilerDescriptorV5 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApiEvent group_api;
    CollApiEvent coll_api;
    P2pApiEvent p2p_api;
    KernelLaunchEvent kernel_launch;
    CollEventV5 coll;
    P2pEventV5 p2p;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelChEvent kernel;
    NetPluginEvent net;
  };
};
struct ProfilerDescriptorV6 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApiEvent group_api;
    CollApiEvent coll_api;
    P2pApiEvent p2p_api;
    KernelLaunchEvent kernel_launch;
    CollEventV5 coll;
    P2pEventV5 p2p;
    ProxyOpEvent proxy_op;
    ProxyStepEvent proxy_step;
    KernelChEvent kernel;
    NetPluginEvent net;
    CeCollEvent ce_coll;
    CeSyncEvent ce_sync;
    CeBatchEvent ce_batch;
  };
};

union ProfilerStateArgumentsV1 {
  struct {
    size_t bytes;
    int steps;
  } proxy_op;
  int appended_proxy_ops;
};
union ProfilerStateArgumentsV4 {
  size_t step_bytes;
  int appended_proxy_ops;
  void* net_data;
  uint64_t kernel_gpu_ns;
};

/// Versions 1 to 3: the communicator is not named.
template <typename Descriptor>
struct ProfilerPlain {
  const char* name;
  int (*init)(void** context, int* mask);
  int (*start_event)(void* context, void** event, Descriptor* descriptor);
  int (*stop_event)(void* event);
  int (*record_event_state)(void* event, int state, ProfilerStateArgumentsV1* arguments);
  int (*finalize)(void* context);
};
using ProfilerV1 = ProfilerPlain<ProfilerDescriptorV1>;
using ProfilerV2 = ProfilerPlain<ProfilerDescriptorV2>;
using ProfilerV3 = ProfilerPlain<ProfilerDescriptorV3>;

struct ProfilerV4 {
  const char* name;
  int (*init)(void** context, int* mask, const char* comm_name, uint64_t comm_hash, int nodes, int ranks, int rank,
              Logger logger);
  int (*start_event)(void* context, void** event, ProfilerDescriptorV4* descriptor);
  int (*stop_event)(void* event);
  int (*record_event_state)(void* event, int state, ProfilerStateArgumentsV4* arguments);
  int (*finalize)(void* context);
};

template <typename Descriptor>
struct ProfilerWithId {
  const char* name;
  int (*init)(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks, int rank,
              Logger logger);
  int (*start_event)(void* context, void** event, Descriptor* descriptor);
  int (*stop_event)(void* event);
  int (*record_event_state)(void* event, int state, ProfilerStateArgumentsV4* arguments);
  int (*finalize)(void* context);
};
using ProfilerV5 = ProfilerWithId<ProfilerDescriptorV5>;
using ProfilerV6 = ProfilerWithId<ProfilerDescriptorV6>;

static_assert(sizeof(ProfilerDescriptorV1) == 120 && sizeof(ProfilerDescriptorV2) == 128);
static_assert(sizeof(ProfilerDescriptorV3) == 120 && sizeof(ProfilerDescriptorV4) == 104);
static_assert(sizeof(ProfilerDescriptorV5) == 112 && sizeof(ProfilerDescriptorV6) == 112);
static_assert(offsetof(ProfilerDescriptorV1, coll) == 24 && offsetof(ProfilerDescriptorV4, coll) == 24);
static_assert(offsetof(ProfilerDescriptorV5, coll) == 24 && offsetof(ProfilerDescriptorV6, ce_coll) == 24);
static_assert(offsetof(ProfilerDescriptorV4, parent) == 8 && offsetof(ProfilerDescriptorV5, rank) == 16);
static_assert(offsetof(CollEventV4, algorithm) == 64 && offsetof(CollEventV5, parent_group) == 80);
static_assert(offsetof(ProxyOpEvent, peer) == 8 && offsetof(ProxyOpEvent, is_send) == 20);
static_assert(offsetof(KernelChEvent, gpu_ns) == 8 && sizeof(ProxyOpEvent) == 24);
static_assert(sizeof(ProfilerStateArgumentsV1) == 16 && sizeof(ProfilerStateArgumentsV4) == 8);
static_assert(sizeof(ProfilerV1) == 48 && sizeof(ProfilerV4) == 48 && sizeof(ProfilerV6) == 48);
static_assert(offsetof(ProfilerV6, record_event_state) == 32 && offsetof(ProfilerV4, finalize) == 40);

}  // namespace weft::nccl
