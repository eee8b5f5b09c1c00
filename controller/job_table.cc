#include "controller/job_table.h"

#include <algorithm>

namespace weft::controller {
namespace {

constexpr size_t kMaxJobs = 100'000;
constexpr size_t kReleasedKept = 200;

/// Computation per exposed communication: who loses more by waiting for the network. Source: Crux, SIGCOMM'24, 4.1.
double IntensityOf(const v1::Prediction& predicted) {
  const double exposed = predicted.exposed_communication_s();
  const double compute = predicted.iteration_s() - exposed;
  if (!(exposed > 0) || !(compute > 0)) return 1;
  return std::clamp(compute / exposed, 0.1, 10.0);
}

}  // namespace

const char* JobStateName(const Job& job) {
  switch (job.state) {
    case JobState::kPlanned: return job.plan.has_strategy() ? "planned" : "managed";
    case JobState::kRunning: return "running";
    case JobState::kReleased: return "released";
  }
  return "";
}

std::vector<std::string> HostsOf(const v1::JobPlan& plan) {
  std::vector<std::string> hosts;
  for (const std::string& host : plan.rank_hosts()) {
    if (hosts.empty() || hosts.back() != host) hosts.push_back(host);
  }
  return hosts;
}

Job* JobTable::Find(const std::string& job_id) {
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? nullptr : &found->second;
}
const Job* JobTable::Find(const std::string& job_id) const { return const_cast<JobTable*>(this)->Find(job_id); }

Job& JobTable::Submit(const v1::JobSpec& spec, const v1::JobPlan& plan, const std::vector<std::string>& errors) {
  Job& job = jobs_[spec.job_id()];
  job = Job{.spec = spec, .plan = plan, .planned_traffic = PlannedTraffic(plan), .planning_errors = errors, .submitted = true};
  job.model_config_json = std::move(*job.spec.mutable_model_config_json());
  job.spec.clear_model_config_json();
  return job;
}

Job* JobTable::Appear(const std::string& job_id, double now_s) {
  if (job_id.empty()) return nullptr;
  Job* job = Find(job_id);
  if (job == nullptr) {
    if (jobs_.size() >= kMaxJobs) return nullptr;
    job = &jobs_[job_id];
    job->spec.set_job_id(job_id);
  }
  if (job->state == JobState::kReleased && job->submitted && !job->fell_silent) return nullptr;
  job->state = JobState::kRunning;
  job->flows_seen_s = now_s;
  return job;
}

void JobTable::Trim() {
  std::vector<std::pair<double, std::string>> released;
  for (const auto& [id, job] : jobs_) {
    if (job.state == JobState::kReleased) released.emplace_back(job.released_s, id);
  }
  if (released.size() <= kReleasedKept) return;
  std::sort(released.begin(), released.end());
  for (size_t i = 0; i + kReleasedKept < released.size(); ++i) jobs_.erase(released[i].second);
}

std::map<std::string, JobWeight> JobTable::Weights() const {
  std::map<std::string, JobWeight> weights;
  for (const auto& [id, job] : jobs_) {
    weights[id] = {job.state != JobState::kReleased, IntensityOf(job.plan.predicted())};
  }
  return weights;
}

int64_t JobTable::EpochOf(const std::string& job_id) const {
  const auto found = epochs_.find(job_id);
  return found == epochs_.end() ? 0 : found->second.value;
}

void JobTable::KnowEpoch(const std::string& job_id, int64_t epoch) {
  if (epoch <= 0 || epoch > kLargestKeptEpoch) return;
  int64_t& known = epochs_[job_id].value;
  known = std::max(known, epoch);
}

void JobTable::HearEpoch(const std::string& job_id, int64_t epoch) {
  if (epoch <= kLargestToldEpoch) KnowEpoch(job_id, epoch);
}

std::vector<std::string> JobTable::TakeMissedEnds(const std::string& host) {
  std::vector<std::string> missed;
  for (auto& [id, job] : jobs_) {
    if (job.state == JobState::kReleased && job.missed_end.erase(host) > 0) missed.push_back(id);
  }
  return missed;
}

std::vector<std::string> JobTable::ForgetEpochs(const std::set<std::string>& held, double now_s, double kept_s) {
  std::vector<std::string> forgotten;
  for (auto& [id, epoch] : epochs_) {
    if (epoch.needed_s < 0 || jobs_.contains(id) || held.contains(id)) epoch.needed_s = now_s;
    if (now_s - epoch.needed_s > kept_s) forgotten.push_back(id);
  }
  for (const std::string& id : forgotten) epochs_.erase(id);
  return forgotten;
}

}  // namespace weft::controller
