#include "agent/agent.h"

#include <algorithm>
#include <chrono>

#include "agent/monotonic.h"
#include "common/clock.h"
#include "common/log.h"

namespace weft::agent {
namespace {

// While a policy waits to be read, how closely and how long it is watched.
constexpr Seconds kWatchInterval{0.005};
constexpr uint64_t kWatchForNs = 1'000'000'000;
constexpr int64_t kCarriesPart = 16;  // a flow that has sent less than this part of its process's largest is idle
constexpr uint64_t kMostShort = uint64_t{1} << 40;  // of a process: more is nonsense
// For controllers without heartbeats: leases hold for kRenewedLeaseNs only, however seldom samples and reports are.
constexpr Seconds kRenewInterval{1};
constexpr Seconds kInterfacesInterval{5};

int64_t WallMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

v1::PathReport ToProto(const TraceReport& trace) {
  v1::PathReport report;
  report.set_flow(trace.flow);
  report.set_local_address(FormatIpv4(trace.source));
  report.set_peer_address(FormatIpv4(trace.destination));
  report.set_peer_port(trace.destination_port);
  report.set_hop_count(trace.hop_count);
  for (const TracedPath& path : trace.paths) {
    v1::Path* out = report.add_paths();
    out->set_source_port(path.source_port);
    for (const Ipv4 hop : path.hops) out->add_hops(hop == 0 ? "" : FormatIpv4(hop));
    out->set_complete(path.complete);
  }
  return report;
}

/// A tenant's own counters, which may say anything.
void AddShortage(const abi::ProcessInfo& process, v1::Shortage* to) {
  const auto add = [](int64_t now, const std::atomic<uint64_t>& counter) {
    return now + static_cast<int64_t>(std::min<uint64_t>(counter.load(std::memory_order_relaxed), kMostShort));
  };
  to->set_flows_dropped(add(to->flows_dropped(), process.flows_dropped));
  to->set_policy_rejected(add(to->policy_rejected(), process.policy_rejected));
}

}  // namespace

Agent::Agent(const AgentConfig& config, const std::string& version)
    : config_(config),
      version_(version),
      incarnation_(WallMs()),
      metrics_(version, config.host),
      report_interval_(config.report_interval),
      quotas_(config.quotas),
      policies_(MonotonicNs),
      profile_(config.run_dir + "/profile") {}

Result<std::unique_ptr<Agent>> Agent::Start(const AgentConfig& config, const std::string& version) {
  std::unique_ptr<Agent> agent(new Agent(config, version));
  WEFT_ASSIGN_OR_RETURN(agent->interfaces_, DiscoverInterfaces(config.interfaces));
  for (const InterfaceInfo& interface : agent->interfaces_) agent->interface_names_.push_back(interface.name);
  WEFT_ASSIGN_OR_RETURN(agent->socket_, PluginSocket::Listen(config.run_dir, agent->MakePluginHandlers()));
  Agent* const raw = agent.get();
  WEFT_ASSIGN_OR_RETURN(agent->exporter_, Exporter::Start(config, raw->MakeExporterHandlers()));

  TracerOptions tracing;
  tracing.max_candidates = config.probe_candidates;
  tracing.reprobe_interval = config.reprobe_interval;
  auto prober = PathProber::Start(tracing, [raw](const TraceReport& trace) { raw->OnTrace(trace); });
  if (!prober) LogWarn("agent", "path probing is off", {{"reason", prober.error().message()}});
  {
    // The handlers wait for this lock until client_ and prober_ are in their places.
    const std::lock_guard lock(agent->mutex_);
    if (prober) agent->prober_ = std::move(*prober);
    WEFT_ASSIGN_OR_RETURN(
        agent->client_,
        ControllerClient::Start(
            {.address = config.controller, .tls = {config.tls_certificate, config.tls_key, config.tls_authority}},
            agent->MakeControllerHandlers()));
    agent->StartQos();
  }
  agent->sampler_ = std::jthread([raw](const std::stop_token& stop) { raw->RunSampler(stop); });
  return agent;
}

Agent::~Agent() {
  // Whoever calls goes before whom it calls.
  sampler_ = {};
  socket_.reset();
  exporter_.reset();
  StopQos();
  prober_.reset();
  if (client_) client_->Stop();  // its handlers use client_
}

Exporter::Handlers Agent::MakeExporterHandlers() {
  return {.metrics = [this] { return MetricsText(); }, .refused = [this](const char* why) { metrics_.AddRefusedRequest(why); }};
}

PluginHandlers Agent::MakePluginHandlers() {
  return {.attach = [this](const Peer& peer,
                           std::unique_ptr<TelemetryMap> map) { return OnAttach(peer, std::move(map)); },
          .detach = [this](const Peer& peer) { OnDetach(peer); },
          .environment =
              [this](const Peer& peer, const std::string& job, const std::string& host) { return OnEnvironment(peer, job, host); },
          .strategy = [this](const Peer& peer, const std::string& job, const std::string& host,
                             const StrategyNews& news) { return OnStrategy(peer, job, host, news); },
          .take_unsent = config_.move_silent_lanes ? &TakeUnsent : nullptr,
          .silent_lane = [this](bool moved) { metrics_.AddSilentLane(moved); },
          .rejected = [this](const char* label) { metrics_.AddRejectedPeer(label); }};
}

ControllerHandlers Agent::MakeControllerHandlers() {
  return {.registration = [this] { return Registration(); },
          .welcome = [this](const v1::Welcome& welcome) { return OnWelcome(welcome); },
          .policy = [this](const v1::JobPolicy& policy) { OnPolicy(policy); },
          .launch =
              [this](const v1::JobLaunch& launch) {
                const std::lock_guard lock(mutex_);
                OnLaunch(launch);
              },
          .ended =
              [this](const std::string& job) {
                const std::lock_guard lock(mutex_);
                policies_.Ended(job);
                strategies_.erase(job);
                LogInfo("agent", "job ended", {{"job", job}});
              },
          .heartbeat = [this](const v1::Heartbeat& heartbeat) { OnHeartbeat(heartbeat); },
          .probe_again = [this](const v1::ProbeAgain& again) { OnProbeAgain(again); },
          .qos_declared = [this](const v1::QosDeclaration& declared) { OnQosDeclared(declared); },
          .qos_command = [this](const v1::QosCommand& command) { OnQosCommand(command); },
          .lost = [] {}};
}

Result<UniqueFd> Agent::OnAttach(const Peer& peer, std::unique_ptr<TelemetryMap> map) {
  const std::lock_guard lock(mutex_);
  WEFT_RETURN_IF_ERROR(quotas_.TakeSegment(peer.uid, map->bytes()));
  Result<UniqueFd> policy = policies_.Attach(map->job(), peer.uid, map->segment_version());
  if (!policy) {
    quotas_.ReturnSegment(peer.uid, map->bytes());
    return policy;
  }
  LogInfo("agent", "process attached",
          {{"pid", peer.pid}, {"own_pid", map->stated_pid()}, {"uid", peer.uid}, {"job", map->job()},
           {"rank", map->process().rank}});
  auto reader = std::make_unique<TelemetryReader>(*map, &quotas_, peer.uid);
  auto observations = std::make_unique<ObservationReader>(map->observations(), map->background());
  auto collectives = std::make_unique<CollectiveReader>(map->observations(), map->job(), map->process().rank);
  processes_[peer.connection] = {peer, std::move(map), std::move(reader), std::move(observations), std::move(collectives)};
  metrics_.SetProcesses(static_cast<int64_t>(processes_.size()));
  return policy;
}

void Agent::OnDetach(const Peer& peer) {
  const std::lock_guard lock(mutex_);
  const auto it = processes_.find(peer.connection);
  if (it == processes_.end()) return;
  Process& process = it->second;
  process.reader->Sample();  // the last words
  process.reader->Close();
  AddShortage(process.map->process(), &gone_short_[process.map->job()]);
  CountTraffic(process);
  FollowFlows(process);
  process.reader->Collect(&left_behind_);
  process.collectives->AppendDelays(&left_behind_);
  policies_.Detach(process.map->job());
  quotas_.ReturnSegment(peer.uid, process.map->bytes());
  const std::string& job = process.map->job();
  const bool last = std::ranges::count_if(processes_, [&](const auto& other) { return other.second.map->job() == job; }) == 1;
  if (last) gone_short_.erase(job), shortages_.erase(job), strategies_.erase(job);
  LogInfo("agent", "process gone", {{"pid", peer.pid}, {"job", process.map->job()}});
  processes_.erase(it);
  metrics_.SetProcesses(static_cast<int64_t>(processes_.size()));
}

void Agent::OnPolicy(const v1::JobPolicy& policy) {
  {
    const std::lock_guard lock(mutex_);
    if (const Status status = policies_.Apply(policy); !status) {
      metrics_.AddRefusedPolicy();
      LogWarn("agent", "refused policy", {{"reason", status.error().message()}});
      return;
    }
    policy_came_ = true;
  }
  changed_.notify_all();
}

void Agent::OnTrace(const TraceReport& trace) {
  const std::lock_guard lock(mutex_);
  const auto known = paths_.find(trace.flow);
  if (known == paths_.end()) return;  // the flow has closed meanwhile
  known->second = ToProto(trace);
  client_->Report(known->second);
  int64_t ports = 0;
  for (const auto& [flow, report] : paths_) {
    ports += std::count_if(report.paths().begin(), report.paths().end(), [](const v1::Path& p) { return p.complete(); });
  }
  metrics_.SetPathsKnown(ports);
}

std::string Agent::MetricsText() {
  {
    const std::lock_guard lock(mutex_);
    if (client_) {
      const ControllerClientCounters counters = client_->counters();
      metrics_.SetController(client_->connected(), counters.sessions, counters.samples_sent, counters.samples_merged);
    }
    if (prober_) {
      const TracerCounters counters = prober_->counters();
      metrics_.SetProbes(counters.sent, counters.answered, counters.silent_destinations);
      metrics_.SetCollector("probes", prober_->working(), Seconds(0));
    }
  }
  return metrics_.Text();
}

void Agent::RunSampler(const std::stop_token& stop) {
  const SystemClock clock;
  Seconds next_sample = clock.Now(), next_report = next_sample, next_renewal = next_sample;
  Seconds next_interfaces = next_sample + kInterfacesInterval;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const Seconds now = clock.Now();
    if (now >= next_sample || now >= next_report) {
      SampleTelemetry();
      next_sample = now + config_.sample_interval;
    }
    if (now >= next_renewal) {
      RenewLeases();
      next_renewal = now + std::min(kRenewInterval, config_.sample_interval);
    }
    if (now >= next_interfaces) {
      FollowInterfaces();
      next_interfaces = now + kInterfacesInterval;
    }
    ObservePolicies();
    if (now >= next_report) {
      Report();
      next_report = now + report_interval_;
    }
    Seconds wait = std::min({next_sample, next_report, next_renewal, next_interfaces}) - clock.Now();
    if (policies_.Pending(kWatchForNs)) wait = std::min(wait, kWatchInterval);
    changed_.wait_for(lock, stop, std::max(wait, Seconds(0)), [&] { return policy_came_; });
    policy_came_ = false;
  }
}

void Agent::SampleTelemetry() {
  const uint64_t start = MonotonicNs();
  int64_t sends = 0, receives = 0;
  for (auto& [connection, process] : processes_) {
    process.reader->Sample();
    CountTraffic(process);
    FollowFlows(process);
    sends += process.reader->open_flows(true);
    receives += process.reader->open_flows(false);
  }
  PreferCarryingFlows();
  Observe(start);
  metrics_.SetFlows(sends, receives);
  metrics_.SetCollector("telemetry", true, Seconds(static_cast<double>(MonotonicNs() - start) * 1e-9));
}

void Agent::PreferCarryingFlows() {
  if (!prober_) return;
  std::set<uint64_t> carrying;
  for (const auto& [connection, process] : processes_) {
    // Each process is its own measure: what one says of its bytes takes nothing from another's flows. Since they opened: a
    // flow of a job that has run for hours comes after its old ones, which cost nothing more once their paths are known.
    const std::vector<std::pair<uint64_t, int64_t>> sent = process.reader->SentBytes();
    int64_t most = 0;
    for (const auto& [flow, bytes] : sent) most = std::max(most, bytes);
    for (const auto& [flow, bytes] : sent) {
      if (bytes > most / kCarriesPart) carrying.insert(flow);
    }
  }
  if (carrying == carrying_) return;
  carrying_ = carrying;
  prober_->SetCarrying(std::move(carrying));
}

void Agent::ObservePolicies() {
  std::map<std::string, int64_t> read;  // by all processes of the job
  for (const auto& [connection, process] : processes_) {
    const auto epoch = static_cast<int64_t>(process.map->process().policy_epoch.load(std::memory_order_relaxed));
    const auto [it, is_new] = read.try_emplace(process.map->job(), epoch);
    if (!is_new) it->second = std::min(it->second, epoch);
  }
  for (const auto& [job, epoch] : read) {
    std::optional<v1::PolicyApplied> applied = policies_.Observe(job, epoch);
    if (!applied) continue;
    metrics_.AddPolicyApplied(Seconds(applied->delay_s()));
    LogDebug("agent", "policy applied", {{"job", job}, {"epoch", applied->epoch()}, {"delay_s", applied->delay_s()}});
    *left_behind_.add_applied() = std::move(*applied);
  }
}

void Agent::ReadNics(v1::HostSample* sample) {
  const uint64_t start = MonotonicNs();
  const auto counters = ReadInterfaceBytes(interface_names_);
  int64_t sent = 0, received = 0;
  if (counters) {
    for (const InterfaceBytes& entry : *counters) {
      sent += entry.sent;
      received += entry.received;
      metrics_.SetNic(entry.name, entry.received, entry.sent);
    }
  }
  metrics_.SetCollector("interfaces", counters.has_value(),
                        Seconds(static_cast<double>(MonotonicNs() - start) * 1e-9));
  sample->set_nic_tx_bytes(sent);
  sample->set_nic_rx_bytes(received);
  sample->set_nic_counts_all(counters.has_value() && !HasRdmaDevices());
}

void Agent::Report() {
  v1::HostSample sample;
  sample.Swap(&left_behind_);
  for (auto& [job, news] : strategies_untold_) *sample.add_strategies() = std::move(news);
  strategies_untold_.clear();
  sample.set_time_s(static_cast<double>(MonotonicNs()) * 1e-9);
  for (auto& [connection, process] : processes_) {
    process.reader->Collect(&sample);
    process.collectives->AppendDelays(&sample);
  }
  ReadNics(&sample);
  TellShortages(&sample);
  UpdateJobMetrics();
  client_->Report(std::move(sample));
}

/// What is new of what processes had no room for or refused.
void Agent::TellShortages(v1::HostSample* sample) {
  std::map<std::string, v1::Shortage> sums = gone_short_;
  for (const auto& [connection, process] : processes_) AddShortage(process.map->process(), &sums[process.map->job()]);
  for (auto& [job, sum] : sums) {
    v1::Shortage& told = shortages_[job];
    sum.set_policy_cut(policies_.CutOff(job));
    if (sum.flows_dropped() == told.flows_dropped() && sum.policy_rejected() == told.policy_rejected() &&
        sum.policy_cut() == told.policy_cut()) continue;
    sum.set_job_id(job);
    told = sum;
    *sample->add_shortages() = std::move(sum);
  }
}

void Agent::UpdateJobMetrics() {
  std::map<std::string, int64_t> jobs = policies_.Epochs();
  std::map<std::string, Seconds> periods;
  for (const auto& [connection, process] : processes_) {
    jobs.try_emplace(process.map->job(), 0);
    Seconds& period = periods[process.map->job()];
    period = std::max(period, process.reader->Period());
  }
  for (const std::string& job : jobs_shown_) {
    if (!jobs.contains(job)) metrics_.RemoveJob(job);
  }
  jobs_shown_.clear();
  for (const auto& [job, epoch] : jobs) {
    metrics_.SetJob(job, epoch, periods[job]);
    jobs_shown_.insert(job);
  }
}

}  // namespace weft::agent
