#include "agent/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "proto/qos.pb.h"

namespace weft::agent {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

constexpr const char* kCollectors[] = {"telemetry", "interfaces", "probes"};
constexpr const char* kQosSettings[] = {"trust",    "dscp-priority", "pfc", "ets", "buffer", "roce-tos", "forced-class", "gid",
                                        "mtu",      "packets",       "counters", "rewritten"};
constexpr const char* kHttpRefusals[] = {"identity", "token", "revoked", "role", "rate", "handshake", "handshakes",
                                           "connections", "size"};
constexpr const char* kRejections[] = {"version", "seals", "layout", "identity", "quota", "idle", "system"};

Family<Counter>& MakeCounter(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
Family<Gauge>& MakeGauge(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

/// Brings a counter up to a total that is kept elsewhere.
void RaiseTo(Counter& counter, double total) {
  if (const double more = total - counter.Value(); more > 0) counter.Increment(more);
}

}  // namespace

struct Metrics::JobSeries {
  Counter *bytes[2], *wire_bytes[2], *retransmits, *wait_peer, *wait_wire, *wait_window;
  Gauge *epoch, *period, *stalled, *behind, *silent;
};

struct Metrics::Families {
  Registry registry;
  Gauge& connected = MakeGauge(registry, "weft_agent_controller_connected",
                               "Whether the session with the controller stands").Add({});
  Counter& sessions = MakeCounter(registry, "weft_agent_controller_sessions_total",
                                  "Sessions with the controller that stood").Add({});
  Counter& samples_sent = MakeCounter(registry, "weft_agent_samples_sent_total",
                                      "Samples sent to the controller").Add({});
  Counter& samples_merged = MakeCounter(registry, "weft_agent_samples_merged_total",
                                        "Samples merged into a later one because the controller was slow").Add({});
  Gauge& processes = MakeGauge(registry, "weft_agent_processes_attached",
                               "Processes whose telemetry segment is mapped").Add({});
  Family<Counter>& rejected = MakeCounter(registry, "weft_agent_segments_rejected_total",
                                          "Peers refused at the socket, by reason");
  Family<Counter>& silent_lanes = MakeCounter(registry, "weft_agent_silent_lanes_total",
                                              "Lanes on silent paths whose bytes were asked for, by whether they were taken from the kernel");
  Family<Counter>& requests_refused = MakeCounter(registry, "weft_agent_http_refused_total",
                                                  "Requests and connections of HTTP that were refused, by why");
  Family<Counter>& over_quota = MakeCounter(registry, "weft_agent_over_quota_total",
                                            "Flows and destinations that were more than their user may have, or had another "
                                            "user's number");
  Family<Counter>& environment = MakeCounter(registry, "weft_agent_environment_requests_total",
                                             "Launch environments asked for by hooks");
  Family<Gauge>& flows = MakeGauge(registry, "weft_agent_flows", "Open flows of attached processes");
  Family<Counter>& bytes = MakeCounter(registry, "weft_agent_flow_bytes_total", "Payload of completed messages");
  Family<Counter>& wire_bytes = MakeCounter(registry, "weft_agent_flow_wire_bytes_total",
                                            "IP bytes on the wire, retransmissions included");
  Family<Counter>& retransmits = MakeCounter(registry, "weft_agent_flow_retransmits_total",
                                             "TCP segments sent again");
  Family<Counter>& waits = MakeCounter(registry, "weft_agent_flow_wait_seconds_total",
                                       "Time that flows waited for the peer, the wire or their time window");
  Family<Gauge>& periods = MakeGauge(registry, "weft_agent_iteration_period_seconds",
                                     "Iteration period found in the job's bursts, 0 if none");
  Family<Gauge>& stalled = MakeGauge(registry, "weft_agent_connections_stalled",
                                     "Connections with requests in flight that stand still");
  Family<Gauge>& behind = MakeGauge(registry, "weft_agent_ranks_behind",
                                    "Ranks of this host that have not come to a collective that others are in");
  Family<Gauge>& plugins_silent = MakeGauge(registry, "weft_agent_plugins_silent",
                                            "Processes whose plugin's background thread failed or makes no rounds");
  Counter& bursts_lost = MakeCounter(registry, "weft_agent_bursts_lost_total",
                                     "Bursts overwritten before they were read").Add({});
  Counter& slots_invalid = MakeCounter(registry, "weft_agent_slots_invalid_total",
                                       "Flow slots that held nonsense").Add({});
  Counter& probes_sent = MakeCounter(registry, "weft_agent_probes_sent_total", "Path probes sent").Add({});
  Counter& probes_answered = MakeCounter(registry, "weft_agent_probes_answered_total", "Path probes answered").Add({});
  Counter& silent = MakeCounter(registry, "weft_agent_probe_destinations_silent_total",
                                "Times that a destination answered no probe at all").Add({});
  Gauge& paths = MakeGauge(registry, "weft_agent_paths_known", "Source ports of open flows with a known path").Add({});
  Family<Gauge>& epochs = MakeGauge(registry, "weft_agent_policy_epoch", "Epoch in the job's policy segment");
  Counter& policies_refused = MakeCounter(registry, "weft_agent_policies_refused_total",
                                          "Policies of the controller that were out of date or out of range").Add({});
  Counter& variables_refused = MakeCounter(registry, "weft_agent_launch_variables_refused_total",
                                           "Variables of the controller that no launch environment may have").Add({});
  Histogram& apply_delay =
      prometheus::BuildHistogram()
          .Name("weft_agent_policy_apply_delay_seconds")
          .Help("From the receipt of a policy to its use by all processes of the job")
          .Register(registry)
          .Add({}, Histogram::BucketBoundaries{0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5});
  Family<Gauge>& duration = MakeGauge(registry, "weft_agent_collector_duration_seconds",
                                      "Time that the collector took last");
  Family<Gauge>& success = MakeGauge(registry, "weft_agent_collector_success", "Whether the collector worked last");
  Family<Counter>& nic = MakeCounter(registry, "weft_agent_nic_bytes_total", "Bytes of the data interfaces");
  Family<Gauge>& qos = MakeGauge(registry, "weft_agent_qos_drifts",
                                 "QoS settings, packets and ways that are not as the site declares");

  std::mutex mutex;  // guards jobs
  std::map<std::string, JobSeries> jobs;
};

Metrics::Metrics(const std::string& version, const std::string& host) : families_(std::make_unique<Families>()) {
  Families& f = *families_;
  MakeGauge(f.registry, "weft_agent_build_info", "1; the labels say which agent this is")
      .Add({{"version", version}, {"host", host}})
      .Set(1);
  for (const char* reason : kRejections) f.rejected.Add({{"reason", reason}});
  for (const char* moved : {"true", "false"}) f.silent_lanes.Add({{"moved", moved}});
  for (const char* why : kHttpRefusals) f.requests_refused.Add({{"why", why}});
  for (const char* what : {"flow", "destination", "number"}) f.over_quota.Add({{"what", what}});
  for (const char* found : {"true", "false"}) f.environment.Add({{"found", found}});
  for (const char* collector : kCollectors) SetCollector(collector, true, Seconds(0));
  SetFlows(0, 0);
  for (const char* setting : kQosSettings) f.qos.Add({{"setting", setting}});
  SeriesOf("");
}

Metrics::~Metrics() = default;

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(families_->registry.Collect()); }

void Metrics::SetController(bool connected, int64_t sessions, int64_t samples_sent, int64_t samples_merged) {
  families_->connected.Set(connected);
  RaiseTo(families_->sessions, static_cast<double>(sessions));
  RaiseTo(families_->samples_sent, static_cast<double>(samples_sent));
  RaiseTo(families_->samples_merged, static_cast<double>(samples_merged));
}

void Metrics::SetProbes(uint64_t sent, uint64_t answered, uint64_t silent_destinations) {
  RaiseTo(families_->probes_sent, static_cast<double>(sent));
  RaiseTo(families_->probes_answered, static_cast<double>(answered));
  RaiseTo(families_->silent, static_cast<double>(silent_destinations));
}

void Metrics::SetPathsKnown(int64_t ports) { families_->paths.Set(static_cast<double>(ports)); }
void Metrics::SetProcesses(int64_t attached) { families_->processes.Set(static_cast<double>(attached)); }

void Metrics::SetFlows(int64_t sends, int64_t receives) {
  families_->flows.Add({{"direction", "send"}}).Set(static_cast<double>(sends));
  families_->flows.Add({{"direction", "receive"}}).Set(static_cast<double>(receives));
}

void Metrics::SetNic(const std::string& interface, int64_t received, int64_t sent) {
  Family<Counter>& nic = families_->nic;
  RaiseTo(nic.Add({{"interface", interface}, {"direction", "receive"}}), static_cast<double>(received));
  RaiseTo(nic.Add({{"interface", interface}, {"direction", "send"}}), static_cast<double>(sent));
}

void Metrics::SetCollector(const std::string& collector, bool success, Seconds duration) {
  families_->duration.Add({{"collector", collector}}).Set(duration.count());
  families_->success.Add({{"collector", collector}}).Set(success);
}

void Metrics::SetQos(const v1::QosReport& report) {
  std::map<std::string, int> drifts;
  for (const v1::QosDrift& drift : report.drifts()) ++drifts[drift.setting()];
  drifts["rewritten"] = report.rewrites_size();
  for (const char* setting : kQosSettings) families_->qos.Add({{"setting", setting}}).Set(drifts[setting]);
}

void Metrics::AddRejectedPeer(const char* label) { families_->rejected.Add({{"reason", label}}).Increment(); }
void Metrics::AddSilentLane(bool moved) { families_->silent_lanes.Add({{"moved", moved ? "true" : "false"}}).Increment(); }
void Metrics::AddOverQuota(const char* what, int64_t count) {
  families_->over_quota.Add({{"what", what}}).Increment(static_cast<double>(count));
}
void Metrics::AddRefusedRequest(const char* why) { families_->requests_refused.Add({{"why", why}}).Increment(); }
void Metrics::AddRefusedPolicy() { families_->policies_refused.Increment(); }
void Metrics::AddRefusedVariables(size_t count) { families_->variables_refused.Increment(static_cast<double>(count)); }
void Metrics::AddPolicyApplied(Seconds delay) { families_->apply_delay.Observe(delay.count()); }
void Metrics::AddEnvironmentRequest(bool found) {
  families_->environment.Add({{"found", found ? "true" : "false"}}).Increment();
}

Metrics::JobSeries& Metrics::SeriesOf(const std::string& job) {
  Families& f = *families_;
  const std::lock_guard lock(f.mutex);
  const auto it = f.jobs.find(job);
  if (it != f.jobs.end()) return it->second;
  const auto directed = [&](Family<Counter>& family, const char* direction) {
    return &family.Add({{"weft_job", job}, {"direction", direction}});
  };
  return f.jobs[job] = {.bytes = {directed(f.bytes, "send"), directed(f.bytes, "receive")},
                        .wire_bytes = {directed(f.wire_bytes, "send"), directed(f.wire_bytes, "receive")},
                        .retransmits = &f.retransmits.Add({{"weft_job", job}}),
                        .wait_peer = &f.waits.Add({{"weft_job", job}, {"side", "peer"}}),
                        .wait_wire = &f.waits.Add({{"weft_job", job}, {"side", "wire"}}),
                        .wait_window = &f.waits.Add({{"weft_job", job}, {"side", "window"}}),
                        .epoch = &f.epochs.Add({{"weft_job", job}}),
                        .period = &f.periods.Add({{"weft_job", job}}),
                        .stalled = &f.stalled.Add({{"weft_job", job}}),
                        .behind = &f.behind.Add({{"weft_job", job}}),
                        .silent = &f.plugins_silent.Add({{"weft_job", job}})};
}

void Metrics::AddTraffic(const std::string& job, const TrafficDelta& traffic) {
  JobSeries& series = SeriesOf(job);
  for (int direction = 0; direction < 2; ++direction) {
    series.bytes[direction]->Increment(static_cast<double>(traffic.bytes[direction]));
    series.wire_bytes[direction]->Increment(static_cast<double>(traffic.wire_bytes[direction]));
  }
  series.retransmits->Increment(static_cast<double>(traffic.retransmits));
  series.wait_peer->Increment(traffic.wait_peer_s);
  series.wait_wire->Increment(traffic.wait_wire_s);
  series.wait_window->Increment(traffic.gate_held_s);
  families_->bursts_lost.Increment(static_cast<double>(traffic.bursts_lost));
  families_->slots_invalid.Increment(static_cast<double>(traffic.slots_invalid));
}

void Metrics::SetJob(const std::string& job, int64_t policy_epoch, Seconds period) {
  JobSeries& series = SeriesOf(job);
  series.epoch->Set(static_cast<double>(policy_epoch));
  series.period->Set(period.count());
}

void Metrics::SetTrouble(const std::string& job, int64_t stalled, int64_t behind, int64_t silent) {
  JobSeries& series = SeriesOf(job);
  series.stalled->Set(static_cast<double>(stalled));
  series.behind->Set(static_cast<double>(behind));
  series.silent->Set(static_cast<double>(silent));
}

void Metrics::RemoveJob(const std::string& job) {
  if (job.empty()) return;
  Families& f = *families_;
  const std::lock_guard lock(f.mutex);
  const auto it = f.jobs.find(job);
  if (it == f.jobs.end()) return;
  const JobSeries& series = it->second;
  for (int direction = 0; direction < 2; ++direction) {
    f.bytes.Remove(series.bytes[direction]);
    f.wire_bytes.Remove(series.wire_bytes[direction]);
  }
  f.retransmits.Remove(series.retransmits);
  f.waits.Remove(series.wait_peer);
  f.waits.Remove(series.wait_wire);
  f.waits.Remove(series.wait_window);
  f.epochs.Remove(series.epoch);
  f.periods.Remove(series.period);
  f.stalled.Remove(series.stalled);
  f.behind.Remove(series.behind);
  f.plugins_silent.Remove(series.silent);
  f.jobs.erase(it);
}

}  // namespace weft::agent
