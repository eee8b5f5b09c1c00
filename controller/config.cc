#include "controller/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <set>

#include "access/gate.h"
#include "access/http_server.h"
#include "common/parse_units.h"
#include "controller/config_readers.h"
#include "formats/calibration_yaml.h"
#include "formats/read_file.h"

namespace weft::controller {
namespace {

constexpr Seconds kLongestLease{60};  // agents refuse more (netplugin/abi/segment.h)

Status ReadLinks(const std::string& source, const YAML::Node& node, LinkRates& rates) {
  if (!node.IsSequence()) {
    return Fail(Code::kInvalidArgument,
                At(source, node) + ": links: expected a list of maps with from, to and rate");
  }
  for (const YAML::Node& entry : node) {
    std::string from;
    std::string to;
    BitsPerSecond rate;
    WEFT_RETURN_IF_ERROR(ReadMap(source, entry, "links",
                                 {{"from", Text(from)}, {"to", Text(to)}, {"rate", Parsed(rate, ParseRate)}}));
    if (from.empty() || to.empty() || rate.value() <= 0) {
      return Fail(Code::kInvalidArgument, At(source, entry) + ": links: expected from, to and rate");
    }
    if (!rates.overrides.insert({{from, to}, rate}).second) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: links: {} to {} is there twice", At(source, entry), from, to));
    }
  }
  return Ok();
}

Status ReadTopology(const std::string& source, const YAML::Node& node, std::vector<TopologyFile>& files) {
  if (!node.IsSequence()) {
    return Fail(Code::kInvalidArgument, At(source, node) + ": topology: expected a list of maps with format and file");
  }
  for (const YAML::Node& entry : node) {
    TopologyFile file;
    WEFT_RETURN_IF_ERROR(ReadMap(source, entry, "topology",
                                 {{"format", Parsed(file.format, ParseTopologyFormat)},
                                  {"file", Text(file.path)},
                                  {"host", Text(file.host)}}));
    const bool of_host = file.format != TopologyFormat::kSlurm;
    if (file.path.empty() || file.format == TopologyFormat::kNone || of_host == file.host.empty()) {
      return Fail(Code::kInvalidArgument, At(source, entry) + ": topology: expected format and file, and host for nccl and "
                                                              "lldp only");
    }
    files.push_back(std::move(file));
  }
  return Ok();
}

Status ReadCluster(const std::string& source, const YAML::Node& node, ControllerConfig& config) {
  planner::ClusterSpec& cluster = config.planner.cluster;
  config.cluster_given = true;
  const Reader preset = [&](const std::string& value) -> Status {
    const auto found = planner::FindClusterPreset(value, 1);
    if (!found) return Fail(Code::kInvalidArgument, "expected dgx-v100, dgx-a100 or dgx-h100");
    cluster = *found;
    config.cluster_rate_given = true;
    return Ok();
  };
  // The preset comes first wherever it stands, so that the other keys change it and not the other way round.
  if (node.IsMap() && node["preset"] && node["preset"].IsScalar()) {
    if (const Status status = preset(node["preset"].Scalar()); !status) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: cluster.preset: \"{}\": {}", At(source, node["preset"]),
                                                      node["preset"].Scalar(), status.error().message()));
    }
  }
  const Reader device = [&](const std::string& value) -> Status {
    const auto found = planner::FindDevice(value);
    if (!found) return Fail(Code::kInvalidArgument, "expected v100-32, a100-40, a100-80, h100-80 or cpu");
    cluster.device = *found;
    return Ok();
  };
  const Reader nic_rate = [&](const std::string& value) -> Status {
    WEFT_ASSIGN_OR_RETURN(cluster.nic_rate, ParseRate(value));
    config.cluster_rate_given = true;
    return Ok();
  };
  const Reader calibration = [&](const std::string& path) -> Status {
    WEFT_ASSIGN_OR_RETURN(cluster.measured, formats::ReadMeasuredConstants(path));
    return Ok();
  };
  return ReadMap(source, node, "cluster",
                 {{"preset", [](const std::string&) { return Ok(); }},
                  {"device", device},
                  {"calibration", calibration},
                  {"learn", Switch(config.learns)},
                  {"gpus_per_node", Number<int64_t>(cluster.gpus_per_node, 1, 1024)},
                  {"nic_rate", nic_rate},
                  {"intra_node_rate", Parsed(cluster.intra_node_rate, ParseRate)},
                  {"nic_latency", Duration(cluster.nic_latency)},
                  {"intra_latency", Duration(cluster.intra_latency)},
                  {"network_efficiency", Number<double>(cluster.network_efficiency, 0.1, 1)}});
}

std::map<std::string, Reader> ReductionReaders(ReductionOptions& reduction) {
  return {{"cpu_sum_rate", Parsed(reduction.cpu_sum, ParseRate)},
          {"spare_machines", Number<int32_t>(reduction.spare_machines, 0, 1'000'000)},
          {"switch_trees", Number<int32_t>(reduction.switches.trees, 0, 1'000'000)},
          {"switch_levels", Number<int32_t>(reduction.switches.levels, 1, 16)},
          {"switch_tree_rate", Parsed(reduction.switches.tree_rate, ParseRate)},
          {"switch_hop_latency", Duration(reduction.switches.hop_latency)}};
}

Status ReadRoot(const std::string& source, const YAML::Node& root, ControllerConfig& config) {
  int version = 0;
  CoreOptions& core = config.core;
  const auto map = [&](const std::string& name, std::map<std::string, Reader> readers) {
    return [&source, name, readers = std::move(readers)](const YAML::Node& node) {
      return ReadMap(source, node, name, readers);
    };
  };
  BitsPerSecond link_rate = core.rates.line_rate;
  WEFT_RETURN_IF_ERROR(ReadMap(
      source, root, "",
      {{"version", Number<int>(version, 1, 1)},
       {"cluster_name", Text(config.cluster_name)},
       {"listen", Parsed(config.listen, ParseEndpoint)},
       {"http", Parsed(config.http, ParseEndpoint)},
       {"state_dir", Text(config.state_dir)},
       {"run_dir", Text(config.planner.run_dir)},
       {"mode", Parsed(core.mode, ParseMode)},
       {"link_rate", Parsed(link_rate, ParseRate)},
       {"sample_interval", Duration(core.sample_interval)},
       {"switch_answers_per_s", Number<double>(config.switch_answers_per_s, 1, 1e6)}},
      {{"links", [&](const YAML::Node& node) { return ReadLinks(source, node, core.rates); }},
       {"classes", [&](const YAML::Node& node) { return ReadClasses(source, node, core.joint.dscp, config.qos); }},
       {"qos", [&](const YAML::Node& node) { return ReadQos(source, node, config.qos); }},
       {"topology", [&](const YAML::Node& node) { return ReadTopology(source, node, config.topology); }},
       {"joint", map("joint", {{"interval", Duration(core.joint.interval)},
                               {"settle", Duration(core.joint.settle)},
                               {"lease", DurationUpTo(core.joint.lease, kLongestLease)},
                               {"drift", Number<double>(core.joint.drift, 0.001, 1)},
                               {"paths", Switch(core.joint.planning.paths)},
                               {"class_gain", Number<double>(core.joint.planning.class_gain, 0, 1)},
                               {"shift_gain", Number<double>(core.joint.planning.shift_gain, -1, 1)},
                               {"profile_error", Number<double>(core.joint.planning.profile_error, 0, 0.9)},
                               {"time_shifts", Switch(core.joint.shifts)}})},
       {"cluster", [&](const YAML::Node& node) { return ReadCluster(source, node, config); }},
       {"reduction", map("reduction", ReductionReaders(config.planner.reduction))},
       {"replan", map("replan", {{"interval", Duration(core.replan_interval)},
                                 {"settle", Duration(core.settle)},
                                 {"switching_gain", Number<double>(core.planning.switching_gain, 0, 1)},
                                 {"rollback", Switch(core.rollback)},
                                 {"idle_after", Duration(core.planning.demand.idle_after)},
                                 {"silent_after", Duration(core.planning.demand.silent_after)}})},
       {"release", map("release", {{"unsubmitted_after", Duration(core.quiet_after)},
                                   {"submitted_after", Duration(core.submitted_quiet_after)}})},
       {"reshard", map("reshard", {{"cost", Duration(config.advice.change)},
                                   {"gain", Number<double>(config.advice.change_gain, 0, 1)},
                                   {"hold", Duration(core.reshard_hold)},
                                   {"retry", Duration(core.reshard_retry)}})},
       {"restart", map("restart", {{"cost", Duration(config.advice.restart)}, {"gain", Number<double>(config.advice.gain, 0, 1)}})},
       {"capacity", map("capacity", {{"window", Duration(core.monitor.window)},
                                     {"windows", Number<int>(core.monitor.windows, 1, 100)},
                                     {"explained", Number<double>(core.monitor.explained, 0.1, 0.99)},
                                     {"recovery_interval", Duration(core.monitor.recovery_interval)},
                                     {"lossy_links", Switch(core.monitor.lossy_links)}})},
       {"tls", map("tls", {{"certificate", Text(config.tls.certificate)},
                           {"key", Text(config.tls.key)},
                           {"authority", Text(config.tls.authority)},
                           {"revoked", Text(config.tls_revoked)},
                           {"viewer_tokens", Text(config.tokens.viewer)},
                           {"operator_tokens", Text(config.tokens.operators)}})}}));
  if (version != 1) return Fail(Code::kInvalidArgument, source + ":1: version: missing, expected version: 1");
  FinishQos(core.joint.dscp, config.qos);
  if (config.qos) {
    for (const v1::QosClass& entry : config.qos->classes()) core.joint.shares.push_back(entry.share());
  }
  SetLinkRate(config, link_rate);
  config.link_rate_given = root["link_rate"].IsDefined();
  return Ok();
}

}  // namespace

ControllerConfig DefaultConfig() {
  ControllerConfig config;
  planner::ClusterSpec& cluster = config.planner.cluster;
  cluster.name = "cpu hosts";
  cluster.nodes = 1;
  cluster.gpus_per_node = 1;
  if (const auto cpu = planner::FindDevice("cpu")) cluster.device = *cpu;
  cluster.intra_node_rate = GigabytesPerSecond(1);  // memory of one host; a job of one rank per host never uses it
  cluster.intra_latency = Seconds(20e-6);
  cluster.nic_latency = Seconds(200e-6);
  SetLinkRate(config, config.core.rates.line_rate);
  config.link_rate_given = false;
  return config;
}

std::vector<std::string> AssumptionsOf(const ControllerConfig& config) {
  std::vector<std::string> lines;
  if (!config.link_rate_given) {
    lines.push_back(fmt::format("link_rate is not set: links are taken to carry {}", FormatRate(config.core.rates.line_rate)));
  }
  if (!config.cluster_given) {
    const planner::ClusterSpec& cluster = config.planner.cluster;
    lines.push_back(fmt::format("cluster is not set: jobs are planned for one {} per host behind {}", cluster.device.name,
                                FormatRate(cluster.nic_rate)));
  }
  if (config.tls.empty()) {
    for (const auto& [what, at] : {std::pair("may submit and release jobs", config.listen), std::pair("may read everything", config.http)}) {
      if (!access::IsLoopback(at.host)) lines.push_back(fmt::format("tls is not set: who reaches {} {}", at.text(), what));
    }
  }
  return lines;
}

Status CheckFiles(const ControllerConfig& config) {
  if (const auto imported = ReadTopologyFiles(config.topology); !imported) return Fail(imported.error());
  const access::GateOptions gate{.tls = !config.tls.empty(), .revoked = config.tls_revoked, .tokens = config.tokens};
  WEFT_RETURN_IF_ERROR(access::Gate(gate).Load());
  if (config.tls.empty()) return Ok();
  if (const auto credentials = rpc::MakeServerCredentials(config.tls); !credentials) return Fail(credentials.error());
  return Ok();
}

void SetLinkRate(ControllerConfig& config, BitsPerSecond rate) {
  config.core.rates.line_rate = rate;
  config.link_rate_given = true;
  if (!config.cluster_rate_given) config.planner.cluster.nic_rate = rate;
}

Result<Endpoint> ParseEndpoint(std::string_view text) {
  const auto wrong = [&] {
    return Fail(Code::kInvalidArgument, fmt::format("\"{}\": expected host:port with a port from 0 to 65535", text));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong();
  Endpoint endpoint{std::string(text.substr(0, colon)), -1};
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size() || endpoint.port < 0 || endpoint.port > 65535) {
    return wrong();
  }
  return endpoint;
}

Result<v1::Mode> ParseMode(std::string_view text) {
  if (text == "observe") return v1::MODE_OBSERVE;
  if (text == "enforce") return v1::MODE_ENFORCE;
  return Fail(Code::kInvalidArgument, fmt::format("\"{}\": expected observe or enforce", text));
}

Result<ControllerConfig> ParseConfig(const std::string& text, const std::string& source_name) {
  ControllerConfig config = DefaultConfig();
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return Fail(Code::kInvalidArgument, source_name + ":1: the file is empty, expected version: 1");
    WEFT_RETURN_IF_ERROR(ReadRoot(source_name, root, config));
  } catch (const YAML::Exception& error) {
    return Fail(Code::kInvalidArgument, fmt::format("{}:{}: {}", source_name, error.mark.line + 1, error.msg));
  }
  return config;
}

Result<ControllerConfig> ReadConfig(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, formats::ReadFile(path));
  return ParseConfig(text, path);
}

std::string DescribeConfig(const ControllerConfig& config) {
  const CoreOptions& core = config.core;
  return fmt::format(
      "cluster_name={} listen={} http={} state_dir={} mode={} link_rate_bps={:.0f} links={} sample_interval_s={} "
      "replan_interval_s={} switching_gain={} capacity_window_s={} capacity_windows={} recovery_interval_s={} "
      "classes_dscp={} multi_job_interval_s={} lease_s={} time_shifts={} topology_files={} nic_rate_bps={:.0f} device={} "
      "switch_answers_per_s={} qos={} tls={}",
      config.cluster_name, config.listen.text(), config.http.text(),
      config.state_dir.empty() ? "none" : config.state_dir, core.mode == v1::MODE_OBSERVE ? "observe" : "enforce",
      core.rates.line_rate.value(), core.rates.overrides.size(), core.sample_interval.count(),
      core.replan_interval.count(), core.planning.switching_gain, core.monitor.window.count(), core.monitor.windows,
      core.monitor.recovery_interval.count(), fmt::join(core.joint.dscp, ","), core.joint.interval.count(),
      core.joint.lease.count(), core.joint.shifts ? "on" : "off", config.topology.size(), config.planner.cluster.nic_rate.value(),
      config.planner.cluster.device.name, config.switch_answers_per_s,
      config.qos ? "declared" : "not declared", config.tls.empty() ? "off" : "on");
}

}  // namespace weft::controller
