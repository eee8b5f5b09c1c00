// Every environment variable that the plugin reads, in one place. They are read once, at the first init; what a user
// set wins over what a launcher would set, because there is only one value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::net {

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
    {"WEFT_CHUNK_BYTES", "131072", "largest piece of a message that one lane carries at a time, 4096 to 16777216"},
    {"WEFT_UNSENT_BYTES", "262144",
     "bytes that a lane may hold in the kernel unsent (TCP_NOTSENT_LOWAT), 4096 to 1073741824"},
    {"NCCL_SOCKET_IFNAME", "", "interfaces: comma list of prefixes, '=' first: exact names, '^' first: all but these"},
    {"NCCL_SOCKET_FAMILY", "", "AF_INET or AF_INET6: only addresses of this family"},
};

struct Environment {
  std::string job_id;
  int rank = -1;   ///< -1: unknown
  int world = -1;  ///< -1: unknown
  std::string run_dir = "/run/weft";
  uint32_t chunk_bytes = 128 << 10;
  uint32_t unsent_bytes = 256 << 10;
  std::string interfaces;
  int family = 0;  ///< AF_INET, AF_INET6, or 0: both
  /// Values that were refused, one line each with what holds in their place; logged at init.
  std::vector<std::string> problems;
};

Environment ReadEnvironment();

}  // namespace weft::net
