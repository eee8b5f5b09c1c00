#include "formats/cluster_yaml.h"

#include <fmt/format.h>

#include <charconv>

#include "formats/read_file.h"
#include "formats/yaml_fields.h"

namespace weft::formats {
namespace {

constexpr int64_t kMostNodes = 1'000'000;

}  // namespace

Result<planner::ClusterSpec> ParseClusterYaml(std::string_view text, std::string_view source_name) {
  WEFT_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, source_name));
  YamlFields fields(root, source_name);
  planner::ClusterSpec cluster;
  cluster.name = fields.Text("name");
  cluster.nodes = fields.Integer("nodes", 1, kMostNodes);
  cluster.gpus_per_node = fields.Integer("gpus_per_node", 1, 1024);
  const std::string device = fields.Text("device");
  if (const auto known = planner::FindDevice(device)) {
    cluster.device = *known;
  } else {
    fields.Reject("device", fmt::format("value \"{}\", expected one of {}", device, planner::DeviceNames()));
  }
  cluster.device.memory = fields.Amount("device_memory", cluster.device.memory);
  if (cluster.device.memory <= cluster.device.reserved) {
    fields.Reject("device_memory", fmt::format("expected more than the {} MiB that the runtime takes",
                                               cluster.device.reserved.count() >> 20));
  }
  cluster.device.gemm_efficiency =
      fields.Number("device_efficiency", 0.01, 1, cluster.device.gemm_efficiency);
  cluster.intra_node_rate = fields.Rate("intra_node_rate");
  cluster.nic_rate = fields.Rate("nic_rate");
  cluster.intra_latency = fields.Duration("intra_latency", Seconds(4e-6));
  cluster.nic_latency = fields.Duration("nic_latency", Seconds(12e-6));
  cluster.network_efficiency = fields.Number("network_efficiency", 0.01, 1, cluster.network_efficiency);
  WEFT_RETURN_IF_ERROR(fields.Finish());
  return cluster;
}

Result<planner::ClusterSpec> ReadClusterYaml(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseClusterYaml(text, path);
}

Result<planner::ClusterSpec> ResolveCluster(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string preset = name.substr(0, colon);
  if (!planner::FindClusterPreset(preset, 1)) {
    Result<planner::ClusterSpec> read = ReadClusterYaml(name);
    if (!read && read.error().code() == Code::kNotFound) {
      return Fail(Code::kNotFound, fmt::format("cluster \"{}\": no such file, and no preset: expected a YAML file, or one "
                                               "of {} with a number of nodes, as in dgx-a100:4", name,
                                               planner::ClusterPresetNames()));
    }
    return read;
  }
  int64_t nodes = 0;
  const std::string count = colon == name.npos ? "" : name.substr(colon + 1);
  const auto parsed = std::from_chars(count.data(), count.data() + count.size(), nodes);
  if (parsed.ec != std::errc() || parsed.ptr != count.data() + count.size() || nodes < 1 || nodes > kMostNodes) {
    return Fail(Code::kInvalidArgument, fmt::format("cluster \"{}\": number of nodes \"{}\", expected {}:N with N from 1 "
                                                    "to {}", name, count, preset, kMostNodes));
  }
  return *planner::FindClusterPreset(preset, nodes);
}

}  // namespace weft::formats
