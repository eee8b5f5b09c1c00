// How jobs begin and end: submission, hosts that come back with policies of jobs, release on request and by silence,
// and what may be forgotten when.
#include <fmt/format.h>

#include <algorithm>

#include "controller/core.h"

namespace weft::controller {
namespace {

/// What a submission came to, in a line.
std::string PlanReason(const Job& job) {
  const v1::JobPlan& plan = job.plan;
  std::string reason = "managed, not planned";
  if (plan.has_strategy()) {
    const std::string time = plan.predicted().iteration_s() > 0
                                 ? fmt::format("{:.3g} s per iteration predicted", plan.predicted().iteration_s())
                                 : std::string("without a price");
    reason = plan.origin() == "given"
                 ? fmt::format("given by {}: {}, {}", job.spec.given_strategy().source(), plan.strategy().text(), time)
                 : fmt::format("{}, bucket {} bytes, {}", plan.strategy().text(), plan.strategy().bucket_bytes(), time);
  } else if (!job.planning_errors.empty()) {
    reason += ": " + job.planning_errors.front();
  }
  if (plan.rank_hosts_size() > 0) reason += fmt::format("; ranks on {}", fmt::join(plan.rank_hosts(), ", "));
  return reason;
}

}  // namespace

void Core::ResumeHost(const std::string& host, const v1::Register& message) {
  std::map<std::string, int64_t> held;
  for (const v1::JobEpoch& policy : message.policies()) held[policy.job_id()] = policy.epoch();
  std::set<std::string> behind;
  for (const auto& [job_id, epoch] : held) {
    Claim(host, job_id);
    const int64_t known = jobs_.EpochOf(job_id);
    jobs_.HearEpoch(job_id, epoch);
    if (jobs_.EpochOf(job_id) == known) continue;
    actions_.push_back(KeepEpoch{job_id, jobs_.EpochOf(job_id)});
    behind.insert(job_id);  // what the host holds was decided by a life of ours that is forgotten
  }
  for (const std::string& job_id : jobs_.TakeMissedEnds(host)) PushEndTo(host, job_id);
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
    if (mode_ != v1::MODE_ENFORCE || (flow->decided.empty() && DscpOf(job_id) == 0)) continue;
    if (behind.contains(job_id)) bump.insert(job_id);
    if (behind.contains(job_id) || held[job_id] < jobs_.EpochOf(job_id)) targets.insert({job_id, host});
  }
  PushPolicies(bump, targets);
}

void Core::PushLaunchTo(const std::string& host, const Job& job) {
  // A word of another strategy is what a job would be launched with now.
  const bool word = mode_ == v1::MODE_ENFORCE && job.plan.change().state() == kWordSent;
  const v1::JobPlan& plan = word ? job.plan.change().plan() : job.plan;
  if (plan.environment().empty()) return;
  v1::JobLaunch launch;
  launch.set_job_id(job.spec.job_id());
  *launch.mutable_environment() = plan.environment();
  if (job.spec.has_user_id()) launch.set_user_id(job.spec.user_id());
  actions_.push_back(PushLaunch{host, std::move(launch)});
}

void Core::On(const JobSubmitted& event) {
  const std::string& id = event.spec.job_id();
  if (id.empty()) {
    ++ignored_;
    return;
  }
  const Job* before = jobs_.Find(id);
  const bool running = before != nullptr && before->state == JobState::kRunning;
  const std::set<std::string> hosts = running ? before->hosts : std::set<std::string>();
  Job& job = jobs_.Submit(event.spec, event.plan, event.planning_errors);
  if (running) job.state = JobState::kRunning;
  job.started = running || event.started;
  if (running && !event.started) actions_.push_back(KeepStarted{id});
  job.hosts = hosts;
  job.flows_seen_s = now_s_;
  if (job.plan.has_change()) job.plan.mutable_change()->set_decided_s(now_s_);  // in this life's time
  Decide("plan", id, PlanReason(job));
  for (const std::string& host : job.spec.hosts()) {
    const auto found = hosts_.find(host);
    if (found == hosts_.end() || !found->second.connected) continue;
    job.hosts.insert(host);
    PushLaunchTo(host, job);
  }
  Touch(Change::kFlows, "job " + id + " was submitted");
}

/// What a host holds of a job belongs to a job that is known, or is to be ended once it is sure that none claims it.
void Core::Claim(const std::string& host, const std::string& job_id) {
  Host& entry = hosts_.at(host);
  entry.held.insert(job_id);
  Job* job = jobs_.Find(job_id);
  if (job == nullptr) {
    entry.unclaimed[job_id] = now_s_;  // perhaps of a life of ours that is forgotten: its flows will tell
  } else if (job->state == JobState::kReleased) {
    job->missed_end.erase(host);
    PushEndTo(host, job_id);
  } else {
    job->hosts.insert(host);
  }
}

void Core::JobAppeared(const std::string& job_id, const std::string& host) {
  Job* job = jobs_.Appear(job_id, now_s_);
  if (job == nullptr) return;
  job->hosts.insert(host);
  if (!job->submitted || job->started) return;
  job->started = true;
  job->began_s = now_s_;
  actions_.push_back(KeepStarted{job_id});
}

/// A process may have read an epoch that we have forgotten; below it the host would refuse our policies.
void Core::LearnEpochs(const std::string& host, const v1::HostSample& sample) {
  if (sample.opened().empty()) return;
  for (const v1::FlowCounters& counters : sample.counters()) {
    const SendFlow* flow = table_.Find(counters.flow());
    if (flow == nullptr || flow->host != host || flow->opened_s < now_s_) continue;
    const std::string& job_id = flow->identity.job_id();
    const int64_t known = jobs_.EpochOf(job_id);
    // A tenant's process writes this number: one that is no epoch of ours would have us count from there for ever.
    if (counters.policy_epoch() <= kLargestTenantEpoch) jobs_.HearEpoch(job_id, counters.policy_epoch());
    if (jobs_.EpochOf(job_id) != known) actions_.push_back(KeepEpoch{job_id, jobs_.EpochOf(job_id)});
  }
}

void Core::PushEndTo(const std::string& host, const std::string& job_id) {
  hosts_.at(host).held.erase(job_id);
  v1::JobEnded ended;
  ended.set_job_id(job_id);
  actions_.push_back(PushEnded{host, std::move(ended)});
}

void Core::EndOnHosts(Job& job, bool by_silence, const std::string& reason) {
  job.state = JobState::kReleased;
  classes_.Forget(job.spec.job_id());
  job.released_s = now_s_;
  job.fell_silent = by_silence;
  std::set<std::string> hosts = job.hosts;
  hosts.insert(job.spec.hosts().begin(), job.spec.hosts().end());
  for (const std::string& host : hosts) {
    const auto found = hosts_.find(host);
    if (found != hosts_.end() && found->second.connected) {
      PushEndTo(host, job.spec.job_id());
    } else {
      job.missed_end.insert(host);
    }
  }
  Decide("release", job.spec.job_id(), reason);
  multi_job_.erase(job.spec.job_id());
  rhythms_.erase(job.spec.job_id());
  kept_.erase(job.spec.job_id());
  listeners_.erase(job.spec.job_id());
  trouble_.erase(job.spec.job_id());
  std::erase_if(shortages_, [&](const auto& entry) { return entry.first.first == job.spec.job_id(); });
}

void Core::On(const JobReleased& event) {
  Job* job = jobs_.Find(event.job_id);
  if (job == nullptr || job->state == JobState::kReleased) return;
  EndOnHosts(*job, /*by_silence=*/false, "released on request");
  jobs_.Trim();
  Touch(Change::kFlows, "job " + event.job_id + " was released");
}

void Core::ReleaseQuietJobs() {
  for (const auto& [id, flow] : table_.flows()) {
    if (Job* job = jobs_.Find(flow.identity.job_id())) job->flows_seen_s = now_s_;
  }
  std::vector<std::pair<std::string, double>> quiet;
  for (const auto& [id, job] : jobs_.jobs()) {
    if (job.state == JobState::kReleased) continue;
    if (job.submitted && !job.started) continue;  // it may wait long before its first flow
    const double allowed_s = (job.submitted ? options_.submitted_quiet_after : options_.quiet_after).count();
    if (now_s_ - job.flows_seen_s > allowed_s) quiet.emplace_back(id, allowed_s);
  }
  for (const auto& [id, allowed_s] : quiet) {
    Job& job = *jobs_.Find(id);
    EndOnHosts(job, /*by_silence=*/true,
               fmt::format("no flow on any host for {:.0f} s: taken for ended; new flows bring it back", allowed_s));
    if (job.submitted) actions_.push_back(KeepReleased{id});
  }
  if (!quiet.empty()) jobs_.Trim();
}

void Core::EndUnclaimedJobs() {
  std::map<std::string, std::vector<std::string>> unknown;
  for (auto& [name, host] : hosts_) {
    if (!host.connected) continue;
    std::vector<std::string> due;
    for (const auto& [job_id, since_s] : host.unclaimed) {
      if (now_s_ - since_s > options_.stale_after.count()) due.push_back(job_id);
    }
    for (const std::string& job_id : due) {
      host.unclaimed.erase(job_id);
      Job* job = jobs_.Find(job_id);
      if (job != nullptr && job->state != JobState::kReleased) {
        job->hosts.insert(name);  // it lives elsewhere; its end will reach this host
        continue;
      }
      // Where processes of the job are left after all, their agent keeps the policy until the last of them ends.
      PushEndTo(name, job_id);
      if (job == nullptr) unknown[job_id].push_back(name);
    }
  }
  for (const auto& [job_id, names] : unknown) {
    Decide("release", job_id, fmt::format("{}{} held a policy of it, but no flow in {:.0f} s, and no such job is known: "
                                          "it ended while the controller was away", names.front(),
                                          names.size() > 1 ? fmt::format(" and {} more hosts", names.size() - 1) : "",
                                          options_.stale_after.count()));
  }
}

void Core::ForgetEpochs() {
  if (now_s_ < next_forget_s_) return;
  next_forget_s_ = now_s_ + options_.epoch_kept.count() / 60;
  std::set<std::string> held;
  for (const auto& [name, host] : hosts_) {
    if (host.connected) held.insert(host.held.begin(), host.held.end());
  }
  for (std::string& job_id : jobs_.ForgetEpochs(held, now_s_, options_.epoch_kept.count())) {
    actions_.push_back(ForgetEpoch{std::move(job_id)});
  }
}

}  // namespace weft::controller
