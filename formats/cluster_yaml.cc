#include "formats/cluster_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "common/parse_units.h"
#include "formats/calibration_yaml.h"
#include "formats/one_line.h"
#include "formats/read_file.h"
#include "formats/scenario_cluster.h"
#include "formats/yaml_fields.h"

namespace weft::formats {
namespace {

using planner::ClusterSpec;
using planner::NodeGroup;

constexpr int64_t kMostNodes = 1'000'000;
constexpr size_t kMostGroups = 64;

/// What a `fabric` says of the nodes: how many there are and what each can send, and what they hang on.
struct NodesOnFabric {
  int64_t nodes = 0;
  BitsPerSecond nic_rate;
  planner::NodeTiers tiers;
  std::vector<std::string> names;  // of nodes, in order of rank
};

/// A node of several hosts is named by its first. Requires: at least one host, a whole number of nodes. Errors:
/// kInvalidArgument for a node that is not joined to the others, without the place.
Result<NodesOnFabric> PutOnFabric(const ScenarioCluster& fabric, int64_t hosts_per_node) {
  NodesOnFabric found;
  std::vector<std::vector<NodeId>> senders;
  std::vector<std::string> names;
  for (size_t h = 0; h < fabric.hosts.size(); h += static_cast<size_t>(hosts_per_node)) {
    std::vector<NodeId>& of_node = senders.emplace_back();
    names.push_back(fabric.hosts[h].name);
    BitsPerSecond rate;
    for (int64_t k = 0; k < hosts_per_node; ++k) {
      const ScenarioHost& host = fabric.hosts[h + static_cast<size_t>(k)];
      of_node.insert(of_node.end(), host.senders.begin(), host.senders.end());
      rate = rate + host.rate;
    }
    if (found.nodes++ == 0 || rate < found.nic_rate) found.nic_rate = rate;
  }
  if (found.nic_rate.value() <= 0) {
    return Fail(Code::kInvalidArgument, "its hosts have no network, expected one; leave \"fabric\" out for a single server");
  }
  if (const auto alone = planner::FindUnjoinedNode(fabric.topology, senders)) {
    return Fail(Code::kInvalidArgument, fmt::format("{} and {} cannot send to each other, expected links both ways between all hosts",
                                                    names.front(), names[*alone]));
  }
  found.tiers = planner::FindNodeTiers(fabric.topology, senders);
  // What hangs between a node and the rest may be narrower than its own ports.
  if (found.tiers.node_out.value() > 0 && found.tiers.node_out < found.nic_rate * 0.999) {
    const std::string joins = found.tiers.tiers.front().name;
    found.tiers.tiers.insert(found.tiers.tiers.begin(), {joins, 1, found.tiers.node_out});
  }
  for (const int32_t node : found.tiers.order) found.names.push_back(std::move(names[static_cast<size_t>(node)]));
  return found;
}

/// Keys of a host's inside are the file's own; those of `fabric` say what lies around it.
void RejectInsides(YamlFields& fields, const YamlValue& map) {
  for (const auto& [key, value] : map.fields) {
    static constexpr std::array kInside = {"device", "gpus_per_host", "intra_node_rate", "intra_latency", "nic_latency",
                                           "network_efficiency"};
    if (std::ranges::find(kInside, std::string_view(key)) == kInside.end()) continue;
    fields.RejectAt(value.line, fmt::format("key \"fabric.{}\": expected beside \"fabric\", not in it", key));
  }
}

Result<NodesOnFabric> ReadFabric(YamlFields& fields, std::string_view source, const std::string& folder, int64_t hosts_per_node,
                                 int64_t gpus_per_node) {
  const YamlValue& map = *fields.Value("fabric");
  RejectInsides(fields, map);
  WEFT_RETURN_IF_ERROR(fields.FirstError());
  WEFT_ASSIGN_OR_RETURN(const ScenarioCluster fabric, ReadScenarioCluster(map, source, folder, "fabric."));
  const auto hosts = static_cast<int64_t>(fabric.hosts.size());
  if (hosts % hosts_per_node != 0) {
    fields.Reject("hosts_per_node", fmt::format("value {}, expected a divisor of the fabric's {} hosts", hosts_per_node, hosts));
  }
  if (fabric.gpus_per_host > 1 && fabric.gpus_per_host * hosts_per_node != gpus_per_node) {
    fields.Reject("gpus_per_node", fmt::format("value {}, expected {}, as the fabric's servers have", gpus_per_node,
                                               fabric.gpus_per_host * hosts_per_node));
  }
  WEFT_RETURN_IF_ERROR(fields.FirstError());
  Result<NodesOnFabric> found = PutOnFabric(fabric, hosts_per_node);
  if (!found) {
    fields.Reject("fabric", found.error().message());
    return Fail(fields.FirstError().error());
  }
  return found;
}

/// The keys that describe one kind of node, of the whole file or of one group; `fabric` may say how many and their rate.
NodeGroup ReadNodes(YamlFields& fields, std::string name, const NodesOnFabric* fabric = nullptr) {
  NodeGroup group;
  group.name = std::move(name);
  group.nodes = fabric == nullptr ? fields.Integer("nodes", 1, kMostNodes) : fields.Integer("nodes", 1, kMostNodes, fabric->nodes);
  if (fabric != nullptr && group.nodes != fabric->nodes) {
    fields.Reject("nodes", fmt::format("value {}, expected {}, the nodes of \"fabric\", or no such key", group.nodes, fabric->nodes));
  }
  group.gpus_per_node = fields.Integer("gpus_per_node", 1, 1024);
  const std::string device = fields.Text("device");
  if (const auto known = planner::FindDevice(device)) {
    group.device = *known;
  } else {
    fields.Reject("device", fmt::format("value \"{}\", expected one of {}", OneLine(device, 60), planner::DeviceNames()));
  }
  group.device.memory = fields.Amount("device_memory", group.device.memory);
  if (group.device.memory <= group.device.reserved) {
    fields.Reject("device_memory", fmt::format("expected more than the {} MiB that the runtime takes",
                                               group.device.reserved.count() >> 20));
  }
  group.device.gemm_efficiency = fields.Number("device_efficiency", 0.01, 1, group.device.gemm_efficiency);
  group.intra_node_rate = fields.Rate("intra_node_rate");
  group.nic_rate = fabric == nullptr || fields.Has("nic_rate") ? fields.Rate("nic_rate") : fabric->nic_rate;
  if (fabric != nullptr && std::abs(group.nic_rate / fabric->nic_rate - 1) > 1e-3) {
    fields.Reject("nic_rate", fmt::format("expected {}, what the hosts of \"fabric\" have, or no such key",
                                          FormatRate(fabric->nic_rate)));
  }
  group.intra_latency = fields.Duration("intra_latency", Seconds(4e-6));
  group.nic_latency = fields.Duration("nic_latency", Seconds(12e-6));
  return group;
}

Result<std::vector<NodeGroup>> ReadGroups(const std::vector<YamlValue>& items, std::string_view source) {
  std::vector<NodeGroup> groups;
  for (const YamlValue& item : items) {
    YamlFields fields(item, source, fmt::format("groups[{}].", groups.size()));
    std::string name = fields.Text("name", fmt::format("group{}", groups.size()));
    groups.push_back(ReadNodes(fields, std::move(name)));
    WEFT_RETURN_IF_ERROR(fields.Finish());
  }
  return groups;
}

/// "PRESET:N". Errors: kInvalidArgument for a wrong count; kNotFound for another word.
Result<ClusterSpec> FromPreset(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view preset = text.substr(0, colon);
  if (!planner::FindClusterPreset(preset, 1)) {
    return Fail(Code::kNotFound, fmt::format("no such file, and no preset: expected a YAML file, or one of {} with a number "
                                             "of nodes, as in dgx-a100:4", planner::ClusterPresetNames()));
  }
  int64_t nodes = 0;
  const std::string_view count = colon == text.npos ? "" : text.substr(colon + 1);
  const auto parsed = std::from_chars(count.data(), count.data() + count.size(), nodes);
  if (parsed.ec != std::errc() || parsed.ptr != count.data() + count.size() || nodes < 1 || nodes > kMostNodes) {
    return Fail(Code::kInvalidArgument, fmt::format("number of nodes \"{}\", expected {}:N with N from 1 to {}", count,
                                                    preset, kMostNodes));
  }
  return *planner::FindClusterPreset(preset, nodes);
}

/// "PRESET:N+PRESET:N". Errors: as FromPreset.
Result<ClusterSpec> FromPresets(const std::string& name) {
  std::vector<NodeGroup> groups;
  double efficiency = 1;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t plus = std::min(name.find('+', begin), name.size());
    WEFT_ASSIGN_OR_RETURN(const ClusterSpec part, FromPreset(std::string_view(name).substr(begin, plus - begin)));
    if (plus == name.size() && groups.empty()) return part;
    groups.push_back(part.Groups()[0]);
    efficiency = std::min(efficiency, part.network_efficiency);
    begin = plus + 1;
  }
  if (groups.size() > kMostGroups) {
    return Fail(Code::kInvalidArgument, fmt::format("{} groups, expected at most {}", groups.size(), kMostGroups));
  }
  return planner::MakeCluster(name, std::move(groups), efficiency);
}

void ReadNicKind(YamlFields& fields, ClusterSpec& cluster) {
  const std::string kind = fields.Text("nic_kind", "plain");
  if (kind == "efa") cluster.nic_kind = planner::NicKind::kEfa;
  else if (kind == "efa-staged") cluster.nic_kind = planner::NicKind::kEfaStaged;
  else if (kind == "slingshot") cluster.nic_kind = planner::NicKind::kSlingshot;
  else if (kind != "plain") fields.Reject("nic_kind", fmt::format("value \"{}\", expected plain, efa, efa-staged or slingshot", OneLine(kind, 60)));
}

/// A cluster whose nodes are alike.
Result<ClusterSpec> ReadAlike(YamlFields& fields, const std::string& name, double efficiency, std::string_view source,
                              const std::string& folder) {
  const int64_t hosts_per_node = fields.Integer("hosts_per_node", 1, 1024, 1);
  const int64_t gpus = fields.Integer("gpus_per_node", 1, 1024);
  if (gpus % hosts_per_node != 0) {
    fields.Reject("hosts_per_node", fmt::format("value {}, expected a divisor of gpus_per_node = {}", hosts_per_node, gpus));
  }
  std::optional<NodesOnFabric> fabric;
  if (fields.Has("fabric")) {
    WEFT_ASSIGN_OR_RETURN(fabric, ReadFabric(fields, source, folder, hosts_per_node, gpus));
  }
  ClusterSpec cluster = planner::MakeCluster(name, {ReadNodes(fields, name, fabric ? &*fabric : nullptr)}, efficiency);
  cluster.hosts_per_node = hosts_per_node;
  const std::string sums = fields.Text("switch_sums", "false");
  if (sums != "true" && sums != "false") fields.Reject("switch_sums", fmt::format("value \"{}\", expected true or false", OneLine(sums, 60)));
  cluster.switch_sums = sums == "true";
  cluster.nics_per_node = fields.Integer("nics_per_node", 1, 1024, 0);
  ReadNicKind(fields, cluster);
  if (fields.Has("calibration")) {
    const std::string file = fields.Text("calibration");
    WEFT_ASSIGN_OR_RETURN(cluster.measured, ReadMeasuredConstants((std::filesystem::path(folder) / file).string()));
  }
  WEFT_RETURN_IF_ERROR(fields.Finish());
  if (fabric) {
    cluster.tiers = std::move(fabric->tiers.tiers);
    cluster.node_names = std::move(fabric->names);
  }
  return cluster;
}

}  // namespace

Result<ClusterSpec> ParseClusterYaml(std::string_view text, std::string_view source_name, const std::string& folder) {
  WEFT_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, source_name));
  YamlFields fields(root, source_name);
  const std::string name = fields.Text("name");
  const double efficiency = fields.Number("network_efficiency", 0.01, 1, ClusterSpec().network_efficiency);
  if (!fields.Has("groups")) return ReadAlike(fields, name, efficiency, source_name, folder);
  const std::vector<YamlValue>& items = fields.List("groups");
  if (items.empty() || items.size() > kMostGroups) {
    fields.Reject("groups", fmt::format("{} groups, expected 1 to {}", items.size(), kMostGroups));
  }
  const BitsPerSecond between = fields.Has("between_groups_rate") ? fields.Rate("between_groups_rate") : BitsPerSecond(0);
  const Seconds latency = fields.Duration("between_groups_latency", Seconds(0));
  WEFT_RETURN_IF_ERROR(fields.Finish());
  WEFT_ASSIGN_OR_RETURN(std::vector<NodeGroup> groups, ReadGroups(items, source_name));
  ClusterSpec cluster = planner::MakeCluster(name, std::move(groups), efficiency);
  cluster.between_groups_rate = between;
  cluster.between_groups_latency = latency;
  return cluster;
}

Result<ClusterSpec> ReadClusterYaml(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseClusterYaml(text, path, std::filesystem::path(path).parent_path().string());
}

Result<ClusterSpec> ResolveCluster(const std::string& name) {
  const Result<ClusterSpec> preset = FromPresets(name);
  if (preset) return *preset;
  if (preset.error().code() == Code::kNotFound) {
    Result<ClusterSpec> read = ReadClusterYaml(name);
    if (read || read.error().code() != Code::kNotFound) return read;
  }
  return Fail(preset.error().WithContext(fmt::format("cluster \"{}\"", OneLine(name))));
}

}  // namespace weft::formats
