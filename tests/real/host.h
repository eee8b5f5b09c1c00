// One host's half of enforcement without a controller: the agent's own plugin socket, policy writer and telemetry reader,
// driven by the experiment. The policy reaches the plugin as it does in production from the agent on; what the controller
// would send as protobuf is built here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agent/plugin_socket.h"
#include "agent/policy_store.h"
#include "agent/telemetry_reader.h"
#include "common/result.h"

namespace weft::real {

/// Seconds of CLOCK_MONOTONIC, the clock of bursts, windows and the steps that jobs report.
double MonotonicSeconds();

/// The sending end of a flow as its telemetry shows it.
struct SendFlow {
  v1::FlowIdentity identity;
  v1::FlowCounters counters;
};

/// Threads: one caller; the socket's own thread comes on top.
class Host {
 public:
  /// Listens in `run_dir`. Errors: those of PluginSocket::Listen.
  [[nodiscard]] static Result<std::unique_ptr<Host>> Start(const std::string& run_dir);

  /// The open sending flows of `job`'s process here, read now.
  std::vector<SendFlow> SendFlows(const std::string& job);
  /// Policy entries that plugins here have refused.
  int64_t rejected();
  [[nodiscard]] Status Apply(const v1::JobPolicy& policy);
  /// What an agent does while its session with the controller stands.
  void Renew();

 private:
  struct Process {
    std::unique_ptr<agent::TelemetryMap> map;
    std::unique_ptr<agent::TelemetryReader> reader;
  };

  Host();
  agent::PluginHandlers Handlers();

  std::mutex mutex_;  // guards the next two: the socket's thread adds and removes processes
  agent::PolicyStore policies_;
  std::map<uint64_t, Process> processes_;
  std::unique_ptr<agent::PluginSocket> socket_;  // last: it calls into the rest
};

}  // namespace weft::real
