#include "formats/cluster_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "formats/one_line.h"
#include "formats/read_file.h"
#include "formats/yaml_fields.h"

namespace weft::formats {
namespace {

using planner::ClusterSpec;
using planner::NodeGroup;

constexpr int64_t kMostNodes = 1'000'000;
constexpr size_t kMostGroups = 64;

/// The keys that describe one kind of node, of the whole file or of one group.
NodeGroup ReadNodes(YamlFields& fields, std::string name) {
  NodeGroup group;
  group.name = std::move(name);
  group.nodes = fields.Integer("nodes", 1, kMostNodes);
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
  group.nic_rate = fields.Rate("nic_rate");
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

}  // namespace

Result<ClusterSpec> ParseClusterYaml(std::string_view text, std::string_view source_name) {
  WEFT_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, source_name));
  YamlFields fields(root, source_name);
  const std::string name = fields.Text("name");
  const double efficiency = fields.Number("network_efficiency", 0.01, 1, ClusterSpec().network_efficiency);
  if (!fields.Has("groups")) {
    ClusterSpec cluster = planner::MakeCluster(name, {ReadNodes(fields, name)}, efficiency);
    cluster.hosts_per_node = fields.Integer("hosts_per_node", 1, 1024, 1);
    if (cluster.gpus_per_node % cluster.hosts_per_node != 0) {
      fields.Reject("hosts_per_node", fmt::format("value {}, expected a divisor of gpus_per_node = {}",
                                                  cluster.hosts_per_node, cluster.gpus_per_node));
    }
    WEFT_RETURN_IF_ERROR(fields.Finish());
    return cluster;
  }
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
  return ParseClusterYaml(text, path);
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
