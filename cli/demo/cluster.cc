#include "cli/demo/cluster.h"

#include <fmt/format.h>
#include <httplib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cli/demo/free_port.h"
#include "common/clock.h"
#include "common/check.h"

namespace weft::cli {
namespace {

using testbed::Output;
using testbed::Process;
namespace fs = std::filesystem;

constexpr int kAgentHttpPort = 9464;
constexpr Seconds kReadyTimeout{20};

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last.empty() ? "no output" : last;
}

/// Starts a daemon and reads the JSON line that says it is ready.
Result<std::pair<Process, nlohmann::json>> StartDaemon(const std::string& name, std::vector<std::string> argv,
                                                       const std::string& netns, const std::string& log) {
  WEFT_ASSIGN_OR_RETURN(Process process, testbed::Spawn({.argv = std::move(argv),
                                                         .netns = netns,
                                                         .out = Output::Pipe(),
                                                         .err = Output::File(log)}));
  const auto line = process.out_lines()->Next(kReadyTimeout);
  if (!line || !line->has_value()) {
    return Fail(Code::kFailedPrecondition, fmt::format("start {}: {}", name, LastLine(log)));
  }
  auto ready = nlohmann::json::parse(**line, nullptr, false);
  if (!ready.is_object()) return Fail(Code::kInternal, fmt::format("start {}: unexpected \"{}\"", name, **line));
  return std::pair(std::move(process), std::move(ready));
}

}  // namespace

Result<Installation> Installation::Find(const std::string& job_program) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path bin = self.parent_path(), root = bin.parent_path();
  Installation found{bin, root / "lib/libnccl-net-weft.so", bin / "examples"};
  for (const fs::path& path : {bin / "weft-controller", bin / "weft-agent", bin / job_program,
                               fs::path(found.plugin), fs::path(found.examples) / "gpt2.json"}) {
    if (!fs::exists(path)) {
      return Fail(Code::kNotFound, fmt::format("find the programs of the demo: \"{}\" is missing; build the target "
                                               "weft_demo_programs",
                                               path.string()));
    }
  }
  return found;
}

Result<std::unique_ptr<DemoCluster>> DemoCluster::Start(const Installation& installation,
                                                        const ClusterOptions& options) {
  std::unique_ptr<DemoCluster> cluster(new DemoCluster(installation, options));
  WEFT_RETURN_IF_ERROR(cluster->MakeHosts());
  WEFT_RETURN_IF_ERROR(cluster->StartController());
  for (const auto& name : options.managed_hosts) WEFT_RETURN_IF_ERROR(cluster->StartAgent(cluster->host(name)));
  WEFT_RETURN_IF_ERROR(cluster->AwaitAgents());
  WEFT_RETURN_IF_ERROR(cluster->StartPrometheus());
  return cluster;
}

Status DemoCluster::MakeHosts() {
  if (!options_.loopback) {
    WEFT_ASSIGN_OR_RETURN(fabric_, testbed::Fabric::Create(options_.fabric));
    hosts_ = {fabric_->hosts().begin(), fabric_->hosts().end()};
    gateway_ = fabric_->mgmt_gateway();
    return Ok();
  }
  // A network of its own in 127.0.0.0/8, by the process's number, so that two demos may stand side by side.
  const std::string network = fmt::format("127.{}.{}", 1 + (::getpid() >> 8) % 254, ::getpid() & 0xff);
  gateway_ = network + ".1";
  for (const auto& name : options_.managed_hosts) {
    const std::string address = fmt::format("{}.{}", network, hosts_.size() + 2);
    hosts_.push_back({.name = name,
                      .netns = "",
                      .leaf = "",
                      .data_address = "127.0.0.1",
                      .gateway = "",
                      .mgmt_address = address});
  }
  return Ok();
}

const testbed::FabricHost& DemoCluster::host(const std::string& name) const {
  for (const auto& host : hosts_) {
    if (host.name == name) return host;
  }
  CheckFailed(__FILE__, __LINE__, "host exists", name);
}

Status DemoCluster::StartController() {
  const std::string state = options_.run_dir + "/controller";
  std::vector<std::string> command = {installation_.bin + "/weft-controller", "--listen", gateway_ + ":0", "--http", gateway_ + ":0",
                                      "--state-dir", state, "--mode", "observe", "--link-rate",
                                      fmt::format("{:.0f}bit/s", options_.fabric.link_rate.value())};
  if (!options_.controller_config.empty()) command.insert(command.end(), {"--config", options_.controller_config});
  WEFT_ASSIGN_OR_RETURN(auto started, StartDaemon("controller", command, "", options_.run_dir + "/controller.log"));
  daemons_.push_back(std::move(started.first));
  controller_address_ = started.second.value("listen", "");
  http_ = started.second.value("http", "");
  WEFT_ASSIGN_OR_RETURN(client_, ControllerClient::Connect({.address = controller_address_}));
  return Ok();
}

Status DemoCluster::StartAgent(const testbed::FabricHost& host) {
  // A host of the fabric has its ports to itself; on loopback the port could be somebody else's.
  const std::string http = fmt::format("{}:{}", host.mgmt_address, options_.loopback ? 0 : kAgentHttpPort);
  WEFT_ASSIGN_OR_RETURN(auto started,
                        StartDaemon("agent of " + host.name,
                                    {installation_.bin + "/weft-agent", "--host", host.name, "--run-dir",
                                     RunDirOf(host.name), "--controller", controller_address_, "--http", http,
                                     "--interfaces", interface()},
                                    host.netns, fmt::format("{}/agent-{}.log", options_.run_dir, host.name)));
  daemons_.push_back(std::move(started.first));
  agents_http_.push_back(started.second.value("http", http));
  return Ok();
}

Status DemoCluster::AwaitAgents() {
  for (int attempt = 0; attempt < 200; ++attempt) {
    WEFT_ASSIGN_OR_RETURN(const auto topology, client_->GetTopology());
    size_t connected = 0;
    for (const auto& host : topology.hosts()) connected += host.connected() ? 1 : 0;
    if (connected == options_.managed_hosts.size()) return Ok();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Fail(Code::kDeadlineExceeded, "not all agents reached the controller within 10 s");
}

Status DemoCluster::StartPrometheus() {
  if (::access("/usr/bin/prometheus", X_OK) != 0) return Ok();
  const std::string config = options_.run_dir + "/prometheus.yml";
  std::ofstream file(config);
  file << "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: weft-controller\n    static_configs:\n"
       << "      - targets: [\"" << http_ << "\"]\n  - job_name: weft-agent\n    static_configs:\n      - targets: [";
  for (size_t i = 0; i < agents_http_.size(); ++i) file << (i ? ", " : "") << '"' << agents_http_[i] << '"';
  file << "]\n";
  file.close();
  // Debian's own Prometheus, where it runs, has port 9090 of all addresses.
  WEFT_ASSIGN_OR_RETURN(const int port, FreePort(gateway_));
  const std::string address = fmt::format("{}:{}", gateway_, port);
  auto started = testbed::Spawn({.argv = {"/usr/bin/prometheus", "--config.file=" + config,
                                          "--storage.tsdb.path=" + options_.run_dir + "/prometheus",
                                          "--web.listen-address=" + address},
                                 .out = Output::Null(),
                                 .err = Output::File(options_.run_dir + "/prometheus.log")});
  if (!started) return Fail(started.error());
  daemons_.push_back(std::move(*started));
  httplib::Client client("http://" + address);
  for (int attempt = 0; attempt < 200; ++attempt) {
    if (!daemons_.back().Running()) break;
    if (const auto ready = client.Get("/-/ready"); ready && ready->status == 200) {
      prometheus_ = address;
      return Ok();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Fail(Code::kFailedPrecondition,
              fmt::format("start Prometheus at {}: {}", address, LastLine(options_.run_dir + "/prometheus.log")));
}

Result<LinkBytes> DemoCluster::ReadLinks() {
  std::map<std::string, std::string> names;  // identity address -> fabric name
  for (const auto& node : fabric_->leaves()) names[node.identity] = node.name;
  for (const auto& node : fabric_->spines()) names[node.identity] = node.name;
  LinkBytes bytes;
  WEFT_ASSIGN_OR_RETURN(const auto counters, fabric_->ReadCounters());
  WEFT_ASSIGN_OR_RETURN(const auto topology, client_->GetTopology());
  const auto links = fabric_->links();
  for (size_t i = 0; i < links.size(); ++i) {
    const bool between_switches = links[i].from.front() != 'h' && links[i].to.front() != 'h';
    if (between_switches) bytes.counted[links[i].from + "->" + links[i].to] = counters[i].bytes;
  }
  for (const auto& link : topology.links()) {
    const auto from = names.find(link.from()), to = names.find(link.to());
    if (from == names.end() || to == names.end()) continue;
    bytes.measured[from->second + "->" + to->second] = link.carried_bytes();
  }
  WEFT_ASSIGN_OR_RETURN(bytes.unattributed, ReadMetric("weft_controller_unattributed_bytes"));
  bytes.time = SystemClock().Now();
  return bytes;
}

Result<double> DemoCluster::ReadMetric(const std::string& name) {
  httplib::Client client("http://" + http_);
  client.set_read_timeout(3);
  const auto response = client.Get("/metrics");
  if (!response || response->status != 200) return Fail(Code::kUnavailable, fmt::format("scrape http://{}/metrics", http_));
  std::istringstream text(response->body);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with(name + " ")) return std::strtod(line.c_str() + name.size(), nullptr);
  }
  return Fail(Code::kNotFound, fmt::format("http://{}/metrics has no {}", http_, name));
}

Result<int64_t> DemoCluster::CountMetrics() {
  std::vector<std::string> targets = agents_http_;
  targets.push_back(http_);
  std::set<std::string> names;
  for (const auto& target : targets) {
    httplib::Client client("http://" + target);
    client.set_read_timeout(3);
    const auto response = client.Get("/metrics");
    if (!response || response->status != 200) {
      return Fail(Code::kUnavailable, fmt::format("scrape http://{}/metrics", target));
    }
    std::istringstream text(response->body);
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("# TYPE ")) names.insert(line.substr(7, line.find(' ', 7) - 7));
    }
  }
  return static_cast<int64_t>(names.size());
}

}  // namespace weft::cli
