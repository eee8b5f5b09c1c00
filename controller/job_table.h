// The jobs that the controller knows: submitted ones with their plan, and unknown ones whose flows appeared. Epochs
// live here too, and outlive their jobs: a job's epoch only ever grows, over restarts of the controller as well, for as
// long as any host may hold one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/flow_planner.h"
#include "controller/planned_traffic.h"
#include "proto/controller.pb.h"

namespace weft::controller {

/// Above it whoever tells us of an epoch is making it up; those of tenants' own memory are believed up to kLargestTenantEpoch.
inline constexpr int64_t kLargestToldEpoch = int64_t{1} << 60;
/// What a journal may hold, ours having gone on from kLargestToldEpoch; beyond it the journal is damaged.
inline constexpr int64_t kLargestKeptEpoch = int64_t{1} << 61;
inline constexpr int64_t kLargestTenantEpoch = int64_t{1} << 40;

/// v1::StrategyChange::state of a word that the ranks have not answered yet.
inline constexpr char kWordSent[] = "sent";

enum class JobState { kPlanned, kRunning, kReleased };

struct Job {
  v1::JobSpec spec;
  v1::JobPlan plan;
  HostTraffic planned_traffic;      ///< PlannedTraffic() of it
  std::vector<std::string> planning_errors;
  JobState state = JobState::kPlanned;
  bool submitted = false;           ///< else its flows appeared without a submission
  bool started = false;             ///< a submitted one: it has had flows, in this life of the controller or before
  bool fell_silent = false;         ///< released for want of flows, not on request
  double began_s = -1;              ///< a submitted one: when it first had flows; -1: not yet, or in a life of the controller before this
  double flows_seen_s = 0;          ///< when it last had flows, or was submitted
  double released_s = 0;
  std::set<std::string> hosts;      ///< that hold something of it
  std::set<std::string> missed_end; ///< those that were away when it was released
  std::string model_config_json;    ///< of the spec, kept apart: lists of jobs leave it out
};

/// "planned", or "managed" where there is no strategy; "running", "released".
const char* JobStateName(const Job& job);

/// Of a plan, each once, in order of rank.
std::vector<std::string> HostsOf(const v1::JobPlan& plan);

class JobTable {
 public:
  Job* Find(const std::string& job_id);
  const Job* Find(const std::string& job_id) const;

  /// A planned job; replaces a released one of this id.
  Job& Submit(const v1::JobSpec& spec, const v1::JobPlan& plan, const std::vector<std::string>& errors);
  /// The job whose flow appeared, made if it is unknown and revived if it had only fallen silent. Null for a submission
  /// that was released on request and past the bound on jobs.
  Job* Appear(const std::string& job_id, double now_s);
  /// Forgets released jobs but for the newest.
  void Trim();

  /// Jobs whose end `host` has missed; told once.
  std::vector<std::string> TakeMissedEnds(const std::string& host);

  const std::map<std::string, Job>& jobs() const { return jobs_; }
  std::map<std::string, JobWeight> Weights() const;

  /// 0 for a job that never had one.
  int64_t EpochOf(const std::string& job_id) const;
  /// From our own journal: up to kLargestKeptEpoch.
  void KnowEpoch(const std::string& job_id, int64_t epoch);
  /// From a host that holds it: up to kLargestToldEpoch, far enough from the end for our own to go on from.
  void HearEpoch(const std::string& job_id, int64_t epoch);
  int64_t NextEpoch(const std::string& job_id) { return ++epochs_[job_id].value; }
  /// Drops and returns the epochs of jobs that for `kept_s` were neither in the table nor in `held`. Complexity: linear.
  std::vector<std::string> ForgetEpochs(const std::set<std::string>& held, double now_s, double kept_s);

 private:
  std::map<std::string, Job> jobs_;
  struct Epoch {
    int64_t value = 0;
    double needed_s = -1;  ///< when it last was; -1: not looked at yet
  };
  std::map<std::string, Epoch> epochs_;
};

}  // namespace weft::controller
