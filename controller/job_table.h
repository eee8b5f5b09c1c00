// The jobs that the controller knows: submitted ones with their plan, and unknown ones whose flows appeared. Epochs
// live here too, and outlive their jobs: a job's epoch only ever grows, over restarts of the controller as well.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/flow_planner.h"
#include "proto/controller.pb.h"

namespace weft::controller {

enum class JobState { kPlanned, kRunning, kReleased };

/// "planned", "running", "released".
const char* JobStateName(JobState state);

struct Job {
  v1::JobSpec spec;
  v1::JobPlan plan;
  std::vector<std::string> planning_errors;
  JobState state = JobState::kPlanned;
  bool submitted = false;           ///< else its flows appeared without a submission
  double flows_seen_s = 0;          ///< when it last had flows
  double released_s = 0;
  std::set<std::string> hosts;      ///< that hold something of it
};

class JobTable {
 public:
  Job* Find(const std::string& job_id);
  const Job* Find(const std::string& job_id) const;

  /// A planned job; replaces a released one of this id.
  Job& Submit(const v1::JobSpec& spec, const v1::JobPlan& plan, const std::vector<std::string>& errors);
  /// The job whose flow appeared, made if it is unknown and revived if it had only gone quiet. Null for a released
  /// submission and past the bound on jobs.
  Job* Appear(const std::string& job_id, double now_s);
  /// Forgets released jobs but for the newest.
  void Trim();

  const std::map<std::string, Job>& jobs() const { return jobs_; }
  std::map<std::string, JobWeight> Weights() const;

  /// 0 for a job that never had one.
  int64_t EpochOf(const std::string& job_id) const;
  void KnowEpoch(const std::string& job_id, int64_t epoch);
  int64_t NextEpoch(const std::string& job_id) { return ++epochs_[job_id]; }

 private:
  std::map<std::string, Job> jobs_;
  std::map<std::string, int64_t> epochs_;
};

}  // namespace weft::controller
