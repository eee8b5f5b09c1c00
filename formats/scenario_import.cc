#include "formats/scenario_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "formats/nccl_topology_xml.h"
#include "formats/one_line.h"
#include "formats/read_file.h"
#include "formats/slurm_topology.h"

namespace weft::formats {
namespace {

using planner::NodeKind;

constexpr std::string_view kNameRule = "expected 1 to 63 letters, digits and -_./: without \"->\"";

std::string PathOf(const FabricInput& in, const std::string& file) {
  return file.starts_with('/') || in.folder.empty() ? file : in.folder + "/" + file;
}

struct ListedLink {
  std::string from, to;
  BitsPerSecond rate;
  int64_t directions = 2;
};

/// Each named once in a direction, never from a node to itself.
class LinkListReader {
 public:
  explicit LinkListReader(FabricInput& in) : in_(in) {}

  void ReadHosts() {
    hosts_ = in_.fields.TextList("hosts");
    if (hosts_.empty()) in_.fields.Reject("hosts", "expected a list of at least one host");
    for (const std::string& host : hosts_) {
      if (!IsScenarioName(host)) {
        in_.fields.Reject("hosts", fmt::format("name \"{}\", {}", OneLine(host, 60), kNameRule));
      }
      if (!names_.insert(host).second) in_.fields.Reject("hosts", fmt::format("host \"{}\" stands twice", host));
    }
  }

  void ReadLinks() {
    const std::vector<YamlValue>& items = in_.fields.List("links");
    if (items.empty()) in_.fields.Reject("links", "expected a list of at least one link");
    for (const YamlValue& item : items) {
      if (const Status read = ReadLink(item); !read) return in_.fields.Adopt(read.error());
    }
    for (const std::string& host : hosts_) {
      if (!joined_.contains(host)) {
        in_.fields.Reject("hosts", fmt::format("host \"{}\" has no link", OneLine(host, 60)));
      }
    }
  }

  BuiltFabric Build() const {
    BuiltFabric built{.cluster = {}, .names = hosts_};
    planner::Topology& topology = built.cluster.topology;
    for (const std::string& host : hosts_) {
      const NodeId node = topology.AddNode(host, NodeKind::kHost);
      built.cluster.hosts.push_back({.ports = {node}, .gpus = {node}});
    }
    for (const ListedLink& link : links_) {
      const NodeId from = topology.AddNode(link.from, NodeKind::kSwitch),
                   to = topology.AddNode(link.to, NodeKind::kSwitch);
      topology.AddLink(from, to, link.rate);
      if (link.directions == 2) topology.AddLink(to, from, link.rate);
    }
    return built;
  }

 private:
  Status ReadLink(const YamlValue& item) {
    YamlFields fields(item, in_.source, fmt::format("{}links[{}].", in_.fields.place(), links_.size()));
    ListedLink link{.from = fields.Text("from"), .to = fields.Text("to"), .rate = fields.Rate("rate"),
                    .directions = fields.Integer("directions", 1, 2, 2)};
    for (const char* key : {"from", "to"}) {
      const std::string& name = key == std::string_view("from") ? link.from : link.to;
      if (!IsScenarioName(name)) fields.Reject(key, fmt::format("name \"{}\", {}", OneLine(name, 60), kNameRule));
    }
    if (link.from == link.to) {
      fields.Reject("to", fmt::format("value {}, expected another node than from", OneLine(link.to, 60)));
    }
    const bool known = !ends_.emplace(link.from, link.to).second;
    if (known || (link.directions == 2 && !ends_.emplace(link.to, link.from).second)) {
      fields.Reject("to",
                    fmt::format("the link {}->{} stands twice (a link has both directions unless directions is 1)",
                                OneLine(link.from, 60), OneLine(link.to, 60)));
    }
    WEFT_RETURN_IF_ERROR(fields.Finish());
    joined_.insert(link.from);
    joined_.insert(link.to);
    links_.push_back(std::move(link));
    return Ok();
  }

  FabricInput& in_;
  std::vector<std::string> hosts_;
  std::vector<ListedLink> links_;
  std::set<std::string> names_, joined_;
  std::set<std::pair<std::string, std::string>> ends_;
};

Result<BuiltFabric> BuildSlurm(const std::string& path, BitsPerSecond rate, std::optional<BitsPerSecond> core_rate) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  WEFT_ASSIGN_OR_RETURN(const std::vector<SlurmSwitch> switches, ParseSlurmTopology(text, path));
  BuiltFabric built{.cluster = {.topology = SlurmTopologyGraph(switches, rate), .hosts = {}}, .names = {}};
  planner::Topology& topology = built.cluster.topology;
  std::set<std::string> below;
  for (const SlurmSwitch& one : switches) below.insert(one.switches.begin(), one.switches.end());
  std::vector<std::string> roots;
  for (const SlurmSwitch& one : switches) {
    if (!below.contains(one.name)) roots.push_back(one.name);
    for (const std::string& host : one.nodes) {
      const NodeId node = *topology.FindNode(host);
      built.cluster.hosts.push_back({.ports = {node}, .gpus = {node}});
      built.names.push_back(host);
    }
  }
  if (built.names.empty()) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: no switch has Nodes, expected hosts", path));
  }
  if (roots.size() > 1 && !core_rate) {
    return Fail(
        Code::kInvalidArgument,
        fmt::format("{}: {} and {} are not connected, expected one tree, or core_rate in the scenario, the rate of "
                    "cables to a switch above both",
                    path, roots[0], roots[1]));
  }
  if (roots.size() > 1) {
    // AddNode() gives the node that has the name already: a host or switch of the file may be called core.
    std::string name = "core";
    for (int n = 2; topology.FindNode(name); ++n) name = fmt::format("core{}", n);
    const NodeId core = topology.AddNode(name, NodeKind::kSwitch);
    for (const std::string& root : roots) topology.AddCable(*topology.FindNode(root), core, *core_rate);
  }
  return built;
}

/// Adds all of `part` to `topology`; `ids` gets the new ids of its nodes.
void Append(const planner::Topology& part, planner::Topology* topology, std::vector<NodeId>* ids) {
  for (const planner::Node& node : part.nodes()) ids->push_back(topology->AddNode(node.name, node.kind));
  for (const planner::Link& link : part.links()) {
    topology->AddLink((*ids)[link.from.index()], (*ids)[link.to.index()], link.line_rate, link.kind);
  }
}

Result<BuiltFabric> BuildNccl(const std::string& path, int64_t hosts, std::optional<BitsPerSecond> nic_rate) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  BuiltFabric built;
  planner::Topology& topology = built.cluster.topology;
  for (int64_t h = 1; h <= hosts; ++h) {
    const std::string name = fmt::format("h{}", h);
    WEFT_ASSIGN_OR_RETURN(const NcclTopology read, ParseNcclTopologyXml(text, path, name));
    if (read.server.gpus.empty() || (hosts > 1 && read.server.nics.empty())) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: {} GPUs and {} NICs, expected at least one of each", path,
                                                      read.server.gpus.size(), read.server.nics.size()));
    }
    std::vector<NodeId> ids;
    Append(read.topology, &topology, &ids);
    planner::ClusterHost host;
    for (const NodeId gpu : read.server.gpus) host.gpus.push_back(ids[gpu.index()]);
    for (const NodeId nic : read.server.nics) host.ports.push_back(ids[nic.index()]);
    if (hosts > 1) {
      const NodeId leaf = topology.AddNode("leaf1", NodeKind::kSwitch);
      for (const NodeId nic : read.server.nics) {
        BitsPerSecond rate{0};  // the NIC's own, unless the file says otherwise
        for (const planner::Link& link : read.topology.links()) {
          if (link.from == nic) rate = std::max(rate, link.line_rate);
        }
        topology.AddCable(ids[nic.index()], leaf, nic_rate.value_or(rate));
      }
    }
    built.cluster.hosts.push_back(std::move(host));
    built.names.push_back(name);
  }
  return built;
}

}  // namespace

FabricBuilder ReadLinkList(FabricInput& in) {
  LinkListReader reader(in);
  reader.ReadHosts();
  reader.ReadLinks();
  return [built = reader.Build()] { return built; };
}

FabricBuilder ReadSlurmFabric(FabricInput& in) {
  const std::string path = PathOf(in, in.fields.Text("file"));
  const BitsPerSecond rate = in.fields.Rate("rate");
  std::optional<BitsPerSecond> core_rate;
  if (in.fields.Value("core_rate") != nullptr) core_rate = in.fields.Rate("core_rate");
  return [path, rate, core_rate] { return BuildSlurm(path, rate, core_rate); };
}

FabricBuilder ReadNcclFabric(FabricInput& in) {
  const std::string path = PathOf(in, in.fields.Text("file"));
  const int64_t hosts = in.fields.Integer("hosts", 1, 256, 1);
  std::optional<BitsPerSecond> nic_rate;
  if (in.fields.Value("nic_rate") != nullptr) nic_rate = in.fields.Rate("nic_rate");
  return [path, hosts, nic_rate] { return BuildNccl(path, hosts, nic_rate); };
}

}  // namespace weft::formats
