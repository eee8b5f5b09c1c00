// What the core is told and what it answers. Every input of the controller is an Event with its time; every effect is
// an Action. The shells turn gRPC messages, timers and the journal into the first and carry out the second, so that a
// test, a replay and the running service drive the same machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/units.h"
#include "controller/rank_order.h"
#include "planner/planner.h"
#include "proto/controller.pb.h"

namespace weft::controller {

/// An agent's session began, or began anew.
struct HostRegistered {
  v1::Register message;
  bool again = false;  ///< in a session that stands: only the interfaces are others
};
/// The host's session ended and no other took its place.
struct HostLost {
  std::string host;
};
struct SampleReceived {
  std::string host;
  v1::HostSample sample;
};
struct PathsReceived {
  std::string host;
  v1::PathReport report;
};
/// A job was submitted and planned; `plan` is what the submitter was told. A plan that could not be made is empty and
/// `planning_errors` say why: the job is still routed.
struct JobSubmitted {
  v1::JobSpec spec;
  v1::JobPlan plan;
  std::vector<std::string> planning_errors;
  bool started = false;  ///< from the journal: its flows have been seen before
};
struct JobReleased {
  std::string job_id;
};
struct ModeSet {
  v1::Mode mode = v1::MODE_UNSPECIFIED;
  std::string why = {};  ///< for the decision; empty: somebody asked for it
};
/// From the journal: an epoch that an earlier life of the controller gave to the job.
struct EpochKnown {
  std::string job_id;
  int64_t epoch = 0;
};
/// The answer to an action PlanJobs; one to any other digest than that of the newest is out of date and ignored.
struct JobsPlanned {
  uint64_t digest = 0;
  std::shared_ptr<const planner::MultiJobPlan> plan;
};
/// The answer to an action PlanPaths; one to any other than the newest is out of date and ignored.
struct PathsPlanned {
  uint64_t number = 0;
  std::shared_ptr<const planner::FlowPlan> plan;
};
/// The answer to an action AdviseRestart. `unchanged`: the fabric gives the job what it gave it before, and the last answer stands.
struct JobAdvised {
  std::string job_id;
  std::string fabric;               ///< that it was looked at on
  bool unchanged = false;
  std::optional<v1::RestartAdvice> advice;
  std::optional<v1::StrategyChange> change;  ///< in memory, with its plan, where that pays
};
/// Somebody asked for another strategy of a running job, and it was priced. Ignored unless Core::AskOf() would take it.
struct StrategyAsked {
  std::string job_id;
  v1::StrategyChange change;        ///< with its plan, who asked and how long it holds
};
/// Something was learned of the cluster from the job's iterations (run_learning.h): for the list of decisions.
struct RunLearned {
  std::string job_id;
  std::string text;
};
/// Time passed; about ten a second.
struct Tick {};

/// `time` is seconds since the controller started and never goes back; what a journal replays has time 0.
struct Event {
  Seconds time{0};
  std::variant<HostRegistered, HostLost, SampleReceived, PathsReceived, JobSubmitted, JobReleased, ModeSet, EpochKnown,
               JobsPlanned, PathsPlanned, JobAdvised, StrategyAsked, RunLearned, Tick>
      body;
};

struct PushPolicy {
  std::string host;
  v1::JobPolicy policy;
};
struct PushLaunch {
  std::string host;
  v1::JobLaunch launch;
};
struct PushEnded {
  std::string host;
  v1::JobEnded ended;
};
/// Paths of these flows of the host may be others than they were.
struct PushProbeAgain {
  std::string host;
  v1::ProbeAgain again;
};
/// A decision to log. The core keeps the newest ones too.
struct Record {
  v1::Decision decision;
};
/// A job's epoch grew: written before the policies of the same answer leave, so that a crash does not lose it. A machine that loses
/// power may (journal.h); agents tell the epochs that they hold when they join.
struct KeepEpoch {
  std::string job_id;
  int64_t epoch = 0;
};

/// Nobody needs the job's epoch any more.
struct ForgetEpoch {
  std::string job_id;
};
/// The first flows of a submitted job have come.
struct KeepStarted {
  std::string job_id;
};
/// A submitted job was released by the core itself.
struct KeepReleased {
  std::string job_id;
};

/// A run to learn from: the shell's own, no action.
struct KeepRun {
  v1::MeasuredRun run;
  std::vector<std::string> gone = {};  ///< RunBook::KeyOf() those that are kept no longer
};

/// What a submitted job runs, or is told to run, is another plan than was kept.
struct KeepPlan {
  std::string job_id;
  v1::JobPlan plan;
};

/// All jobs are to be planned together, outside of the core since it can take long; JobsPlanned brings the answer.
struct PlanJobs {
  uint64_t digest = 0;
  std::shared_ptr<const planner::MultiJobProblem> problem;
};

/// The paths of all flows are to be planned, outside of the core: seconds for a thousand jobs. PathsPlanned brings the answer.
struct PlanPaths {
  uint64_t number = 0;
  std::shared_ptr<const planner::FlowProblem> problem;
};

/// Whether a running job had better be restarted is to be looked at, outside of the core; JobAdvised brings the answer.
struct AdviseRestart {
  v1::JobSpec spec;                 ///< with the model
  v1::JobPlan plan;
  PlacementView view;               ///< with what links carry for others
  double iteration_s = 0;           ///< measured; 0: not known
  std::string looked_at;            ///< JobAdvised::fabric of the last answer
  std::optional<Seconds> left;      ///< until the job ends as it runs now; nullopt: not known
  bool listens = false;             ///< its ranks take another strategy while they run
};

/// The same for another strategy that somebody asks for.
struct AskedJob {
  AdviseRestart question;
  std::optional<v1::JobPlan> before;  ///< what it ran before its last change of strategy
};

using Action = std::variant<PushPolicy, PushLaunch, PushEnded, Record, KeepEpoch, ForgetEpoch, KeepStarted, KeepReleased, KeepPlan,
                            PlanJobs, PlanPaths, AdviseRestart, PushProbeAgain>;

/// All actions as bytes, equal exactly when the actions are equal: what replays are compared by.
std::string SerializeActions(const std::vector<Action>& actions);

}  // namespace weft::controller
