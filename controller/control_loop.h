// The thin shell around the core: one lock, the clock, the journal, the agents' outboxes. Everything that comes in from
// gRPC, HTTP or the timer passes through here, one at a time, and what the core answers is carried out here.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "controller/core.h"
#include "controller/job_advice.h"
#include "controller/job_planner.h"
#include "controller/multi_job_worker.h"
#include "controller/journal.h"
#include "controller/metrics.h"
#include "controller/qos_book.h"
#include "controller/run_learning.h"
#include "controller/sample_parts.h"
#include "controller/worker.h"

namespace weft::controller {

/// Between two heartbeats.
inline constexpr Seconds kHeartbeatInterval{1};

/// Grows with every start of a controller: agents obey the one that started last.
int64_t WallClockIncarnation();

/// The way to one agent. Threads: any. Neither call blocks nor calls back into the loop.
class AgentOutbox {
 public:
  virtual ~AgentOutbox() = default;
  virtual void Send(v1::ControllerMessage message) = 0;
  /// Ends the session; the agent sees `code` and `reason`.
  virtual void Close(Code code, const std::string& reason) = 0;
};

struct ControlLoopOptions {
  CoreOptions core;
  JobPlannerOptions planner;
  std::string cluster_name;
  AdviceOptions advice = {};
  int64_t incarnation = 0;          ///< of this start, for tests; 0: by the wall clock and the journal
  double switch_answers_per_s = 100;  ///< that all hosts' probes together draw from one switch, at most
  std::optional<v1::QosDeclaration> qos = {};  ///< what the site declares of its classes
  bool learns = true;               ///< the cluster's constants follow what iterations of its jobs take (run_learning.h)
  bool mode_given = false;          ///< core.mode was asked for at this start, not only by a file
};

/// Threads: any.
class ControlLoop {
 public:
  /// `journal` may be null: nothing survives then. `clock` and `metrics` must outlive the loop.
  ControlLoop(ControlLoopOptions options, std::unique_ptr<Journal> journal, Clock* clock, Metrics* metrics);

  /// Takes in what the journal holds; before anything else. Errors: as Journal::Replay.
  [[nodiscard]] Status Recover();

  // --- agents ---
  /// Begins a session and sends Welcome; a session that the host has already is ended. Errors: kAborted when the host's
  /// present session is of a newer incarnation, or when it obeys a newer controller; kInvalidArgument without a host name.
  [[nodiscard]] Status Join(const v1::Register& message, const std::shared_ptr<AgentOutbox>& outbox);
  /// A message of the session; ignored if another session has replaced it.
  void Receive(const std::string& host, const AgentOutbox* outbox, v1::AgentMessage message);
  /// The session is over.
  void Leave(const std::string& host, const AgentOutbox* outbox);

  // --- hooks, tools, people ---
  /// Errors: as PlanJob; kAlreadyExists for a job that is planned and not released, or another submitter's; kFailedPrecondition
  /// when the journal cannot take it. Once `gone` asks, the search ends and nothing is kept: kCancelled.
  [[nodiscard]] Result<v1::JobPlan> Submit(const v1::JobSpec& spec, const std::stop_token& gone = {});
  [[nodiscard]] Result<v1::JobPlan> Plan(const v1::JobSpec& spec, const std::stop_token& gone = {});
  /// Takes effect whatever the journal can hold; what it could not is returned, empty as a rule, and tried again every second.
  [[nodiscard]] std::string Release(const std::string& job_id);
  /// MODE_OBSERVE takes effect whatever the journal can hold, and returns as Release(). Errors: kInvalidArgument for an unknown mode;
  /// kFailedPrecondition when the journal cannot take MODE_ENFORCE.
  [[nodiscard]] Result<std::string> SetMode(v1::Mode mode);
  /// Has the ranks told of another strategy, asked for by `by`, and returns at once: the plan that they run, its change the word. Errors:
  /// as of the call ReshardJob.
  [[nodiscard]] Result<v1::JobPlan> Reshard(const v1::ReshardJobRequest& request, const std::string& by);
  std::vector<v1::JobStatus> Jobs() const;
  /// The job and what was decided about it, or about all jobs. Errors: kNotFound.
  [[nodiscard]] Result<v1::ExplainJobResponse> Explain(const std::string& job_id) const;
  v1::GetTopologyResponse Topology() const;
  v1::ListDecisionsResponse Decisions() const;
  v1::GetQosResponse Qos() const;
  /// Returns at once; what comes of it is in Qos(). Errors: as of the call ChangeQos.
  [[nodiscard]] Result<v1::ChangeQosResponse> ChangeQos(const v1::ChangeQosRequest& request);
  v1::Mode mode() const;

  /// A call was refused; `why` in a word, for metrics.
  void CountRefusal(const char* why) { metrics_->AddRefusal(why); }
  void Tick();
  /// The text of /metrics.
  std::string MetricsText() const;
  const std::string& cluster_name() const { return options_.cluster_name; }
  /// Seconds since the loop was made.
  Seconds Now() const { return clock_->Now() - start_; }

 private:
  void Handle(Event event);                 // holds mutex_
  std::string Brake(Event event);           // holds mutex_
  /// What the journal has to have in the end, whatever it can take now. The newest word about a job replaces those before it.
  using Unkept = std::variant<ModeSet, JobReleased, KeepPlan>;
  Status KeepOrLater(const std::string& about, const Unkept& change);  // holds mutex_
  void KeepWhatWaits();                     // holds mutex_
  void ReconcileMode(v1::Mode journalled);  // holds mutex_
  Status CheckNotSuperseded(const v1::Register& message);  // holds mutex_
  void Beat();                              // holds mutex_
  void TellQos(AgentOutbox* outbox);        // holds mutex_
  void TakeQos(const std::string& host, v1::QosReport report);         // holds mutex_
  std::vector<std::string> QosLines(const v1::JobStatus& job) const;   // holds mutex_
  void Carry(const Action& action);         // holds mutex_
  // control_loop_learn.cc
  /// The question about one job as a run, beside the runs that are known; none: about these alone.
  struct Lesson {
    std::optional<AdviseRestart> question;
    std::vector<v1::MeasuredRun> runs;
  };
  struct Learned {
    std::optional<v1::MeasuredRun> run;
    LearnedRuns what;
    std::string why_not;                    // empty: something was learned
  };
  Learned Learn(const Lesson& lesson, const std::stop_token& stop) const;
  Status RecoverRuns();                     // holds mutex_
  void WatchRuns();                         // holds mutex_
  void Take(const Learned& learned);        // holds mutex_
  JobPlannerOptions PlannerNow() const;     // holds mutex_: with what was learned
  template <typename Change>
  Status KeepInJournal(const Change& change);  // holds mutex_
  void SendTo(const std::string& host, v1::ControllerMessage message);

  const ControlLoopOptions options_;
  Clock* const clock_;
  Metrics* const metrics_;
  const Seconds start_;

  mutable std::mutex mutex_;  // guards what follows
  std::unique_ptr<Journal> journal_;
  Core core_;
  std::map<std::string, std::shared_ptr<AgentOutbox>> sessions_;
  SampleParts parts_;
  int64_t incarnation_;
  QosBook qos_;
  std::set<std::string> superseded_by_;  // hosts that obey a newer controller
  std::map<std::string, Unkept> unkept_;  // what the journal could not take, by what it is about
  Seconds next_beat_{0};
  int64_t sessions_closed_ = 0;
  int64_t journal_errors_ = 0;
  bool replaying_ = false;
  RunWatch run_watch_;
  RunBook runs_;
  LearnedRuns learned_;
  bool learning_ = false;              // a lesson is being learned
  Seconds next_look_{0};               // at iterations

  MultiJobWorker multi_job_worker_;    // the last members: their threads call Handle
  Worker<PlanPaths, PathsPlanned> path_worker_;
  Worker<AdviseRestart, JobAdvised> advice_worker_;
  Worker<Lesson, Learned> learn_worker_;
};

}  // namespace weft::controller
