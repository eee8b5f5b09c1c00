// weft-agent: one per host. See agent.h for what it does; this file reads the command line and waits for a signal.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "agent/agent.h"
#include "agent/config.h"
#include "agent/interfaces.h"
#include "agent/probe/command.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/parse_units.h"
#include "proto/credentials.h"

namespace weft::agent {
namespace {

/// Flags as given; what is not given leaves the file's word or the default.
struct Flags {
  std::string config_file;
  std::optional<std::string> host, run_dir, controller, http, interfaces, sample_interval, report_interval;
  std::optional<std::string> reprobe_interval, log_level, tls_certificate, tls_key, tls_authority;
  std::optional<int> probe_candidates;
  bool check_config = false;
};

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> items;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    if (!item.empty()) items.push_back(item);
  }
  return items;
}

Status SetDuration(const char* flag, const std::optional<std::string>& text, Seconds* to) {
  if (!text) return Ok();
  Result<Seconds> parsed = ParseDuration(*text);
  if (!parsed) return Fail(parsed.error().WithContext(flag));
  *to = *parsed;
  return Ok();
}

Result<AgentConfig> Effective(const Flags& flags) {
  AgentConfig config;
  if (!flags.config_file.empty()) WEFT_RETURN_IF_ERROR(LoadConfigFile(flags.config_file, &config));
  config.host = flags.host.value_or(config.host);
  config.run_dir = flags.run_dir.value_or(config.run_dir);
  config.controller = flags.controller.value_or(config.controller);
  config.http = flags.http.value_or(config.http);
  if (flags.interfaces) config.interfaces = SplitList(*flags.interfaces);
  config.log_level = flags.log_level.value_or(config.log_level);
  config.tls_certificate = flags.tls_certificate.value_or(config.tls_certificate);
  config.tls_key = flags.tls_key.value_or(config.tls_key);
  config.tls_authority = flags.tls_authority.value_or(config.tls_authority);
  config.probe_candidates = flags.probe_candidates.value_or(config.probe_candidates);
  WEFT_RETURN_IF_ERROR(SetDuration("--sample-interval", flags.sample_interval, &config.sample_interval));
  WEFT_RETURN_IF_ERROR(SetDuration("--report-interval", flags.report_interval, &config.report_interval));
  WEFT_RETURN_IF_ERROR(SetDuration("--reprobe-interval", flags.reprobe_interval, &config.reprobe_interval));
  WEFT_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

void LogEffective(const AgentConfig& config) {
  LogInfo("agent", "configuration",
          {{"host", config.host},
           {"run_dir", config.run_dir},
           {"controller", config.controller},
           {"http", config.http},
           {"interfaces", fmt::format("{}", fmt::join(config.interfaces, ","))},
           {"sample_interval_s", config.sample_interval.count()},
           {"report_interval_s", config.report_interval.count()},
           {"probe_candidates", config.probe_candidates},
           {"reprobe_interval_s", config.reprobe_interval.count()},
           {"qos", config.qos_apply ? "apply" : "report"},
           {"silent_lanes", config.move_silent_lanes ? "move" : "wait"},
           {"log_level", config.log_level},
           {"tls", config.tls_certificate.empty() ? "off" : "on"}});
}

int Complain(const Error& error) {
  fmt::print(stderr, "weft-agent: {}\n", error.message());
  return ExitCodeOf(error);
}

/// Every process of the host takes two descriptors.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// What starting would be refused for: files and interfaces.
Status CheckHost(const AgentConfig& config) {
  if (const auto found = DiscoverInterfaces(config.interfaces); !found) return Fail(found.error());
  const rpc::TlsFiles tls{config.tls_certificate, config.tls_key, config.tls_authority};
  if (const Status readers = Exporter::Check(config); !readers) return readers;
  if (tls.empty()) return Ok();
  if (const auto credentials = rpc::MakeChannelCredentials(tls); !credentials) return Fail(credentials.error());
  return Ok();
}

int RunAgent(const Flags& flags) {
  const Result<AgentConfig> config = Effective(flags);
  if (!config) return Complain(config.error());
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                  {"info", LogLevel::kInfo},
                                                  {"warn", LogLevel::kWarn},
                                                  {"error", LogLevel::kError}};
  SetLogLevel(levels.at(config->log_level));
  LogEffective(*config);
  if (const auto http = SplitHostPort(config->http); http && config->tls_certificate.empty() && !access::IsLoopback(http->first)) {
    LogWarn("agent", fmt::format("tls is not set: who reaches {} may read everything", config->http));
  }
  if (flags.check_config) {
    const Status can_start = CheckHost(*config);
    return can_start ? kExitDone : Complain(can_start.error());
  }

  // Blocked before the first thread starts, so that every thread inherits it and only sigwait sees them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();

  Result<std::unique_ptr<Agent>> agent = Agent::Start(*config, WEFT_VERSION);
  if (!agent) return Complain(agent.error());
  const nlohmann::ordered_json ready = {{"socket", (*agent)->socket_path()}, {"http", (*agent)->http_address()}};
  fmt::print("{}\n", ready.dump());
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&ends, &signal);
  LogInfo("agent", "stopping", {{"signal", signal}});
  return kExitDone;
}

int RunProbe(const ProbeCommand& command) {
  const Result<std::string> text = RunProbeCommand(command);
  if (!text) return Complain(text.error());
  fmt::print("{}", *text);
  return kExitDone;
}

void AddAgentFlags(CLI::App& app, Flags& flags) {
  app.add_option("--config", flags.config_file, "YAML file; flags win over it");
  app.add_option("--host", flags.host, "this host's name in the cluster");
  app.add_option("--run-dir", flags.run_dir, "directory of agent.sock");
  app.add_option("--controller", flags.controller, "HOST:PORT of the controller");
  app.add_option("--http", flags.http, "ADDR:PORT of /metrics and /healthz (default 127.0.0.1:0, any port)");
  app.add_option("--interfaces", flags.interfaces, "data interfaces, e.g. eth0,eth1 (default: all but loopback)");
  app.add_option("--sample-interval", flags.sample_interval, "between two looks at the plugins (default 100ms)");
  app.add_option("--report-interval", flags.report_interval, "between two samples to the controller (default 200ms)");
  app.add_option("--probe-candidates", flags.probe_candidates, "source ports tried per flow (default 12)");
  app.add_option("--reprobe-interval", flags.reprobe_interval, "probe every flow again so often (default 1min; 0s: only at signs that paths changed)");
  app.add_option("--log-level", flags.log_level, "debug, info, warn or error");
  app.add_option("--tls-certificate", flags.tls_certificate, "PEM file; with --tls-key and --tls-authority");
  app.add_option("--tls-key", flags.tls_key, "PEM file");
  app.add_option("--tls-authority", flags.tls_authority, "PEM file");
  app.add_flag("--check-config", flags.check_config, "check the configuration, log it and exit");
}

void AddProbeFlags(CLI::App& app, ProbeCommand& probe) {
  app.add_option("--source", probe.source, "own IPv4 address")->required();
  app.add_option("--destination", probe.destination, "IPv4 address")->required();
  app.add_option("--port", probe.port, "destination port")->required();
  app.add_option("--ports", probe.ports, "source ports, e.g. 41000,41001")->required()->delimiter(',');
  app.add_option("--output", probe.output, "table or json");
}

int Main(int argc, char** argv) {
  CLI::App app("Weft's agent: one per host");
  app.set_version_flag("--version", std::string("weft-agent ") + WEFT_VERSION);
  Flags flags;
  ProbeCommand probe;
  AddAgentFlags(app, flags);
  CLI::App* const probing =
      app.add_subcommand("probe", "show which way connections with the given source ports would go");
  AddProbeFlags(*probing, probe);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(e);  // --help
    fmt::print(stderr, "weft-agent: {} (see weft-agent --help)\n", e.what());
    return kExitUsage;
  }
  return probing->parsed() ? RunProbe(probe) : RunAgent(flags);
}

}  // namespace
}  // namespace weft::agent

int main(int argc, char** argv) { return weft::agent::Main(argc, argv); }
