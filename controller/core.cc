#include "controller/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::controller {
namespace {

constexpr size_t kMaxHosts = 100'000;
constexpr size_t kMaxText = 256;
constexpr size_t kMaxTriggers = 4;
constexpr size_t kDecisionsKept = 1000;
constexpr double kClockJump = 10;          // seconds: a host's clock that is off by more has started anew
constexpr double kClockDrift = 1e-4;       // seconds per second that a host's clock may lose against ours

}  // namespace

Core::Core(CoreOptions options)
    : options_(std::move(options)),
      mode_(options_.mode == v1::MODE_UNSPECIFIED ? v1::MODE_ENFORCE : options_.mode),
      fabric_(options_.rates),
      table_(options_.monitor.slot.count(), &fabric_),
      monitor_(options_.monitor, &fabric_) {}

std::vector<Action> Core::Handle(const Event& event) {
  actions_.clear();
  if (std::isfinite(event.time.count())) now_s_ = std::max(now_s_, event.time.count());
  std::visit([this](const auto& body) { On(body); }, event.body);
  return std::move(actions_);
}

void Core::Decide(const std::string& kind, const std::string& job_id, const std::string& reason) {
  v1::Decision decision;
  decision.set_time_s(now_s_);
  decision.set_job_id(job_id);
  decision.set_kind(kind);
  decision.set_reason(reason);
  int64_t epoch = jobs_.EpochOf(job_id);
  if (job_id.empty()) {
    for (const auto& [id, job] : jobs_.jobs()) epoch = std::max(epoch, jobs_.EpochOf(id));
  }
  decision.set_epoch(epoch);
  ++counters_.decisions[kind];
  decisions_.push_back(decision);
  if (decisions_.size() > kDecisionsKept) decisions_.pop_front();
  actions_.push_back(Record{std::move(decision)});
}

void Core::Touch(Change change, const std::string& trigger) {
  if (change == Change::kNone) return;
  if (dirty_since_s_ < 0) dirty_since_s_ = now_s_;
  const bool known = std::find(triggers_.begin(), triggers_.end(), trigger) != triggers_.end();
  if (!known && triggers_.size() < kMaxTriggers) triggers_.push_back(trigger);
}

void Core::On(const HostRegistered& event) {
  const v1::Register& message = event.message;
  const std::string& name = message.host();
  if (name.empty() || name.size() > kMaxText || (!hosts_.contains(name) && hosts_.size() >= kMaxHosts)) {
    ++ignored_;
    return;
  }
  Host& host = hosts_[name];
  if (host.connected && message.incarnation() < host.incarnation) {
    ++ignored_;
    return;
  }
  host = Host{.connected = true, .incarnation = message.incarnation()};
  for (const v1::Interface& interface : message.interfaces()) {
    for (const std::string& address : interface.addresses()) {
      if (!address.empty() && address.size() <= kMaxText) host.addresses.push_back(address);
    }
  }
  // What the agent does not announce again within `stale_after` ended while it was away.
  table_.HostGone(name, now_s_);
  if (fabric_.SetHost(name, host.addresses) && table_.ResolvePaths()) Touch(Change::kPaths, "host " + name + " joined");
  ResumeHost(name, message);
}

void Core::ResumeHost(const std::string& host, const v1::Register& message) {
  std::map<std::string, int64_t> held;
  for (const v1::JobEpoch& policy : message.policies()) held[policy.job_id()] = policy.epoch();
  std::set<std::string> behind;
  for (const auto& [job_id, epoch] : held) {
    const Job* job = jobs_.Find(job_id);
    if (job != nullptr && job->state == JobState::kReleased) {
      v1::JobEnded ended;
      ended.set_job_id(job_id);
      actions_.push_back(PushEnded{host, std::move(ended)});
    }
    const int64_t known = jobs_.EpochOf(job_id);
    jobs_.KnowEpoch(job_id, epoch);
    if (jobs_.EpochOf(job_id) == known) continue;
    actions_.push_back(KeepEpoch{job_id, jobs_.EpochOf(job_id)});
    behind.insert(job_id);  // what the host holds was decided by a life of ours that is forgotten
  }
  for (const auto& [job_id, job] : jobs_.jobs()) {
    const auto& members = job.spec.hosts();
    if (!job.submitted || job.state == JobState::kReleased) continue;
    if (std::find(members.begin(), members.end(), host) != members.end()) PushLaunchTo(host, job);
  }
  std::set<std::string> bump;
  std::set<std::pair<std::string, std::string>> targets;
  for (const uint64_t id : table_.FlowsOf(host)) {
    const SendFlow* flow = table_.Find(id);
    const std::string& job_id = flow->identity.job_id();
    if (mode_ != v1::MODE_ENFORCE || flow->decided.empty()) continue;
    if (behind.contains(job_id)) bump.insert(job_id);
    if (behind.contains(job_id) || held[job_id] < jobs_.EpochOf(job_id)) targets.insert({job_id, host});
  }
  PushPolicies(bump, targets);
}

void Core::PushLaunchTo(const std::string& host, const Job& job) {
  if (job.plan.environment().empty()) return;
  v1::JobLaunch launch;
  launch.set_job_id(job.spec.job_id());
  *launch.mutable_environment() = job.plan.environment();
  actions_.push_back(PushLaunch{host, std::move(launch)});
}

void Core::On(const HostLost& event) {
  const auto host = hosts_.find(event.host);
  if (host == hosts_.end()) return;
  host->second.connected = false;
  table_.HostGone(event.host, now_s_);
}

bool Core::Align(Host& host, const v1::HostSample& sample, double& from_s, double& to_s) {
  const double time = sample.time_s();
  if (!std::isfinite(time)) return false;
  if (host.samples == 0 || std::abs(now_s_ - (time + host.offset_s)) > kClockJump) {
    host.offset_s = now_s_ - time;
  } else {
    if (time <= host.host_time_s) return false;  // late or repeated: its counters are history
    // The least delayed sample shows the offset; letting it drift up follows a clock that runs slow.
    host.offset_s = std::min(host.offset_s + kClockDrift * (time - host.host_time_s), now_s_ - time);
  }
  to_s = std::clamp(time + host.offset_s, 0.0, now_s_);
  from_s = host.samples == 0 ? std::max(0.0, to_s - options_.sample_interval.count()) : std::min(host.measured_s, to_s);
  host.host_time_s = time;
  host.measured_s = to_s;
  return true;
}

void Core::On(const SampleReceived& event) {
  const auto found = hosts_.find(event.host);
  if (found == hosts_.end() || !found->second.connected) {
    ++ignored_;
    return;
  }
  Host& host = found->second;
  const v1::HostSample& sample = event.sample;
  ++counters_.samples;
  for (const v1::FlowIdentity& identity : sample.opened()) {
    Touch(table_.Open(event.host, identity, host.samples > 0, now_s_),
          fmt::format("job {} has new flows", identity.job_id()));
    if (const SendFlow* flow = table_.Find(identity.flow()); flow != nullptr && flow->host == event.host) {
      if (Job* job = jobs_.Appear(flow->identity.job_id(), now_s_)) job->hosts.insert(event.host);
    }
  }
  double from_s = 0;
  double to_s = 0;
  if (Align(host, sample, from_s, to_s)) {
    for (const v1::FlowCounters& counters : sample.counters()) {
      Touch(table_.Count(event.host, counters, from_s, to_s), "lanes changed on host " + event.host);
    }
    ++host.samples;
  } else {
    ++ignored_;
  }
  for (const uint64_t flow : sample.closed())
    Touch(table_.Close(event.host, flow), "flows ended on host " + event.host);
}

void Core::On(const PathsReceived& event) {
  const auto host = hosts_.find(event.host);
  if (host == hosts_.end() || !host->second.connected) {
    ++ignored_;
    return;
  }
  ++counters_.path_reports;
  Touch(table_.AddPaths(event.host, event.report, now_s_), "probes of host " + event.host + " show other paths");
}

void Core::On(const JobSubmitted& event) {
  const std::string& id = event.spec.job_id();
  if (id.empty()) {
    ++ignored_;
    return;
  }
  const Job* before = jobs_.Find(id);
  const bool running = before != nullptr && before->state == JobState::kRunning;
  Job& job = jobs_.Submit(event.spec, event.plan, event.planning_errors);
  if (running) job.state = JobState::kRunning;
  job.flows_seen_s = now_s_;
  std::string reason = job.planning_errors.empty() ? "" : "not planned: " + job.planning_errors.front();
  if (job.plan.has_strategy()) {
    const v1::Strategy& strategy = job.plan.strategy();
    reason = fmt::format("dp {} micro-batch {} bucket {} bytes, {:.3g} s per iteration predicted", strategy.dp(),
                         strategy.micro_batch(), strategy.bucket_bytes(), job.plan.predicted().iteration_s());
  }
  if (job.plan.rank_hosts_size() > 0) {
    reason += fmt::format("{}ranks on {}", reason.empty() ? "" : "; ", fmt::join(job.plan.rank_hosts(), ", "));
  }
  Decide("plan", id, reason.empty() ? "nothing to plan" : reason);
  for (const std::string& host : job.spec.hosts()) {
    const auto found = hosts_.find(host);
    if (found == hosts_.end() || !found->second.connected) continue;
    job.hosts.insert(host);
    PushLaunchTo(host, job);
  }
  Touch(Change::kFlows, "job " + id + " was submitted");
}

void Core::EndOnHosts(Job& job) {
  job.state = JobState::kReleased;
  job.released_s = now_s_;
  std::set<std::string> hosts = job.hosts;
  hosts.insert(job.spec.hosts().begin(), job.spec.hosts().end());
  for (const std::string& host : hosts) {
    const auto found = hosts_.find(host);
    if (found == hosts_.end() || !found->second.connected) continue;
    v1::JobEnded ended;
    ended.set_job_id(job.spec.job_id());
    actions_.push_back(PushEnded{host, std::move(ended)});
  }
}

void Core::On(const JobReleased& event) {
  Job* job = jobs_.Find(event.job_id);
  if (job == nullptr || job->state == JobState::kReleased) return;
  EndOnHosts(*job);
  jobs_.Trim();
  Touch(Change::kFlows, "job " + event.job_id + " was released");
}

void Core::On(const ModeSet& event) {
  if (event.mode != v1::MODE_OBSERVE && event.mode != v1::MODE_ENFORCE) {
    ++ignored_;
    return;
  }
  if (event.mode == mode_) return;
  mode_ = event.mode;
  const bool enforce = mode_ == v1::MODE_ENFORCE;
  Decide("mode", "", enforce ? "mode enforce: flows are planned and policies pushed"
                             : "mode observe: nothing is pushed; hosts keep the paths and weights they have");
  triggers_.clear();  // what happened while nothing was planned is no longer news
  if (enforce) Touch(Change::kFlows, "mode was set to enforce");
}

void Core::On(const EpochKnown& event) { jobs_.KnowEpoch(event.job_id, event.epoch); }

void Core::ReleaseQuietJobs() {
  for (const auto& [id, flow] : table_.flows()) {
    if (Job* job = jobs_.Find(flow.identity.job_id())) job->flows_seen_s = now_s_;
  }
  std::vector<std::string> quiet;
  for (const auto& [id, job] : jobs_.jobs()) {
    if (job.submitted || job.state == JobState::kReleased) continue;
    if (now_s_ - job.flows_seen_s > options_.quiet_after.count()) quiet.push_back(id);
  }
  for (const std::string& id : quiet) EndOnHosts(*jobs_.Find(id));
  if (!quiet.empty()) jobs_.Trim();
}

void Core::On(const Tick&) {
  Measure();
  if (now_s_ - activity_s_ >= 1) {
    activity_s_ = now_s_;
    if (table_.Expire(now_s_ - options_.stale_after.count()) > 0) Touch(Change::kFlows, "flows of lost hosts expired");
    ReleaseQuietJobs();
    WatchActivity();
  }
  MaybeReplan();
}

}  // namespace weft::controller
