// The demo's small cluster, all of it real: a namespace fabric, one controller, one agent per managed host, and
// Prometheus where it is installed. Where no fabric can be built the same daemons stand on loopback: every "host" then has
// its agent, its run directory and an address in 127.0.0.0/8, but no wire of its own. Everything ends with the object.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/controller_client.h"
#include "common/result.h"
#include "common/units.h"
#include "testbed/fabric.h"
#include "testbed/process.h"

namespace weft::cli {

/// Where the built programs lie: `bin` and `lib` beside each other.
struct Installation {
  std::string bin, plugin, examples;

  /// Beside the running executable, with `job_program`, which the jobs are to run. Errors: kNotFound naming what is missing.
  [[nodiscard]] static Result<Installation> Find(const std::string& job_program);
};

struct ClusterOptions {
  testbed::FabricOptions fabric;
  std::vector<std::string> managed_hosts;  ///< get an agent
  std::string run_dir;                     ///< sockets, state and logs; must exist
  std::string controller_config;           ///< file, or empty; what the demo itself sets wins
  bool loopback = false;                   ///< no fabric: `managed_hosts` are processes of this machine
};

/// Bytes of every switch-to-switch link so far, by "from->to" in fabric names.
struct LinkBytes {
  std::map<std::string, int64_t> measured;  ///< by the agents' flow counters, merged by the controller
  std::map<std::string, int64_t> counted;   ///< by the switches themselves
  double unattributed = 0;                  ///< of flows whose way the controller does not know
  Seconds time{0};                          ///< when it was read
};

class DemoCluster {
 public:
  /// Errors: those of the fabric and of the daemons, each with the end of its log.
  [[nodiscard]] static Result<std::unique_ptr<DemoCluster>> Start(const Installation& installation,
                                                                  const ClusterOptions& options);

  /// Requires: not on loopback.
  testbed::Fabric& fabric() { return *fabric_; }
  ControllerClient& client() { return *client_; }
  const std::string& http() const { return http_; }              ///< "host:port" of page and metrics
  const std::string& prometheus() const { return prometheus_; }  ///< "host:port", empty when not installed
  const std::vector<std::string>& agents_http() const { return agents_http_; }  ///< "host:port" of their metrics
  const std::string& controller_address() const { return controller_address_; }
  const Installation& installation() const { return installation_; }
  /// The interface that carries the jobs' data on every host.
  const char* interface() const { return options_.loopback ? "lo" : "eth0"; }
  std::string RunDirOf(const std::string& host) const { return options_.run_dir + "/" + host; }
  const testbed::FabricHost& host(const std::string& name) const;

  /// Both counts, read one right after the other. Requires: not on loopback.
  [[nodiscard]] Result<LinkBytes> ReadLinks();
  /// Names of all metrics that controller and agents serve now.
  [[nodiscard]] Result<int64_t> CountMetrics();
  /// One of the controller's metrics without labels.
  [[nodiscard]] Result<double> ReadMetric(const std::string& name);

 private:
  DemoCluster(Installation installation, ClusterOptions options)
      : installation_(std::move(installation)), options_(std::move(options)) {}
  Status MakeHosts();
  Status StartController();
  Status StartAgent(const testbed::FabricHost& host);
  Status StartPrometheus();
  Status AwaitAgents();

  Installation installation_;
  ClusterOptions options_;
  std::unique_ptr<testbed::Fabric> fabric_;  // null on loopback
  std::vector<testbed::FabricHost> hosts_;
  std::string gateway_;  // where controller and Prometheus listen; every host reaches it
  std::vector<testbed::Process> daemons_;  // after the fabric: they end before it
  std::unique_ptr<ControllerClient> client_;
  std::string controller_address_, http_, prometheus_;
  std::vector<std::string> agents_http_;
};

}  // namespace weft::cli
