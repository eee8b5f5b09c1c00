// The cluster's constants as its own jobs have them. A job that was planned here, alone on its links, and whose iterations hold still is a
// run: what it takes is held against what its strategy was priced at, and the constants of the cost model follow, as far as the runs need
// it (planner/parallelism/learned_constants.h). So a cluster whose NICs give 70 % of their rate is planned as one. Pure.
//
// Whose word it is: what an iteration takes comes from users' processes. Of the kMostRuns that are kept no submitter has more than
// kMostRunsOfOne; of those that are learned from, no more than all others together; and a run that is far from the rest counts little.
// Where calls carry no certificate nobody is told apart.
#pragma once

#include <map>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "controller/events.h"
#include "controller/job_planner.h"
#include "planner/planner.h"
#include "proto/job.pb.h"

namespace weft::controller {

inline constexpr size_t kMostRuns = 32, kMostRunsOfOne = 8;
/// Of a run's model, as text: runs are copied.
inline constexpr size_t kMostRunModelBytes = 64 * 1024;
/// That one lesson may take, and the pricing of one run.
inline constexpr Seconds kLessonPatience{20}, kMostPricing{0.1};

/// Which jobs are worth looking at as runs.
class RunWatch {
 public:
  using Key = std::pair<std::string, std::string>;   ///< job and strategy
  /// An iteration of the job took so long lately. Whether it is worth looking at: it has held still for kHeld, and is faster than what was
  /// learned from, if something was: others on its links make it slower, and nothing makes it faster. What is worth looking at is so again
  /// after kAgain, unless it is Taken().
  bool See(const Key& job, double iteration_s, double now_s);
  /// It was learned from.
  void Taken(const std::string& job_id, double iteration_s);
  /// Forgets all others.
  void KeepOnly(const std::set<Key>& jobs);

 private:
  static constexpr double kHeld = 20;           ///< seconds
  static constexpr double kAgain = 60;          ///< seconds
  static constexpr double kSame = 0.05;         ///< of an iteration
  struct Watched {
    double since_s = 0, iteration_s = 0;        ///< that it has been about the same
    double taken_s = 0;                         ///< iteration that was learned from; 0: none
    double again_s = 0;                         ///< not looked at before
  };
  std::map<Key, Watched> jobs_;
};

/// The newest runs.
class RunBook {
 public:
  /// In place of the job's own earlier one, if there is one; returns KeyOf() those that had to go for it.
  std::vector<std::string> Add(v1::MeasuredRun run);
  /// Submitter and job: a job's name is free again once it has ended.
  static std::string KeyOf(const v1::MeasuredRun& run);
  const std::vector<v1::MeasuredRun>& runs() const { return runs_; }   ///< oldest first

 private:
  std::vector<v1::MeasuredRun> runs_;
};

/// What a run depends on besides what it says itself, in words that equal machines share.
std::string MachineOf(const planner::ClusterSpec& cluster);

/// The job as it runs, as a run. Errors: kFailedPrecondition where what it takes says nothing of the cluster: links carry others' bytes too,
/// probes have not joined its hosts, or the site has several kinds of machines; for a model that is longer than kMostRunModelBytes, or
/// takes longer than kMostPricing to price; and as PriceGiven.
[[nodiscard]] Result<v1::MeasuredRun> RunOf(const AdviseRestart& question, const JobPlannerOptions& planner);

struct LearnedRuns {
  std::vector<planner::MeasuredConstant> constants;   ///< in addition to those of the configuration
  size_t runs = 0;
  double before = 0, after = 0;                       ///< median of |predicted / measured - 1|
  std::string text;                                   ///< what was learned, in one line
};

/// Runs of other machines than the configured ones, and those that cannot be read or priced any more, are left out. Errors:
/// kFailedPrecondition where none is left; kCancelled once `stop` asks. Complexity: as planner::LearnConstants, a prediction being one
/// of every run.
[[nodiscard]] Result<LearnedRuns> LearnFromRuns(std::span<const v1::MeasuredRun> runs, const JobPlannerOptions& planner,
                                                const std::stop_token& stop = {});

}  // namespace weft::controller
