// The controller's configuration: a YAML file, then flags over it. Keys are snake_case, quantities carry their unit,
// and an unknown or doubled key is an error with file and line. controller.example.yaml names every key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "access/tokens.h"
#include "common/result.h"
#include "common/units.h"
#include "controller/core.h"
#include "controller/job_advice.h"
#include "controller/job_planner.h"
#include "controller/topology_files.h"
#include "proto/credentials.h"

namespace weft::controller {

/// A place to listen at, "host:port"; port 0 lets the system choose.
struct Endpoint {
  std::string host = "127.0.0.1";
  int port = 0;

  std::string text() const { return host + ":" + std::to_string(port); }
};

struct ControllerConfig {
  std::string cluster_name = "weft";
  Endpoint listen{"127.0.0.1", 7070};   ///< gRPC
  Endpoint http{"127.0.0.1", 7080};     ///< metrics, page, JSON
  std::string state_dir;                ///< of the journal; empty: nothing survives a restart
  double switch_answers_per_s = 100;    ///< that all hosts' probes together draw from one switch, at most
  bool mode_given = false;              ///< core.mode is of the command line
  CoreOptions core;                     ///< mode, link rates, measurement, planning
  JobPlannerOptions planner;            ///< the machines that jobs are planned for
  bool learns = true;                   ///< the cluster's constants from what iterations of its jobs take
  AdviceOptions advice;                 ///< what a restart costs, and must gain
  std::vector<TopologyFile> topology;   ///< read when the controller starts
  std::optional<v1::QosDeclaration> qos;  ///< what NICs and switches are to do with each class, where the file says it
  rpc::TlsFiles tls;
  std::string tls_revoked;              ///< list of revoked certificates; empty: none
  access::TokenFiles tokens;            ///< of HTTP, where TLS is on
  bool cluster_rate_given = false;      ///< else the planner's NIC rate is the link rate
  bool link_rate_given = false, cluster_given = false;
};

/// Defaults: enforce, 100 Mbit/s links, jobs planned for CPU hosts with one NIC of the link rate.
ControllerConfig DefaultConfig();

/// "127.0.0.1:7070", "[::1]:0". Errors: kInvalidArgument naming the text.
[[nodiscard]] Result<Endpoint> ParseEndpoint(std::string_view text);
/// "observe", "enforce". Errors: kInvalidArgument.
[[nodiscard]] Result<v1::Mode> ParseMode(std::string_view text);

/// Defaults overlaid with the file at `path`. Errors: kNotFound when it is missing; kInvalidArgument naming file, line,
/// key, value and what was expected.
[[nodiscard]] Result<ControllerConfig> ReadConfig(const std::string& path);
/// The same from text.
[[nodiscard]] Result<ControllerConfig> ParseConfig(const std::string& text, const std::string& source_name);

/// What is assumed because the configuration does not say it, though plans depend on it: a line each.
[[nodiscard]] std::vector<std::string> AssumptionsOf(const ControllerConfig& config);
/// Reads the files that the configuration names. Errors: what starting with them would be refused for.
[[nodiscard]] Status CheckFiles(const ControllerConfig& config);

/// Sets the link rate, and with it the NIC rate that jobs are planned with unless the cluster block set that.
void SetLinkRate(ControllerConfig& config, BitsPerSecond rate);

/// One line of key=value: the configuration in force.
std::string DescribeConfig(const ControllerConfig& config);

}  // namespace weft::controller
