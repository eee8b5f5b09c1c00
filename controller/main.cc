// weft-controller: configuration, the shells around the core, and an orderly end.
#include <fmt/format.h>
#include <pthread.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/parse_units.h"
#include "controller/config.h"
#include "controller/control_loop.h"
#include "controller/http_server.h"
#include "controller/service.h"

namespace weft::controller {
namespace {

constexpr auto kTickInterval = std::chrono::milliseconds(100);

/// What the command line says; empty where it says nothing.
struct Flags {
  std::string config, listen, http, state_dir, link_rate, mode;
  rpc::TlsFiles tls;
  bool check_config = false;
};

Result<ControllerConfig> EffectiveConfig(const Flags& flags) {
  ControllerConfig config = DefaultConfig();
  if (!flags.config.empty()) {
    WEFT_ASSIGN_OR_RETURN(config, ReadConfig(flags.config));
  }
  const auto flag = [](const char* name, auto result) {
    if (!result) result = Fail(result.error().WithContext(name));
    return result;
  };
  if (!flags.listen.empty()) {
    WEFT_ASSIGN_OR_RETURN(config.listen, flag("--listen", ParseEndpoint(flags.listen)));
  }
  if (!flags.http.empty()) {
    WEFT_ASSIGN_OR_RETURN(config.http, flag("--http", ParseEndpoint(flags.http)));
  }
  if (!flags.link_rate.empty()) {
    WEFT_ASSIGN_OR_RETURN(const BitsPerSecond rate, flag("--link-rate", ParseRate(flags.link_rate)));
    SetLinkRate(config, rate);
  }
  if (!flags.mode.empty()) {
    WEFT_ASSIGN_OR_RETURN(config.core.mode, flag("--mode", ParseMode(flags.mode)));
    config.mode_given = true;
  }
  if (!flags.state_dir.empty()) config.state_dir = flags.state_dir;
  if (!flags.tls.certificate.empty()) config.tls.certificate = flags.tls.certificate;
  if (!flags.tls.key.empty()) config.tls.key = flags.tls.key;
  if (!flags.tls.authority.empty()) config.tls.authority = flags.tls.authority;
  return config;
}

/// Calls loop->Tick() until stopped.
void RunTimer(std::stop_token stop, ControlLoop* loop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    loop->Tick();
    wake.wait_for(lock, stop, kTickInterval, [] { return false; });
  }
}

Status Serve(const ControllerConfig& config, const sigset_t& signals) {
  LogInfo("controller", "configuration", {{"effective", DescribeConfig(config)}});
  std::unique_ptr<Journal> journal;
  if (!config.state_dir.empty()) {
    WEFT_ASSIGN_OR_RETURN(journal, Journal::Open(config.state_dir));
  }
  CoreOptions core = config.core;
  WEFT_ASSIGN_OR_RETURN(core.imported, ReadTopologyFiles(config.topology));
  SystemClock clock;
  Metrics metrics;
  ControlLoop loop({.core = core, .planner = config.planner, .cluster_name = config.cluster_name, .advice = config.advice,
                    .switch_answers_per_s = config.switch_answers_per_s, .qos = config.qos, .learns = config.learns, .mode_given = config.mode_given},
                   std::move(journal), &clock, &metrics);
  WEFT_RETURN_IF_ERROR(loop.Recover());
  WEFT_ASSIGN_OR_RETURN(const auto http, HttpServer::Start(config.http, &loop, {config.tls, config.tls_revoked, config.tokens}));
  WEFT_ASSIGN_OR_RETURN(const auto server, GrpcServer::Start(config.listen, config.tls, &loop, config.tls_revoked));
  const std::jthread timer(RunTimer, &loop);
  fmt::print("{{\"listen\":\"{}:{}\",\"http\":\"{}:{}\"}}\n", config.listen.host, server->port(), config.http.host,
             http->port());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  LogInfo("controller", "stopping", {{"signal", signal}});
  return Ok();
}

int Report(const Error& error, int code) {
  fmt::print(stderr, "weft-controller: {}\n", error.message());
  return code;
}

int Main(int argc, char** argv) {
  CLI::App app{"Plans jobs, watches the fabric and steers the flows of all jobs."};
  Flags flags;
  app.add_option("--config", flags.config, "YAML file; flags win over it");
  app.add_option("--listen", flags.listen, "host:port for agents, hooks and tools; port 0: any (127.0.0.1:7070)");
  app.add_option("--http", flags.http, "host:port for metrics, page and JSON; port 0: any (127.0.0.1:7080)");
  app.add_option("--state-dir", flags.state_dir, "folder of the journal; without it jobs are forgotten at a restart");
  app.add_option("--link-rate", flags.link_rate, "rate of the fabric's links, e.g. 100Mbit/s");
  app.add_option("--mode", flags.mode, "observe or enforce; observe holds whatever was set before, enforce does not undo an observe that was");
  app.add_option("--tls-certificate", flags.tls.certificate, "PEM file of the own certificate chain");
  app.add_option("--tls-key", flags.tls.key, "PEM file of the own key");
  app.add_option("--tls-authority", flags.tls.authority, "PEM file that agents' certificates must be signed by");
  app.add_flag("--check-config", flags.check_config, "only check the configuration and print it");
  app.set_version_flag("--version", "weft-controller " WEFT_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);  // --help
    fmt::print(stderr, "weft-controller: {} (see weft-controller --help)\n", error.what());
    return kExitUsage;
  }
  const Result<ControllerConfig> config = EffectiveConfig(flags);
  if (!config) return Report(config.error(), kExitUsage);
  for (const std::string& line : AssumptionsOf(*config)) LogWarn("controller", line);
  if (flags.check_config) {
    if (const Status files = CheckFiles(*config); !files) return Report(files.error(), kExitUsage);
    fmt::print("{}\n", DescribeConfig(*config));
    return kExitDone;
  }
  // Before any thread exists, so that all inherit it and the signals reach only sigwait.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const Status status = Serve(*config, signals);
  if (!status) return Report(status.error(), ExitCodeOf(status.error()));
  return kExitDone;
}

}  // namespace
}  // namespace weft::controller

int main(int argc, char** argv) { return weft::controller::Main(argc, argv); }
