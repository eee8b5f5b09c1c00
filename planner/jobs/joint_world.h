// A group of jobs that could meet on some link, and how much it computes under given paths, classes and shifts. Internal to
// planner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/flows/periodic.h"
#include "planner/jobs/joint_plan.h"

namespace weft::planner::inline jobs {

/// Classes and shifts of a group's jobs, by their place in it.
struct JointChoice {
  std::vector<int32_t> classes;
  std::vector<bool> shifted;
  std::vector<Seconds> shift;
  std::vector<Seconds> stretch;   ///< by which a window delays each iteration, so that the periods have a common cycle
};

class JointWorld {
 public:
  /// `members` index problem.jobs, which must outlive this.
  JointWorld(const JointProblem& problem, std::vector<size_t> members);

  const std::vector<size_t>& members() const { return members_; }
  const std::vector<BitsPerSecond>& capacity() const { return capacity_; }
  /// The jobs on the paths that they have.
  const std::vector<PeriodicJob>& jobs() const { return jobs_; }
  const PeriodicOptions& simulation() const { return simulation_; }
  int32_t hash_seeds() const { return hash_seeds_; }
  double gpus() const { return gpus_; }

  /// `factor[i]` scales the compute time of member i; empty: as they are.
  SteadyState Run(const JointChoice& choice, const std::vector<double>& factor = {}) const;
  /// Simulated GPU use of plain ECMP in one class, mean over the hash seeds.
  double Ecmp(const std::vector<double>& factor = {}) const;
  /// GPU use that the measured iterations come to; 0 where one is not known.
  double MeasuredUse() const;

 private:
  PeriodicJob OnShares(const JointJob& job) const;
  PeriodicJob OnHash(const JointJob& job, uint64_t seed) const;

  const JointProblem& problem_;
  std::vector<size_t> members_;
  std::vector<BitsPerSecond> capacity_;
  std::vector<PeriodicJob> jobs_;
  std::vector<std::vector<PeriodicJob>> hashed_;   // [seed][member]
  PeriodicOptions simulation_;
  int32_t hash_seeds_ = 1;
  double gpus_ = 0;
};

/// Jobs that can be simulated, in groups that could meet on some candidate path; each ascending, in order of their first job.
/// A job whose iteration is not a thousandth of the slowest of its group stands alone: it would cost a million events and
/// says nothing about the others.
std::vector<std::vector<size_t>> JointGroups(const JointProblem& problem);

}  // namespace weft::planner::jobs
