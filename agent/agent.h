// The agent of one host: who calls whom. Threads: the plugin socket, the sampler (here), the path prober, the
// controller's session, the metrics server, the QoS settings' watch. What they share lies behind one mutex; none holds it while it
// waits.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "agent/collective_reader.h"
#include "agent/config.h"
#include "agent/controller_client.h"
#include "agent/exporter.h"
#include "agent/interfaces.h"
#include "agent/metrics.h"
#include "agent/observation_reader.h"
#include "agent/plugin_socket.h"
#include "agent/policy_store.h"
#include "agent/probe/prober.h"
#include "agent/profile_switch.h"
#include "agent/qos/watch.h"
#include "agent/telemetry_reader.h"
#include "agent/user_quotas.h"
#include "common/log_budget.h"
#include "common/result.h"

namespace weft::agent {

class Agent {
 public:
  /// Everything that can fail fails here; no controller need be there. Without CAP_NET_RAW it runs without probes.
  /// Errors: those of DiscoverInterfaces, PluginSocket::Listen, Exporter::Start and ControllerClient::Start.
  /// Requires: CheckConfig(config) holds.
  [[nodiscard]] static Result<std::unique_ptr<Agent>> Start(const AgentConfig& config, const std::string& version);
  ~Agent();

  const std::string& socket_path() const { return socket_->path(); }
  const std::string& http_address() const { return exporter_->address(); }

 private:
  struct Process {
    Peer peer;
    std::unique_ptr<TelemetryMap> map;
    std::unique_ptr<TelemetryReader> reader;
    std::unique_ptr<ObservationReader> observations;
    std::unique_ptr<CollectiveReader> collectives;
  };

  Agent(const AgentConfig& config, const std::string& version);

  Exporter::Handlers MakeExporterHandlers();
  PluginHandlers MakePluginHandlers();
  ControllerHandlers MakeControllerHandlers();
  Result<UniqueFd> OnAttach(const Peer& peer, std::unique_ptr<TelemetryMap> map);
  void OnDetach(const Peer& peer);
  Result<std::optional<std::string>> OnEnvironment(const Peer& peer, const std::string& job, const std::string& host);
  Result<std::optional<std::string>> OnStrategy(const Peer& peer, const std::string& job, const std::string& host,
                                                const StrategyNews& news);
  bool OnWelcome(const v1::Welcome& welcome);
  void OnHeartbeat(const v1::Heartbeat& heartbeat);
  void OnProbeAgain(const v1::ProbeAgain& again);
  void OnPolicy(const v1::JobPolicy& policy);
  void OnLaunch(const v1::JobLaunch& launch);  // with mutex_ held
  void OnTrace(const TraceReport& trace);
  void StartQos();
  void StopQos();
  void OnQosDeclared(const v1::QosDeclaration& declared);
  void OnQosCommand(const v1::QosCommand& command);
  v1::Register Registration();
  v1::Register RegistrationLocked();  // with mutex_ held
  std::string MetricsText();

  void RunSampler(const std::stop_token& stop);
  // The following with mutex_ held.
  void SampleTelemetry();
  void FollowFlows(Process& process);
  /// Tells the prober whose paths are wanted first.
  void PreferCarryingFlows();
  void Observe(uint64_t now_ns);
  void ObserveStalls(const Process& process, uint64_t now_ns);
  void TellStall(const std::string& job, const StallNews& news);
  void ObserveSilence(const Process& process, uint64_t now_ns);
  /// Ranks of this host that others wait for, by job.
  std::map<std::string, int64_t> FindSlowRanks(uint64_t now_ns);
  void ObservePolicies();
  void Report();
  void RenewLeases();
  void FollowInterfaces();
  void ReadNics(v1::HostSample* sample);
  void UpdateJobMetrics();
  void TellShortages(v1::HostSample* sample);
  void StartTrace(const Process& process, const SendFlow& flow);
  /// Takes a process's traffic into the metrics, and says what was over its user's quotas.
  void CountTraffic(Process& process);
  /// Counts what is not followed or probed; whether a line about it may be logged.
  bool CountLeftAlone(const char* what, int64_t count);
  void TellOverQuota(const Peer& peer, const char* what, int64_t count);
  void TellFlowsOfOthers(const Peer& peer, int64_t count);

  const AgentConfig config_;
  const std::string version_;
  const int64_t incarnation_;  // wall-clock milliseconds at the start
  Metrics metrics_;

  std::mutex mutex_;  // guards what follows, up to the next blank line
  std::condition_variable_any changed_;
  bool policy_came_ = false;
  std::vector<InterfaceInfo> interfaces_;
  std::vector<std::string> interface_names_;
  bool interfaces_missing_ = false;        // said once
  struct {
    int64_t incarnation = 0;
    uint64_t heard_ns = 0;                 // of it, last
    bool beats = false;                    // it sends heartbeats, which leases follow
  } controller_;                           // newest that was obeyed
  Seconds report_interval_;
  UserQuotas quotas_;                      // before processes_, whose readers count in it
  LogBudget quota_lines_{20};              // by why a flow is left alone
  std::map<uint64_t, Process> processes_;  // by connection
  PolicyStore policies_;
  v1::HostSample left_behind_;             // news of processes that are gone, and policies applied
  std::map<uint64_t, v1::PathReport> paths_;  // newest report of each open send flow
  std::map<uint64_t, std::vector<uint16_t>> lane_ports_;  // of each open send flow
  std::set<uint64_t> carrying_;            // as the prober was told
  std::set<std::string> jobs_shown_;
  std::map<std::string, v1::Shortage> shortages_;  // as told, by job
  std::map<std::string, v1::Shortage> gone_short_; // of processes that are gone
  std::map<std::string, v1::StrategyNews> strategies_;  // newest word of rank 0, by job of which the controller has told
  std::map<std::string, v1::StrategyNews> strategies_untold_;  // those that the next report takes, also of jobs that are gone
  ProfileSwitch profile_;
  std::set<std::string> straggles_told_;
  LogBudget trouble_lines_{20};            // by job: what plugins say decides how often there is something to log
  bool ipv6_said_ = false;
  std::unique_ptr<ControllerClient> client_;
  std::unique_ptr<PathProber> prober_;
  std::unique_ptr<QosWatch> qos_;

  std::unique_ptr<Exporter> exporter_;
  std::unique_ptr<PluginSocket> socket_;
  std::jthread sampler_;
};

}  // namespace weft::agent
