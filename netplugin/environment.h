// Every environment variable that the plugin reads, in one place. They are read once, at the first init; what a user
// set wins over what a launcher would set, because there is only one value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "netplugin/abi/segment.h"

namespace weft::net {

inline constexpr int kMaxRecvs = 8;  ///< buffers of one irecv(), at most

struct EnvironmentVariable {
  const char* name;
  const char* standard;  ///< the default, as text
  const char* meaning;
};

/// docs/netplugin.md lists the same; a test compares.
inline constexpr EnvironmentVariable kEnvironmentVariables[] = {
    {"WEFT_JOB_ID", "", "id of the job, up to 63 characters; the agent finds the job's policy by it"},
    {"WEFT_RANK", "RANK, OMPI_COMM_WORLD_RANK or SLURM_PROCID, else unknown", "rank of this process in the job"},
    {"WEFT_WORLD", "WORLD_SIZE, OMPI_COMM_WORLD_SIZE or SLURM_NTASKS, else unknown", "number of ranks of the job"},
    {"WEFT_RUN_DIR", "/run/weft", "folder of the agent's socket; empty: no agent is looked for"},
    {"WEFT_CHUNK_BYTES", "131072",
     "largest piece of a message that one lane carries at a time, 4096 to 16777216; until a policy names lanes 1048576 "
     "if that is more"},
    {"WEFT_UNSENT_BYTES", "262144",
     "bytes that a lane may hold in the kernel unsent (TCP_NOTSENT_LOWAT), 4096 to 1073741824"},
    {"WEFT_MAX_RECVS", "8", "buffers that NCCL may group in one receive, 1 to 8"},
    {"NCCL_SOCKET_IFNAME", "", "interfaces: comma list of prefixes, '=' first: exact names, '^' first: all but these"},
    {"NCCL_SOCKET_FAMILY", "", "AF_INET or AF_INET6: only addresses of this family"},
    {"WEFT_COLLECTIVES", "", "collective table for the tuner face, the same on all ranks (abi/collective_table.h)"},
    {"WEFT_FABRIC", "", "what the network gives: bandwidth:SHARE,latency_us:TIME, the same on all ranks"},
    {"WEFT_NCCL_DEFAULTS", "", "NCCL_NAME=VALUE;... for what the user leaves unset, by the environment plugin"},
    {"WEFT_PROFILE", "off", "off, collectives, steps or kernels: what the profiler face records without an agent"},
    {"WEFT_RDMA_FAILOVER", "1", "1: a flow whose port is down moves to another port of the host; 0: it waits"},
    {"WEFT_RDMA_FAILBACK_S", "5", "for how long a port must be up again before flows return to it, 0 to 86400"},
    {"WEFT_STALL_SECONDS", "60", "a connection that stands still for so long is reported, 1 to 86400; 0: never"},
    {"WEFT_STALL_ACTION", "report", "report, error (its requests fail) or abort (the process ends)"},
    {"WEFT_STALL_ACTION_SECONDS", "600", "when the action is taken, at least WEFT_STALL_SECONDS, 1 to 86400"},
    {"WEFT_TRANSPORT", "auto", "tcp, rdma, or auto: RDMA where a port is active, else TCP"},
    {"WEFT_RDMA_SPLIT_BYTES", "65536",
     "a message is split over queue pairs in parts of at least so many bytes, 128 to 1073741824"},
    {"WEFT_RDMA_RECOVERY_S", "60", "a flow whose queue pairs fail is set up again and again for so long, 1 to 86400"},
    {"NCCL_IB_DISABLE", "0", "1: no RDMA under auto"},
    {"NCCL_IB_HCA", "",
     "RDMA devices: comma list of prefixes with optional ':port', '=' first: exact, '^' first: all but these"},
    {"NCCL_IB_QPS_PER_CONNECTION", "4", "queue pairs of a flow, 1 to 8"},
    {"NCCL_IB_GID_INDEX", "-1", "entry of the GID table, -1: chosen, up to 255"},
    {"NCCL_IB_ADDR_FAMILY", "AF_INET", "AF_INET or AF_INET6: family of the RoCE GID to prefer"},
    {"NCCL_IB_TC", "-1", "traffic class of data, 0 to 255; -1: the communicator's, else 0"},
    {"NCCL_IB_FIFO_TC", "-1", "traffic class of control writes, 0 to 255; -1: as data"},
    {"NCCL_IB_SL", "0", "service level, 0 to 15; never derived from the traffic class"},
    {"NCCL_IB_TIMEOUT", "17", "time until a packet is sent again, 4.096 us times 2 to the power of this, 1 to 31"},
    {"NCCL_IB_RETRY_CNT", "7", "how often a packet is sent again until its queue pair fails, 0 to 7"},
    {"NCCL_IB_ADAPTIVE_ROUTING", "-1",
     "1: end long messages with a write of their own, 0: do not, -1: on InfiniBand only"},
    {"NCCL_IB_PCI_RELAXED_ORDERING", "2", "0: off, 1: on, 2: where the library has it"},
};

/// What becomes of a connection that stands still (watchdog.h).
enum class StallAction { kReport, kError, kAbort };

struct StallEnvironment {
  uint32_t after_s = 60;  ///< 0: no watchdog
  StallAction action = StallAction::kReport;
  uint32_t action_after_s = 600;
};

enum class TransportChoice { kAuto, kTcp, kRdma };

/// What the RDMA transport is told; -1 where a value is left to it.
struct RdmaEnvironment {
  bool disabled = false;
  std::string devices;
  uint32_t split_bytes = 64 << 10;
  int recovery_s = 60;
  bool failover = true;
  int failback_s = 5;
  int queue_pairs = 4;
  int gid_index = -1;
  int family = 0;  ///< AF_INET, AF_INET6; 0: IPv4 first
  int traffic_class = -1;
  int control_traffic_class = -1;
  int service_level = 0;
  int timeout = 17;
  int retry_count = 7;
  int adaptive_routing = -1;
  int relaxed_ordering = 2;
};

struct Environment {
  std::string job_id;
  int rank = -1;   ///< -1: unknown
  int world = -1;  ///< -1: unknown
  std::string run_dir = "/run/weft";
  uint32_t chunk_bytes = 128 << 10;
  uint32_t unsent_bytes = 256 << 10;
  uint32_t max_recvs = 8;
  std::string interfaces;
  int family = 0;  ///< AF_INET, AF_INET6, or 0: both
  TransportChoice transport = TransportChoice::kAuto;
  RdmaEnvironment rdma;
  StallEnvironment stall;
  abi::ProfileLevel profile = abi::ProfileLevel::kOff;
  /// Values that were refused, one line each with what holds in their place; logged at init.
  std::vector<std::string> problems;
};

Environment ReadEnvironment();

}  // namespace weft::net
