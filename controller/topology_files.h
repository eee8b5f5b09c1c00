// What files say of the fabric: which switch each host hangs on (Slurm's topology.conf, LLDP neighbours) and what its NICs
// can carry (NCCL's topology dump). It fills in what no probe has shown yet, so that ranks are ordered before a job's first
// flow; what probes and configuration say wins, and where they differ both are named.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::controller {

enum class TopologyFormat : uint8_t { kNone, kSlurm, kLldp, kNccl };

/// "slurm", "lldp", "nccl". Errors: kInvalidArgument with the accepted names.
[[nodiscard]] Result<TopologyFormat> ParseTopologyFormat(std::string_view text);

struct TopologyFile {
  TopologyFormat format = TopologyFormat::kNone;
  std::string path;
  std::string host;   ///< whose neighbours or server it describes; empty for slurm
};

struct ImportedTopology {
  struct Leaf {
    std::string name;     ///< of the switch, as the file has it
    std::string source;   ///< the file
  };
  std::map<std::string, Leaf> leaf;                 ///< by host
  std::map<std::string, BitsPerSecond> nic_rate;    ///< by host: all NICs together
  std::vector<std::string> conflicts;               ///< between files; the first one holds

  bool empty() const { return leaf.empty() && nic_rate.empty(); }
};

/// Takes in one text. Errors: those of the parsers in formats/, which name source and line.
[[nodiscard]] Status AddTopologyText(const TopologyFile& file, std::string_view text, ImportedTopology* imported);

/// Reads all files in their order. Errors: kNotFound for a missing one; as AddTopologyText.
[[nodiscard]] Result<ImportedTopology> ReadTopologyFiles(const std::vector<TopologyFile>& files);

/// Where what probes found (`probed`: switch by host) groups hosts otherwise than the files do, and where a host's NICs carry
/// less than `configured` says of its first link. At most one line per host. Complexity: linear but for the maps.
std::vector<std::string> TopologyConflicts(const ImportedTopology& imported,
                                           const std::map<std::string, std::string>& probed,
                                           const std::map<std::string, BitsPerSecond>& configured);

}  // namespace weft::controller
