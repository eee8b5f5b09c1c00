// Whether a decision that moved flows has made iterations longer. The plan that moved them was made from a model; what judges it
// are the iterations that jobs show afterwards. What did harm is taken back, and not done again for a time that doubles.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/flow_table.h"

namespace weft::controller {

/// Source port -> weight: the whole policy of a flow.
using LaneWeights = std::map<int32_t, int32_t>;

/// Of one decision. Times are the controller's, in seconds. Deterministic: time is an argument. Not thread-safe.
class MoveTrial {
 public:
  /// Whole iterations of each job that are looked at: an agent's period stands for four more after a change (agent/period.h), the
  /// first of which may have begun before it.
  static constexpr size_t kIterations = 3;
  /// From the decision until it is in force on all hosts; an iteration that begins before is not looked at.
  static constexpr double kInForceS = 0.5;

  /// One of which flows were moved. What others show has other causes as well.
  struct Job {
    double before_s = 0;          ///< period before the decision
    uint64_t flow = 0;            ///< whose bursts tell where its iterations begin
    Owner owner = kNoOwner;
    std::vector<double> starts = {};  ///< of its iterations since
    double after_s = 0;           ///< period since; 0: not known yet
    double rate = 0;              ///< bytes per second before; 0: not known
    double base_s = -1, base = 0, bytes = 0, newest_s = -1;  ///< bytes since the decision was in force, from when, and until when
  };
  struct Verdict {
    double speed = 1;             ///< against before: mean of before / after, each from 0.5 to 2, as processes say what they like
    std::set<Owner> owners, slower;  ///< of the jobs; those whose own mean is less than kWorse
    std::string text;             ///< "a 1.500 s before, 2.500 s after; b ..."
  };
  static constexpr double kWorse = 0.9;  ///< of the speed before: less is harm. Iterations of a few vary by some percent.

  /// Requires: a job, and periods > 0.
  MoveTrial(std::map<std::string, Job> jobs, double now_s) : jobs_(std::move(jobs)), begun_s_(now_s) {}

  const std::map<std::string, Job>& jobs() const { return jobs_; }
  double begun_s() const { return begun_s_; }
  /// The newest iteration of the job began then. Unknown jobs and times that are not newer change nothing.
  void SeeStart(const std::string& job, double start_s);
  /// Of a job whose iterations are too short to be seen one by one: its mean period since.
  void SeePeriod(const std::string& job, double period_s);
  /// All bytes that the job's flows have carried at `now_s`. Iterations that seem longer while as many bytes come as before are no longer:
  /// pauses within an iteration were taken for those between two, or several iterations for one.
  void SeeBytes(const std::string& job, double bytes, double now_s);
  /// Once all jobs have a period.
  std::optional<Verdict> Judge() const;
  /// Nothing can be said any more: ten times the iterations that it takes are over, and ten seconds.
  bool IsLate(double now_s) const;

 private:
  static double SpeedOf(const Job& job);

  std::map<std::string, Job> jobs_;
  double begun_s_;
};

/// Moves that were taken back while links and jobs were as they are now.
class UndoneMoves {
 public:
  static constexpr double kFirstHoldS = 60, kMostHoldS = 3600;

  /// Holds these for kFirstHoldS, twice as long each time. Returns for how long.
  double Add(const std::map<uint64_t, LaneWeights>& moves, double now_s);
  bool Holds(uint64_t flow, const LaneWeights& weights, double now_s) const;

 private:
  std::map<uint64_t, LaneWeights> moves_;
  double until_s_ = -1e300;
  int times_ = 0;
};

/// What a controller knows of the newest decision that moved flows, and of those that it has taken back.
struct MoveWatch {
  int64_t findings = 0;                     ///< about what links give, to any owner's flows
  int64_t seen = 0;                         ///< of these and silences; with the jobs that run, what periods were measured under ...
  std::set<std::string> jobs;
  double since_s = -1e300;                  ///< ... since then
  std::optional<MoveTrial> trial;           ///< of the newest decision
  struct Before {
    LaneWeights decided, planned;           ///< as SendFlow has them
  };
  std::map<uint64_t, Before> undo;          ///< what its flows had before
  UndoneMoves undone;
};

}  // namespace weft::controller
