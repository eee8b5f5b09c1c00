#include "controller/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace weft::controller {
namespace {

using Labels = std::map<std::string, std::string>;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

/// A metric without series is left out by the serializer; these lines say that it exists.
struct Declared {
  std::string name, help, type;
};

/// Series of one metric by labels. Family::Add costs 16 to 37 us, so known series are kept here.
template <typename T>
class Series {
 public:
  explicit Series(Family<T>& family) : family_(family) {}

  T& At(const Labels& labels) {
    live_.insert(labels);
    const auto found = series_.find(labels);
    return found != series_.end() ? *found->second : *series_.emplace(labels, &family_.Add(labels)).first->second;
  }
  /// Removes what At was not asked for since the last call.
  void Sweep() {
    for (auto it = series_.begin(); it != series_.end();) {
      if (live_.contains(it->first)) {
        ++it;
        continue;
      }
      family_.Remove(it->second);
      it = series_.erase(it);
    }
    live_.clear();
  }

 private:
  Family<T>& family_;
  std::map<Labels, T*> series_;
  std::set<Labels> live_;
};

/// Counters of the core are totals, those of the registry take increments.
void Advance(Counter& counter, double total) {
  if (const double step = total - counter.Value(); step > 0) counter.Increment(step);
}

const Histogram::BucketBoundaries kSeconds{1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1, 5};

}  // namespace

struct Metrics::Impl {
  std::mutex mutex;
  prometheus::Registry registry;
  std::vector<Declared> declared;

  Family<Gauge>& MakeGauge(const std::string& name, const std::string& help) {
    declared.push_back({name, help, "gauge"});
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  Family<Counter>& MakeCounter(const std::string& name, const std::string& help) {
    declared.push_back({name, help, "counter"});
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Histogram& MakeHistogram(const std::string& name, const std::string& help) {
    declared.push_back({name, help, "histogram"});
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, kSeconds);
  }
  Gauge& OneGauge(const std::string& name, const std::string& help) { return MakeGauge(name, help).Add({}); }
  Counter& OneCounter(const std::string& name, const std::string& help) { return MakeCounter(name, help).Add({}); }

  Gauge& build = MakeGauge("weft_controller_build_info", "Version of the running controller, value 1.")
                     .Add({{"version", WEFT_VERSION}});
  Gauge& uptime = OneGauge("weft_controller_uptime_seconds", "Time since the controller started.");
  Gauge& enforcing = OneGauge("weft_controller_enforcing", "1 in mode enforce, 0 in mode observe.");
  Gauge& hosts = OneGauge("weft_controller_hosts_connected", "Hosts whose agent has a session.");
  Series<Gauge> jobs{MakeGauge("weft_controller_jobs", "Jobs by state.")};
  Gauge& flows = OneGauge("weft_controller_flows", "Open send flows of all jobs.");
  Counter& samples = OneCounter("weft_controller_samples_total", "Telemetry samples taken in.");
  Counter& paths = OneCounter("weft_controller_path_reports_total", "Probe reports taken in.");
  Counter& ignored =
      OneCounter("weft_controller_ignored_total", "Reports, flows and lanes ignored because they made no sense.");
  Counter& replans =
      OneCounter("weft_controller_replans_total", "Re-plans that moved at least one live connection.");
  Counter& plans = OneCounter("weft_controller_flow_plans_total", "Runs of the flow planner.");
  Counter& multi_job_plans = OneCounter("weft_controller_multi_job_plans_total", "Plans of all jobs together that were taken in.");
  Counter& epochs = OneCounter("weft_controller_policy_epochs_total", "Policy epochs given to jobs.");
  Counter& policies = OneCounter("weft_controller_policies_total", "Policies pushed to hosts.");
  Series<Counter> gaps{MakeCounter("weft_controller_policy_gaps_total", "Where decisions do not arrive.")};
  Series<Counter> decisions{MakeCounter("weft_controller_decisions_total", "Decisions by kind.")};
  Counter& sessions_closed = OneCounter("weft_controller_sessions_closed_total",
                                        "Agent sessions that the controller ended: replaced, refused or too slow.");
  Counter& journal_errors = OneCounter("weft_controller_journal_errors_total", "Failed writes of the journal.");
  Histogram& plan_time = MakeHistogram("weft_controller_plan_seconds", "Time to plan a submitted job.");
  Histogram& replan_time =
      MakeHistogram("weft_controller_flow_plan_seconds", "Time to plan the paths of all flows.");
  Histogram& sample_time = MakeHistogram("weft_controller_sample_seconds", "Time to take in one sample.");
  Histogram& applied = MakeHistogram("weft_controller_policy_apply_seconds",
                                     "From an agent's receipt of a policy to its use by the plugin.");
  Series<Counter> refused{MakeCounter("weft_controller_calls_refused_total",
                                      "Calls of the API that the caller may not make, or makes too often.")};
  Series<Gauge> qos{MakeGauge("weft_controller_qos_drifts",
                              "QoS settings, packets and ways of the host that are not as the site declares.")};
  Gauge& unattributed = OneGauge("weft_controller_unattributed_bytes",
                                 "Bytes between hosts whose way is not known yet or never was, so that no link is charged with them.");
  Series<Gauge> link_used{MakeGauge("weft_controller_link_used_bytes_per_second",
                                    "Bytes on the wire by the flows of all jobs, last second.")};
  Series<Gauge> link_available{MakeGauge("weft_controller_link_available_bytes_per_second",
                                         "What measurement leaves of the link for managed flows.")};
  Series<Gauge> link_line{MakeGauge("weft_controller_link_line_rate_bytes_per_second", "Configured rate of the link.")};
  Series<Gauge> link_utilisation{MakeGauge("weft_controller_link_utilisation_ratio", "Used over configured rate.")};
  Series<Counter> link_carried{MakeCounter("weft_controller_link_carried_bytes_total",
                                           "Bytes on the wire by the flows of all jobs since the controller started.")};
  Series<Gauge> iteration{MakeGauge("weft_controller_job_iteration_seconds", "Measured iteration period of the job.")};
  Series<Gauge> predicted{
      MakeGauge("weft_controller_job_predicted_iteration_seconds", "Planned iteration time of the job.")};
  Series<Gauge> job_bound{MakeGauge("weft_controller_job_bound_iteration_seconds",
                                    "Iteration time that no controller beats on the job's hosts.")};
  Series<Gauge> job_gap{MakeGauge("weft_controller_job_gap_ratio",
                                  "Iteration simulated with all jobs, over its bound, less 1.")};
  Series<Gauge> job_class{MakeGauge("weft_controller_job_traffic_class", "Traffic class of the job, 0 is served first.")};
  Series<Gauge> job_window{MakeGauge("weft_controller_job_window_seconds",
                                     "How long the job's bursts may begin in each period, 0 at any time.")};
  Series<Gauge> gpu_use{MakeGauge("weft_controller_gpu_use_ratio",
                                  "Share of the modelled jobs' GPU time that is computed, simulated.")};
  Gauge& learned_runs = OneGauge("weft_controller_learned_runs", "Jobs whose iterations the cluster's constants were learned from.");
  Series<Gauge> prediction_error{
      MakeGauge("weft_controller_prediction_error_ratio", "Median of |predicted / measured - 1| over these jobs' iterations.")};
  Gauge& gpu_gap = OneGauge("weft_controller_gpu_use_gap_ratio", "How far the simulated GPU use is below its bound.");
  Gauge& modelled = OneGauge("weft_controller_jobs_modelled", "Jobs whose compute and bytes are known.");
  Series<Gauge> restart_gain{
      MakeGauge("weft_controller_job_restart_gain_ratio",
                "How much shorter iterations would be after a restart with the advised strategy, 0: none is advised.")};
  Series<Gauge> restart_pays{MakeGauge("weft_controller_job_restart_pays_after_seconds",
                                       "When an advised restart has made up for what it costs, after it; 0: none is advised.")};
  Series<Gauge> job_rate{
      MakeGauge("weft_controller_job_send_bytes_per_second", "Bytes on the wire by the job's flows, last second.")};

  void Refresh(const MetricsView& view);
  void RefreshLinks(const std::vector<v1::LinkStatus>& links);
  void RefreshJobs(const std::vector<v1::JobStatus>& jobs);
};

void Metrics::Impl::RefreshLinks(const std::vector<v1::LinkStatus>& links) {
  for (const v1::LinkStatus& link : links) {
    const Labels labels{{"from", link.from()}, {"to", link.to()}};
    link_used.At(labels).Set(link.used_bps() / 8);
    link_available.At(labels).Set(link.available_bps() / 8);
    link_line.At(labels).Set(link.line_rate_bps() / 8);
    link_utilisation.At(labels).Set(link.utilisation());
    Advance(link_carried.At(labels), static_cast<double>(link.carried_bytes()));
  }
}

void Metrics::Impl::RefreshJobs(const std::vector<v1::JobStatus>& all) {
  std::map<std::string, int> by_state{{"planned", 0}, {"managed", 0}, {"running", 0}, {"released", 0}};
  for (const v1::JobStatus& job : all) {
    ++by_state[job.state()];
    if (job.state() == "released") continue;  // its series go; its history is in the database
    const Labels labels{{"weft_job", job.spec().job_id()}};
    if (job.iteration_s() > 0) iteration.At(labels).Set(job.iteration_s());
    if (job.plan().predicted().iteration_s() > 0) predicted.At(labels).Set(job.plan().predicted().iteration_s());
    job_rate.At(labels).Set(job.send_rate_bps() / 8);
  }
  for (const v1::JobStatus& job : all) {
    if (job.state() == "released" || !job.has_joint()) continue;
    const Labels labels{{"weft_job", job.spec().job_id()}};
    job_class.At(labels).Set(job.joint().traffic_class());
    job_window.At(labels).Set(job.joint().window_s());
    if (job.joint().bound_s() <= 0) continue;
    job_bound.At(labels).Set(job.joint().bound_s());
    job_gap.At(labels).Set(job.joint().gap());
  }
  for (const v1::JobStatus& job : all) {
    if (job.state() == "released") continue;
    const Labels labels{{"weft_job", job.spec().job_id()}};
    restart_gain.At(labels).Set(job.has_advice() ? 1 - job.advice().iteration_then_s() / job.advice().iteration_now_s() : 0);
    restart_pays.At(labels).Set(job.advice().pays_after_s());
  }
  for (Series<Gauge>* series : {&job_class, &job_window, &job_bound, &job_gap, &restart_gain, &restart_pays}) series->Sweep();
  for (const auto& [state, count] : by_state) jobs.At({{"state", state}}).Set(count);
  iteration.Sweep();
  predicted.Sweep();
  job_rate.Sweep();
}

void Metrics::Impl::Refresh(const MetricsView& view) {
  build.Set(1);
  uptime.Set(view.uptime.count());
  enforcing.Set(view.mode == v1::MODE_ENFORCE ? 1 : 0);
  int connected = 0;
  for (const v1::HostStatus& host : view.hosts) connected += host.connected();
  hosts.Set(connected);
  flows.Set(static_cast<double>(view.flows));
  const CoreCounters& counters = view.counters;
  Advance(samples, static_cast<double>(counters.samples));
  Advance(paths, static_cast<double>(counters.path_reports));
  Advance(ignored, static_cast<double>(view.ignored));
  Advance(replans, static_cast<double>(counters.replans));
  Advance(plans, static_cast<double>(counters.plans));
  Advance(epochs, static_cast<double>(counters.policy_epochs));
  Advance(policies, static_cast<double>(counters.policies));
  Advance(gaps.At({{"what", "left_out"}}), static_cast<double>(counters.flows_left_out));
  Advance(gaps.At({{"what", "unseen"}}), static_cast<double>(counters.flows_unseen));
  Advance(gaps.At({{"what", "refused"}}), static_cast<double>(counters.entries_refused));
  Advance(gaps.At({{"what", "cut"}}), static_cast<double>(counters.entries_cut));
  Advance(gaps.At({{"what", "late"}}), static_cast<double>(counters.policies_late));
  Advance(sessions_closed, static_cast<double>(view.sessions_closed));
  Advance(journal_errors, static_cast<double>(view.journal_errors));
  Advance(multi_job_plans, static_cast<double>(counters.multi_job_plans));
  gpu_use.At({{"of", "plan"}}).Set(view.outlook.gpu_use());
  gpu_use.At({{"of", "default"}}).Set(view.outlook.gpu_use_default());
  gpu_use.At({{"of", "bound"}}).Set(view.outlook.gpu_use_bound());
  gpu_gap.Set(view.outlook.gap());
  learned_runs.Set(static_cast<double>(view.learned.runs));
  prediction_error.At({{"constants", "configured"}}).Set(view.learned.before);
  prediction_error.At({{"constants", "learned"}}).Set(view.learned.after);
  modelled.Set(static_cast<double>(view.outlook.jobs()));
  for (const char* kind : {"plan", "place", "replan", "capacity", "release", "mode", "class", "shift", "topology", "straggler",
                           "stall", "silent", "limit", "advice", "would", "reshard", "rollback", "claims", "learned", "inversion"}) {
    const auto count = counters.decisions.find(kind);
    Advance(decisions.At({{"kind", kind}}),
            count == counters.decisions.end() ? 0 : static_cast<double>(count->second));
  }
  for (const char* why : {"identity", "role", "host", "owner", "revoked", "rate", "plans", "token", "handshake", "handshakes",
                          "connections", "size"}) {
    refused.At({{"why", why}});  // 0 until somebody tries
  }
  for (const v1::HostStatus& host : view.hosts) qos.At({{"host", host.host()}}).Set(0);
  for (const auto& [host, count] : view.qos_drifts) qos.At({{"host", host}}).Set(static_cast<double>(count));
  qos.Sweep();
  unattributed.Set(view.unattributed_bytes);
  RefreshLinks(view.links);
  RefreshJobs(view.jobs);
}

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::ObservePlan(Seconds time) { impl_->plan_time.Observe(time.count()); }
void Metrics::ObserveReplan(Seconds time) { impl_->replan_time.Observe(time.count()); }
void Metrics::ObserveApplied(Seconds delay) { impl_->applied.Observe(delay.count()); }
void Metrics::AddRefusal(const std::string& why) {
  const std::lock_guard lock(impl_->mutex);
  impl_->refused.At({{"why", why}}).Increment();
}
void Metrics::ObserveSample(Seconds time) { impl_->sample_time.Observe(time.count()); }

std::string Metrics::Render(const MetricsView& view) {
  const std::lock_guard lock(impl_->mutex);
  impl_->Refresh(view);
  const std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  std::set<std::string> shown;
  for (const prometheus::MetricFamily& family : families) shown.insert(family.name);
  std::string text = prometheus::TextSerializer().Serialize(families);
  for (const Declared& metric : impl_->declared) {
    if (shown.contains(metric.name)) continue;
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", metric.name, metric.help, metric.type);
  }
  return text;
}

}  // namespace weft::controller
