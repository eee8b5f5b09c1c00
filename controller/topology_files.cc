#include "controller/topology_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/parse_units.h"
#include "formats/lldp_json.h"
#include "formats/nccl_topology_xml.h"
#include "formats/read_file.h"
#include "formats/slurm_topology.h"

namespace weft::controller {
namespace {

void SetLeaf(const std::string& host, const std::string& leaf, const std::string& source, ImportedTopology* imported) {
  const auto [it, is_new] = imported->leaf.try_emplace(host, ImportedTopology::Leaf{leaf, source});
  if (is_new || it->second.name == leaf) return;
  imported->conflicts.push_back(fmt::format("host {} hangs on {} in {}, on {} in {}: the first holds", host,
                                            it->second.name, it->second.source, leaf, source));
}

Status AddSlurm(const TopologyFile& file, std::string_view text, ImportedTopology* imported) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<formats::SlurmSwitch> switches, formats::ParseSlurmTopology(text, file.path));
  for (const formats::SlurmSwitch& one : switches) {
    for (const std::string& node : one.nodes) SetLeaf(node, one.name, file.path, imported);
  }
  return Ok();
}

Status AddLldp(const TopologyFile& file, std::string_view text, ImportedTopology* imported) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<formats::LldpNeighbour> neighbours, formats::ParseLldpJson(text, file.path));
  std::set<std::string> chassis;
  for (const formats::LldpNeighbour& neighbour : neighbours) chassis.insert(neighbour.chassis);
  // NICs of several rails hang on several switches: no single one is the host's leaf.
  if (chassis.size() == 1) SetLeaf(file.host, *chassis.begin(), file.path, imported);
  return Ok();
}

Status AddNccl(const TopologyFile& file, std::string_view text, ImportedTopology* imported) {
  WEFT_ASSIGN_OR_RETURN(const formats::NcclTopology server, formats::ParseNcclTopologyXml(text, file.path, file.host));
  double rate = 0;
  for (const NodeId nic : server.server.nics) {
    double widest = 0;  // what the host side of the NIC gives
    for (const planner::Link& link : server.topology.links()) {
      if (link.from == nic || link.to == nic) widest = std::max(widest, link.capacity.value());
    }
    rate += widest;
  }
  if (rate > 0) imported->nic_rate.try_emplace(file.host, BitsPerSecond(rate));
  return Ok();
}

}  // namespace

Result<TopologyFormat> ParseTopologyFormat(std::string_view text) {
  if (text == "slurm") return TopologyFormat::kSlurm;
  if (text == "lldp") return TopologyFormat::kLldp;
  if (text == "nccl") return TopologyFormat::kNccl;
  return Fail(Code::kInvalidArgument, "expected slurm, lldp or nccl");
}

Status AddTopologyText(const TopologyFile& file, std::string_view text, ImportedTopology* imported) {
  switch (file.format) {
    case TopologyFormat::kSlurm: return AddSlurm(file, text, imported);
    case TopologyFormat::kLldp: return AddLldp(file, text, imported);
    case TopologyFormat::kNccl: return AddNccl(file, text, imported);
    case TopologyFormat::kNone: break;
  }
  return Fail(Code::kInvalidArgument, file.path + ": no format, expected slurm, lldp or nccl");
}

Result<ImportedTopology> ReadTopologyFiles(const std::vector<TopologyFile>& files) {
  ImportedTopology imported;
  for (const TopologyFile& file : files) {
    WEFT_ASSIGN_OR_RETURN(const std::string text, formats::ReadFile(file.path));
    WEFT_RETURN_IF_ERROR(AddTopologyText(file, text, &imported));
  }
  return imported;
}

std::vector<std::string> TopologyConflicts(const ImportedTopology& imported,
                                           const std::map<std::string, std::string>& probed,
                                           const std::map<std::string, BitsPerSecond>& configured) {
  std::vector<std::string> conflicts;
  // Names of switches differ between sources, so what is compared is who shares one: each name stands for the first host.
  std::map<std::string, std::pair<std::string, std::string>> by_file, by_probe;  // switch -> first host, its other switch
  for (const auto& [host, switch_address] : probed) {
    const auto file = imported.leaf.find(host);
    if (file == imported.leaf.end()) continue;
    const std::string& name = file->second.name;
    const auto [mine, new_name] = by_file.try_emplace(name, host, switch_address);
    const auto [theirs, new_address] = by_probe.try_emplace(switch_address, host, name);
    if (mine->second.second != switch_address) {
      conflicts.push_back(fmt::format("{}: hosts {} and {} hang on {}, but probes find them on {} and {}", file->second.source,
                                      mine->second.first, host, name, mine->second.second, switch_address));
    } else if (theirs->second.second != name) {
      conflicts.push_back(fmt::format("{}: hosts {} and {} hang on {} and {}, but probes find both on {}", file->second.source,
                                      theirs->second.first, host, theirs->second.second, name, switch_address));
    }
  }
  for (const auto& [host, rate] : imported.nic_rate) {
    const auto known = configured.find(host);
    if (known == configured.end() || known->second <= rate) continue;
    conflicts.push_back(fmt::format("host {}: its NICs carry {}, its link is configured for {}", host, FormatRate(rate),
                                    FormatRate(known->second)));
  }
  return conflicts;
}

}  // namespace weft::controller
