// The jobs of a scenario that have no hosts of their own: which wait, which begin, where, and what they become. One that begins is
// from then on a job of given hosts, with its ways on those.
// Internal to planner/jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/jobs/simulate/prepare.h"
#include "planner/jobs/simulate/scenario.h"
#include "planner/jobs/starts/placements.h"

namespace weft::planner::inline jobs {

/// A scenario in which every job that began has hosts, as its policy takes it to be and as it is.
struct OpenedScenario {
  Scenario scenario, truth;
  PreparedScenario prepared, prepared_truth;
  bool apart = false;                  ///< the truth is something else; otherwise only the first of each pair is filled
};

class OpenJobs {
 public:
  /// Nothing is copied where no job is open. `truth`, `prepared_truth`: the same objects where the policy sees all.
  OpenJobs(const Scenario& scenario, const PreparedScenario& prepared, const Scenario& truth, const PreparedScenario& prepared_truth,
           SimulationPolicy policy);

  const Scenario& scenario() const { return opened_ ? opened_->scenario : scenario_; }
  const PreparedScenario& prepared() const { return opened_ ? opened_->prepared : prepared_; }
  const PreparedScenario& truth() const {
    return !opened_ ? truth_ : opened_->apart ? opened_->prepared_truth : opened_->prepared;
  }
  /// Whether the policy says where job j runs.
  bool IsOpen(size_t j) const { return !scenario_.jobs[j].sizes.empty(); }

  /// The job waits from now on.
  void Arrive(size_t j) { waiting_.push_back(j); }
  /// Its places are free again.
  void Leave(size_t j);

  /// What is known of the jobs that run.
  struct Running {
    std::function<Seconds(size_t)> left;   ///< of job j; infinite: it never leaves
    double stretch = 1;                    ///< how much longer jobs take than alone
  };
  /// Which of those that wait begin now.
  void Plan(Seconds now, const Running& running);
  /// Begins all of these, each on a first set of places, with ways also on others. Where a policy may choose among them, sets of different
  /// jobs can overlap. Errors: those of Prepare.
  [[nodiscard]] Result<std::vector<size_t>> BeginAll();
  /// The way that is fastest alone, on the first set of an open job.
  size_t FirstWay(size_t j) const;
  /// Places of job j in a way of it that its policy chooses among; empty where its hosts are given.
  std::vector<size_t> PlacesOf(size_t j, size_t way) const;
  /// Job j goes in way `way`, on its places. Returns the way's new number.
  size_t Settle(size_t j, size_t way);
  bool IsSettled(size_t j) const { return sets_[j].size() <= 1; }

  /// Names of the places that the job has or had.
  std::vector<std::string> HostsOf(size_t j) const;
  /// What has become of the scenario; nothing where no job is open.
  std::shared_ptr<const OpenedScenario> opened() const { return opened_; }

 private:
  struct Start {
    size_t job, size;
  };
  void PlanMultiJob(Seconds now, const Running& running);
  void PlanInOrder(bool backfill);
  int32_t Free() const;
  void Hold(size_t j, std::vector<size_t> places);
  std::vector<std::vector<std::vector<size_t>>> SetsFor(const std::vector<Start>& starts) const;
  [[nodiscard]] Status Open(const Start& start);

  const Scenario& scenario_;
  const PreparedScenario &prepared_, &truth_;
  const SimulationPolicy policy_;
  std::shared_ptr<OpenedScenario> opened_;
  std::optional<PlaceMap> map_;
  std::optional<JobPreparer> preparer_;
  std::vector<int32_t> holders_;                        // per place: jobs that have it, or may take it
  std::vector<size_t> waiting_;                         // jobs by arrival
  std::vector<Start> next_;                             // that begin now
  std::vector<size_t> size_;                            // per job that began
  std::vector<std::vector<std::vector<size_t>>> sets_;  // per job that began: places that it may take, or has
  std::vector<std::vector<size_t>> held_;               // per job: places that are its now
  double busy_ = 0;                                     // host seconds until `before_`
  Seconds before_{0};
};

}  // namespace weft::planner::jobs
