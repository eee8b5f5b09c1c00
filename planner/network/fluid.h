// The one engine under all simulations of jobs on a network: jobs that compute, send and start over, event by event, while
// jobs come and go, links change and plans are replaced.
//
//   FluidSimulation fluid(capacity);
//   fluid.Add({.gpus = 8, .compute = Seconds(0.1), .bursts = {{Seconds(0.1), Seconds(0.1)}}});
//   fluid.Apply({{{loads}, 0, {}}});
//   while (fluid.Run(until)) ...      // true: a job has left
//
// A job has two streams: one computes, one sends the iteration's bursts, one after another. A burst may be sent once the
// computation has come to its `release`, and the computation waits at `needed` until it is through; the iteration ends when
// both streams are done. All flows of a burst move in lock step, as a collective's do: its slowest link holds all. Rates are
// max-min fair per flow inside a class, and strict between classes.
//
// Only links that can be full hold anybody: those that two jobs use whose rates alone exceed the capacity together.
// Jobs that such links tie together, directly or through others, form a group; an event reaches its own group only,
// and rates are remembered per group and set of bursts that are sent, a few thousand sets at a time.
//
// Leaves out: latency, and the order of transfers inside a burst.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/units.h"

namespace weft::planner::inline network {

/// What a burst puts on one link, as `flows` flows of equal size.
struct LinkLoad {
  LinkId link;
  Bytes bytes;
  double flows = 1;
};

/// One burst's place in an iteration, both in seconds of the iteration's computation, waiting not counted.
struct BurstTimes {
  Seconds release{0};               ///< it may be sent when so much has been computed
  Seconds needed{0};                ///< so much can be computed before it is through
};

/// Time of an iteration of `compute` whose bursts take `sending` seconds each, one after another; `ends`, if given, gets when
/// each is through. Requires: bursts as for FluidJob, one `sending` each. Complexity: linear.
Seconds IterationOf(Seconds compute, std::span<const BurstTimes> bursts, std::span<const double> sending,
                    std::vector<double>* ends = nullptr);

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
  Seconds compute{0};
  std::vector<BurstTimes> bursts;   ///< at least one; `release` and `needed` rise
  int64_t iterations = 0;           ///< after which it leaves; 0: never
  Seconds start{0};                 ///< it waits so long before its first iteration
};

/// What a plan says of one job.
struct FluidSetting {
  std::vector<std::vector<LinkLoad>> loads;  ///< per burst, links distinct
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

/// From `at` on, the link carries `rate`, until its next sample.
struct LinkSample {
  LinkId link;
  Seconds at{0};
  BitsPerSecond rate;
};

enum class PhaseKind : uint8_t {
  kWaiting,    ///< held back by its time shift
  kComputing,  ///< nothing is sent
  kSending,    ///< a burst is sent, whether or not it computes as well
};

struct JobPhase {
  size_t job = 0;                   ///< the number that Add() returned; in reports, the job's place in its scenario
  int64_t iteration = 0;            ///< from 0
  PhaseKind kind = PhaseKind::kComputing;
  Seconds begin{0}, end{0};
};

struct FluidTrace {
  std::vector<LinkSample> samples;
  std::vector<JobPhase> phases;
};

class FluidSimulation {
 public:
  explicit FluidSimulation(std::span<const BitsPerSecond> capacity);

  /// Begins its first iteration `start` from now. Returns its number: 0, 1, … Call Apply() before Run(). Requires: bursts with
  /// 0 ≤ release ≤ needed ≤ compute, rising; compute > 0 or bytes to send.
  size_t Add(const FluidJob& job);
  /// Makes another job of one that is there: it begins anew, `start` from now, and what was under way is given up. Its progress counts
  /// from there. Takes effect with Apply(). Requires: as Add(); a job that is present.
  void Restart(size_t job, const FluidJob& spec);
  /// The job leaves now, whatever it was doing. Takes effect with Apply().
  void Remove(size_t job);
  /// Takes effect with Apply().
  void SetCapacity(LinkId link, BitsPerSecond capacity) { capacity_[link.index()] = capacity; }
  /// One setting per job added, with loads for each of its bursts; those of jobs that left are ignored. An iteration under
  /// way goes on with what it has left.
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
  const FluidJob& job(size_t job) const { return jobs_[job].profile->spec; }
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
  enum class Phase : uint8_t { kWaiting, kRunning, kGone };
  /// A place in the computation where a burst is released, or needed.
  struct Mark {
    double at;
    size_t burst;
    bool release;
  };
  struct Profile {
    FluidJob spec;
    std::vector<Mark> marks;          // by place
  };
  struct Job {
    std::shared_ptr<const Profile> profile;
    Phase phase = Phase::kRunning;
    double stretch = 1, scale = 1;    // of its compute and its bytes
    double ready = 0;                 // end of the iteration before
    double phase_began = 0;
    int64_t iteration = 0;
    int32_t misses = 0;               // of its gate
    int32_t group = -1;
    size_t member = 0;                // place in its group
    // The stream that computes.
    double offset = 0;                // it comes to `at` at offset + at · stretch
    double reach = 0;                 // when it comes to the next mark, or to its end
    size_t mark = 0;                  // the next one
    bool waits = false;               // for the burst of that mark
    bool computed = false;
    // The stream that sends.
    size_t first = 0, bursts = 1;     // of bursts_
    size_t released = 0, burst = 0;   // how many may be sent; the one that is sent, or is next
    bool sending = false;
    double left = 0, rate = 0;        // share of the burst's bytes at `updated`, and per second
    double updated = 0;
    double through = 0;               // when the burst is through if no rate changes
  };
  /// A burst of a job under the present plan.
  struct Burst {
    double alone = 0, speed = 0;      // seconds of communication; bursts per bit of its largest flow
    double sent = 0;                  // times its bytes since the last Apply()
  };
  struct Load {
    size_t link;                      // in the group
    double bits;
  };
  struct User {
    size_t member, burst;
  };
  struct Group {
    std::vector<size_t> members;      // jobs
    std::vector<size_t> by_class;     // places of members, the first class first
    std::vector<double> capacity;
    std::vector<std::vector<std::vector<Load>>> loads;  // per member and burst
    std::vector<std::vector<User>> users;  // per link
    int32_t bits = 0;                 // of a number that says which bursts are sent
    std::unordered_map<uint64_t, std::vector<double>> rates;  // by that number
    bool dirty = false;
  };
  /// A load of a burst on a link that may be full.
  struct Use {
    size_t job, burst;
    double bits;
    auto operator<=>(const Use&) const = default;
  };

  Burst& Current(const Job& job) { return bursts_[job.first + job.burst]; }
  const Burst& Current(const Job& job) const { return bursts_[job.first + job.burst]; }
  void Begin(size_t j, const FluidJob& spec);
  void Regate(size_t j);
  void MeasureBursts(size_t j);
  void BuildGroups();
  std::vector<std::vector<Use>> ContendedLinks(std::vector<double>* capacity) const;
  void FillGroups(const std::vector<std::vector<Use>>& links, const std::vector<double>& capacity);
  void Solve(const Group& group, std::vector<double>* rate);
  void FillClass(const Group& group, std::span<const size_t> places, std::vector<double>* rate);
  void Freeze(const Group& group, size_t member, double rate);
  void Refresh(Group* group);
  double Advance(Job* job) const;
  void SetRate(size_t j, double rate);
  void Schedule(size_t j);
  void Disturb(size_t j);
  void BeginIteration(size_t j);
  double ReachOf(const Job& job) const;
  bool Compute(size_t j);
  void SendNext(size_t j);
  void EndSending(size_t j);
  bool EndIfDone(size_t j);
  bool EndIteration(size_t j);
  bool EndPhase(size_t j);
  double Opening(Job* job, const Gate& gate) const;
  void Withdraw(size_t j);
  void Note(size_t j, PhaseKind kind) const;
  void NoteRate(size_t j, double change);

  std::vector<BitsPerSecond> capacity_;
  std::vector<Job> jobs_;
  std::vector<Burst> bursts_;
  std::vector<double> due_;           // per job: its next event if no rate changes
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

}  // namespace weft::planner::network
