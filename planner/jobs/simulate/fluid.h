// Jobs that compute, send and start over on one network, event by event, while jobs come and go, links change and
// plans are replaced: the model of flows/periodic.h (lock step inside a job, strict classes, fair inside a class)
// with a memory.
//
//   FluidSimulation fluid(capacity);
//   fluid.Add({.gpus = 8, .compute = Seconds(0.1), .release = Seconds(0.1)});
//   fluid.Apply({{loads, 0, {}}});
//   while (fluid.Run(until)) ...      // true: a job has left
//
// Only links that can be full hold anybody: those that two jobs use whose rates alone exceed the capacity together.
// Jobs that such links tie together, directly or through others, form a group; an event reaches its own group only,
// and rates are remembered per group and set of sending jobs, a few thousand sets at a time.
// Internal to planner/jobs.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/flows/periodic.h"
#include "planner/jobs/simulate/scenario.h"

namespace weft::planner {

/// When a job may begin iterations: at first + k · period, up to kGateTolerance of a period late. A job that keeps
/// missing its openings, by coming late or by waiting longer than planned, shows that the plan was made for other
/// profiles: until the next plan neither it nor anybody in its group is held, and all of them share one class.
struct Gate {
  Seconds period{0};                ///< 0: always open
  Seconds first{0};                 ///< time of one opening
  /// wait per iteration that is planned, since the period is longer than the iteration
  Seconds slack{0};
};
/// Source: CASSINI (NSDI'24), section 4: hosts re-align beyond 5 % of the iteration.
inline constexpr double kGateTolerance = 0.05;

struct FluidJob {
  double gpus = 1;
  Seconds compute{0}, release{0};
  int64_t iterations = 0;           ///< after which it leaves; 0: never
};

/// What a plan says of one job.
struct FluidSetting {
  std::vector<LinkLoad> loads;
  int32_t priority = 0;             ///< class, 0 is served first
  Gate gate;
};

/// What a job has done since it was added, or since the fork.
struct FluidProgress {
  double begin = 0;                 ///< of the first iteration counted, seconds
  double end = 0;                   ///< of the last whole one
  double left = -1;                 ///< time at which it left; -1: still there
  std::vector<double> durations;    ///< of whole iterations, waiting included, seconds
};

struct FluidTrace {
  std::vector<LinkSample> samples;
  std::vector<JobPhase> phases;     ///< job: the number that Add() returned
};

class FluidSimulation {
 public:
  explicit FluidSimulation(std::span<const BitsPerSecond> capacity);

  /// Begins its first iteration now. Returns its number: 0, 1, … Call Apply() before Run(). Requires: 0 ≤ release ≤
  /// compute, compute > 0 or bytes to send.
  size_t Add(const FluidJob& job);
  /// Takes effect with Apply().
  void SetCapacity(LinkId link, BitsPerSecond capacity) { capacity_[link.index()] = capacity; }
  /// One setting per job added; those of jobs that left are ignored. An iteration under way goes on with what it has
  /// left.
  void Apply(std::vector<FluidSetting> settings);
  /// Until the time, or until a job has left: then true. Complexity: O(events · (jobs + contended loads of the
  /// group)).
  bool Run(Seconds until);

  /// A copy that counts from now on, without a trace.
  FluidSimulation Fork() const;

  /// Multiplies what a job computes and sends from its next phase on: a profile that was wrong. Takes effect with
  /// Apply().
  void Distort(size_t job, double compute, double bytes);

  /// The factors of Distort() on compute and bytes.
  std::pair<double, double> distortion(size_t job) const { return {jobs_[job].stretch, jobs_[job].scale}; }

  Seconds now() const { return Seconds(now_); }
  size_t jobs() const { return jobs_.size(); }
  bool present(size_t job) const { return jobs_[job].phase != Phase::kGone; }
  const FluidJob& job(size_t job) const { return jobs_[job].spec; }
  const FluidProgress& progress(size_t job) const { return progress_[job]; }
  const FluidSetting& setting(size_t job) const { return settings_[job]; }
  int64_t events() const { return events_; }
  /// What running it has cost, in units of one event of a small group: some 50 ns.
  int64_t work() const { return events_ + solved_ / kStepsPerEvent; }
  std::vector<double> LinkBits() const;       ///< carried until now, per link
  /// Requires: what the trace holds is only ever added to here.
  void set_trace(FluidTrace* trace);

 private:
  static constexpr int64_t kStepsPerEvent = 16;
  enum class Phase : uint8_t { kWaiting, kComputing, kSending, kFinishing, kGone };
  struct Job {
    FluidJob spec;
    Phase phase = Phase::kComputing;
    double compute = 0, release = 0;  // of the present profile
    double stretch = 1, scale = 1;    // of its compute and its bytes
    double ready = 0;                 // end of the iteration before
    double began = 0;                 // of this iteration, and of this phase
    double phase_began = 0;
    double left = 0, rate = 0;        // share of this iteration's bytes at `updated`, and per second
    double updated = 0;
    double alone = 0, speed = 0;      // seconds of communication; iterations per bit of its largest flow
    double sent = 0;                  // iterations' worth of bytes since the last Apply()
    int64_t iteration = 0;
    int32_t misses = 0;               // of its gate
    int32_t group = -1;
    size_t member = 0;                // place in its group
  };
  struct Load {
    size_t link;                      // in the group
    double bits;
  };
  struct Group {
    std::vector<size_t> members;      // jobs
    std::vector<size_t> by_class;     // places of members, the first class first
    std::vector<double> capacity;
    std::vector<std::vector<Load>> loads;  // per member
    std::vector<std::vector<size_t>> users;  // per link: places of members
    std::unordered_map<uint64_t, std::vector<double>> rates;  // by set of sending members
    bool dirty = false;
  };

  void Regate(size_t j);
  void BuildGroups();
  std::vector<std::vector<std::pair<size_t, double>>> ContendedLinks(std::vector<double>* capacity) const;
  void Solve(const Group& group, std::vector<double>* rate);
  void FillClass(const Group& group, std::span<const size_t> places, std::vector<double>* rate);
  void Freeze(const Group& group, size_t member, double rate);
  void Refresh(Group* group);
  void Advance(Job* job) const;
  void SetRate(size_t j, double rate);
  void BeginIteration(size_t j);
  void BeginSending(size_t j);
  bool EndSending(size_t j);
  bool EndIteration(size_t j);
  bool EndPhase(size_t j);
  double Opening(Job* job, const Gate& gate) const;
  void Withdraw(size_t j);
  void Note(size_t j, PhaseKind kind) const;
  void NoteRate(size_t j, double change);

  std::vector<BitsPerSecond> capacity_;
  std::vector<Job> jobs_;
  std::vector<double> due_;           // per job: end of its phase if no rate changes
  std::vector<FluidSetting> settings_;
  std::vector<FluidProgress> progress_;
  std::vector<Group> groups_;
  std::vector<size_t> dirty_;         // groups
  std::vector<double> link_bits_;     // until the last Apply()
  std::vector<double> link_rate_;     // while tracing
  std::vector<size_t> last_sample_;   // per link, in the trace; while tracing
  FluidTrace* trace_ = nullptr;
  double now_ = 0;
  int64_t events_ = 0;
  int64_t solved_ = 0;                // steps of all rate solutions
  struct Filling {                    // of the links of one group, while its rates are solved
    std::vector<double> left, demand; // bits per second; what growing members ask for at level 1
    std::vector<int32_t> growing;     // members
    std::vector<size_t> active;       // links with any
  } filling_;
};

}  // namespace weft::planner
