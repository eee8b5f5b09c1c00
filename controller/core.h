// The controller's mind: a deterministic state machine without I/O, clock, threads or gRPC. Events in, actions out; the
// same events give the same actions, byte for byte, whether they come from agents, from a journal or from a test.
//
//   Core core(options);
//   for (const Action& action : core.Handle({.time = now, .body = SampleReceived{host, sample}})) ...
//
// What it does: keeps hosts, jobs, flows and the fabric that probes have shown; measures what every link carries;
// infers what every link gives (link_monitor.h); has the paths of all flows planned together
// (flow_planner.h), and in mode "enforce" pushes them, when flows, paths or capacities change or a shared link is full, at most once per
// `replan_interval`: asked for by an action, answered by an event. It forgets nothing on which a host still acts: a lost host's flows stay for `stale_after`,
// epochs until an hour after job and hosts are done with them.
//
// Beside that fast path it has all jobs planned together: traffic classes, time shifts, bounds (multi_job_problem.h). That can
// take long, so it is asked for by an action and answered by an event; paths never wait for it. What was measured may be
// different by then: an answer to any but the newest question is ignored.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/bad_links.h"
#include "controller/class_watch.h"
#include "controller/communicators.h"
#include "controller/core_options.h"
#include "controller/events.h"
#include "controller/fabric_view.h"
#include "controller/flow_planner.h"
#include "controller/flow_table.h"
#include "controller/job_table.h"
#include "controller/late_ranks.h"
#include "controller/multi_job_problem.h"
#include "controller/link_monitor.h"
#include "controller/move_brake.h"
#include "controller/move_trial.h"
#include "controller/nic_claims.h"
#include "controller/rank_order.h"
#include "controller/stragglers.h"
#include "controller/topology_files.h"

namespace weft::controller {

/// What only ever grows, for metrics.
struct CoreCounters {
  int64_t replans = 0;
  int64_t policy_epochs = 0;
  int64_t policies = 0;        ///< pushed
  int64_t flows_left_out = 0;  ///< times that a decision about a flow found no room in its host's policy
  int64_t flows_unseen = 0;    ///< flows that found no slot in their process's telemetry
  int64_t entries_refused = 0; ///< policy entries that plugins refused
  int64_t entries_cut = 0;     ///< policy entries that plugins of older versions have no room for
  int64_t policies_late = 0;   ///< not applied kLateAfter after they were pushed
  int64_t samples = 0;
  int64_t path_reports = 0;
  int64_t plans = 0;           ///< runs of the flow planner
  int64_t multi_job_plans = 0;     ///< answers of PlanJobs that were taken in
  std::map<std::string, int64_t> decisions;  ///< by kind
};

class Core {
 public:
  explicit Core(CoreOptions options);

  /// Takes one event. Requires: event times do not go back (an earlier time counts as the present one).
  std::vector<Action> Handle(const Event& event);

  // What it knows, for the API; nothing here changes anything.
  std::vector<v1::JobStatus> Jobs() const;  ///< without model_config_json
  std::optional<v1::JobStatus> FindJob(const std::string& job_id) const;
  std::vector<v1::HostStatus> Hosts() const;
  std::vector<v1::LinkStatus> Links() const;
  /// As of the flow table.
  double unattributed_bytes() const { return table_.unattributed_bytes(); }
  const std::deque<v1::Decision>& decisions() const { return decisions_; }
  const CoreCounters& counters() const { return counters_; }
  /// Reports, lanes and flows of agents that made no sense.
  int64_t ignored() const { return ignored_ + table_.ignored() + stragglers_.ignored(); }
  size_t host_count() const { return hosts_.size(); }
  int64_t flow_count() const { return static_cast<int64_t>(table_.flows().size()); }
  v1::Mode mode() const { return mode_; }
  /// What would be done to the job's flows now if the mode were enforce, and what it would come to; empty in that mode.
  std::vector<std::string> Would(const std::string& job_id) const;
  /// How well all jobs do together, as last planned.
  const v1::ClusterOutlook& outlook() const { return outlook_; }
  /// The incarnation of the host's agent, -1 if the host was never here.
  int64_t IncarnationOf(const std::string& host) const;
  /// Jobs that hold a tree of the switches (job_reduction.h).
  std::set<std::string> TreeJobs() const;
  /// What planning a job needs to know of the present; the load of links is that of all others.
  PlacementView Placement(const std::string& job_id) const;
  /// Hosts that other jobs have, running, or submitted not longer ago than a job may be silent. Complexity: O(ranks of all jobs).
  std::map<std::string, HostUse> UsedHosts(const std::string& job_id) const;
  /// What pricing another strategy for the job needs to know, its `before` too; `only_said`: nothing is to be sent. Errors: kNotFound;
  /// kFailedPrecondition where its ranks cannot be told of one now, saying why and what would help.
  [[nodiscard]] Result<AskedJob> AskOf(const std::string& job_id, bool only_said) const;
  /// Running jobs that do what their plan says, by id and strategy: what an iteration takes. Rank 0 says so; or, of programs that are
  /// started with their plan, their flows carry per period what it does (within a third). Complexity: linear in jobs and flows.
  std::map<std::pair<std::string, std::string>, double> MeasuredIterations() const;
  /// The job as it runs, with what it takes; nullopt if it is not one of those.
  std::optional<AdviseRestart> RunningJob(const std::string& job_id) const;
  /// Whether each has an agent, and none of them another job.
  bool AreFree(const std::vector<std::string>& hosts, const std::string& job_id) const;

 private:
  struct Host {
    bool connected = false;
    std::vector<std::string> addresses;
    int64_t incarnation = 0;
    int64_t samples = 0;          ///< of this session
    double host_time_s = 0;       ///< of the newest sample
    double offset_s = 0;          ///< controller's time - host's time
    double measured_s = 0;        ///< controller's time up to which samples have come
    double nic_bytes = -1;        ///< that its NICs have sent; -1: not said, or not all that is sent
    std::set<std::string> held;   ///< jobs whose policy the host has
    std::map<std::string, double> unclaimed;  ///< held jobs that we do not know, and since when
    int32_t policy_flows = 0;     ///< that a policy of its agent may have
  };
  /// Decisions about a job in trouble, which its processes bring about: so many a minute.
  struct TroubleLines {
    double since_s = -1e300;
    int lines = 0;
    int64_t left_out = 0;
  };
  /// Newest slots whose samples must have come by now.
  struct Window {
    int64_t first = 0, last = -1;
    double seconds = 0;
  };

  struct MultiJobQuestion {
    uint64_t digest = 0;
    double asked_s = 0;
    int64_t capacity_changes = 0;          ///< when it was asked
    MultiJobInput input;                      ///< without the problem, which the action carries
    std::shared_ptr<const planner::MultiJobProblem> problem;
  };

  void On(const HostRegistered& event);
  void On(const HostLost& event);
  bool IsConnected(const std::string& name) const;
  void On(const SampleReceived& event);
  void On(const PathsReceived& event);
  void On(const JobSubmitted& event);
  void On(const JobReleased& event);
  void On(const ModeSet& event);
  void On(const EpochKnown& event);
  void On(const JobsPlanned& event);
  void On(const PathsPlanned& event);
  void On(const JobAdvised& event);
  void On(const StrategyAsked& event);
  void On(const RunLearned& event) { Decide("learned", event.job_id, event.text); }
  void On(const Tick& event);

  bool Align(Host& host, const v1::HostSample& sample, double& from_s, double& to_s);
  void Touch(Change change, const std::string& trigger);
  /// Paths only: all jobs together have a measure of their own for what they carry.
  void TouchPaths(const std::string& trigger);
  void ResumeHost(const std::string& host, const v1::Register& message);
  void Claim(const std::string& host, const std::string& job_id);
  void JobAppeared(const std::string& job_id, const std::string& host);
  void LearnEpochs(const std::string& host, const v1::HostSample& sample);
  void ReleaseQuietJobs();
  void EndUnclaimedJobs();
  void ForgetEpochs();
  void Measure();
  void TakeChanges(const std::vector<CapacityChange>& changes);
  void ProbeAgain(const std::set<LinkId>& links);
  void NameSilences();
  void NameBadLinks();
  void NameStall(const std::string& host, const v1::Stall& stall);
  void DecideTrouble(const std::string& kind, const std::string& job_id, const std::string& reason);
  /// core_claims.cc: bytes of the flow that its host's NICs must have sent, as its user says; -1: they need not have.
  double ClaimedBy(const std::string& host, const v1::FlowCounters& counters) const;
  void HoldClaims(const std::string& host, const v1::HostSample& sample, const std::map<Owner, double>& claimed);
  void NameStragglers();
  void NameLateRanks();
  void SeeClasses(), WatchClasses();  ///< core_classes.cc
  void WatchDemand();
  void WaitForPicture();
  bool MaybeReplan();      ///< true if it took the tick's time
  void Replan();
  void Apply(FlowDecision decision, const std::vector<std::string>& triggers);
  // core_rollback.cc
  void WatchCircumstances();
  void HoldBack(FlowDecision& decision);
  void BeginTrial(const FlowDecision& decision, const std::set<uint64_t>& left_out);
  void WatchTrial();
  void RollBack(const MoveTrial::Verdict& verdict);
  struct Foretold {
    std::map<uint64_t, std::map<int32_t, int32_t>> weights;  ///< by flow and port
    std::map<std::string, std::vector<std::string>> lines;   ///< by job
    std::string outcome;
  };
  void Foretell(const FlowDecision& decision, const std::vector<std::string>& triggers, Foretold& told);
  void ForetellJobs(const MultiJobInput& input, const planner::MultiJobPlan& plan);
  void Announce(const FlowDecision& decision, const std::vector<std::string>& triggers);
  void PushPolicies(const std::set<std::string>& jobs, const std::set<std::pair<std::string, std::string>>& targets);
  void WatchTopology();
  void WatchRhythms();
  void WatchShift(const std::string& job_id, const JobRhythm& rhythm);
  bool MaybePlanJobs();    ///< true if it took the tick's time
  void LookAround();
  /// Rank 0 of a job that takes another strategy while it runs.
  struct Listener {
    int64_t epoch = 0;                     ///< newest word that it has seen
    uint64_t digest = 0;                   ///< of what it runs
    double iteration_s = 0;                ///< of its last steps; 0: not measured
    MoveBrake brake;
    struct Left {
      double since_s = 0;
      int times = 0;
    };
    std::map<std::string, Left> left;      ///< strategies that it was told to leave
    std::optional<v1::StrategyChange> would;  ///< what mode enforce would tell it, without its plan
  };
  void MaybeAdvise();
  double IterationOf(const std::string& job_id, const Job& job) const;
  /// 0: not known.
  double SaidByRank0(const std::string& job_id, const Job& job) const;
  AdviseRestart QuestionOf(const std::string& job_id, const Job& job) const;
  // core_reshard.cc
  bool Listens(const std::string& job_id, const Job& job) const;
  bool WasLeft(const Listener& listener, const std::string& strategy) const;
  void TakeStrategy(const std::string& host, const v1::StrategyNews& news);
  void ChangeStrategies();
  void WithdrawWords();
  void ForetellStrategy(const std::string& job_id, const v1::StrategyChange& wanted);
  void ChangeStrategy(const std::string& job_id, Job& job);
  void SendWord(const std::string& job_id, Job& job, const v1::StrategyChange& wanted);
  void WordFailed(const std::string& job_id, Job& job, const std::string& state, const std::string& reason);
  void Adopt(const std::string& job_id, Job& job);
  void KeepAndTell(const std::string& job_id, const Job& job);
  bool WantsAdvice(const std::string& job_id, const Job& job);
  void TakeMultiJob(const MultiJobInput& input, const planner::MultiJobPlan& plan);
  void TakePaths(const MultiJobQuestion& question, const planner::MultiJobPlan& plan);
  void Settle(const AskedFlow& asked);
  bool IsOtherRate(const CapacityChange& change);
  void TakeOutlook(const planner::MultiJobPlan& plan);
  bool TakeClass(const std::string& job_id, const v1::MultiJobDecision& decision);
  void TakeBackWindows(const std::string& job_id, const std::string& why, bool failed);
  bool MayTryAgain(const std::string& job_id) const;
  void PushAllJobs();
  void PushJobs(const std::set<std::string>& jobs);
  using Communicators = std::map<uint64_t, KnownCommunicator>;
  int32_t DscpOf(const std::string& job_id, int32_t step = 0) const;
  /// Of a planned job; empty where its plan has no operations.
  Communicators CommunicatorsOf(const std::string& job_id) const;
  /// Whether the classes next to the job's, one later and one earlier, are there and no other running job's.
  std::pair<bool, bool> FreeNeighbours(const std::string& job_id) const;
  size_t RoomFor(const std::string& host) const;
  std::vector<uint64_t> PolicyFlows(const std::string& job_id, const std::string& host) const;
  std::set<uint64_t> LeaveOut(const FlowDecision& decision);
  void TakeApplied(const std::string& host, const v1::HostSample& sample);
  void WatchApplied();
  void TellShortage(const std::string& host, const v1::Shortage& shortage);
  /// Classes within a job, as of when its policies are pushed.
  struct InnerClasses {
    Communicators known;
    bool later = false, earlier = false;     ///< FreeNeighbours()
  };
  InnerClasses InnerClassesOf(const std::string& job_id) const;
  v1::JobPolicy PolicyOf(const std::string& job_id, const std::string& host, const InnerClasses& inner) const;
  void PushLaunchTo(const std::string& host, const Job& job);
  void PushEndTo(const std::string& host, const std::string& job_id);
  void EndOnHosts(Job& job, bool by_silence, const std::string& reason);
  void Decide(const std::string& kind, const std::string& job_id, const std::string& reason);
  void ForgetDecision();
  std::string CollisionText() const;
  Window LastSecond() const;
  std::optional<BitsPerSecond> HostRate(const std::string& host) const;
  std::optional<Seconds> LeftOf(const std::string& job_id, const Job& job) const;
  v1::JobStatus StatusOf(const std::string& job_id, const Job& job) const;

  CoreOptions options_;
  v1::Mode mode_;
  double now_s_ = 0;
  FabricView fabric_;
  FlowTable table_;
  LinkMonitor monitor_;
  BadLinks silent_links_, lossy_links_;
  std::map<LinkId, double> probed_again_s_;      ///< when flows over the link were last asked to be probed again
  std::map<std::string, TroubleLines> trouble_;  ///< by job
  NicClaims claims_;
  ClassWatch classes_;
  StragglerFinder stragglers_;
  LateRanks late_ranks_;
  double waits_s_ = 0;                           ///< when the waits were last taken
  JobTable jobs_;
  std::map<std::string, Host> hosts_;
  std::vector<Action> actions_;            ///< of the event at hand
  std::deque<v1::Decision> decisions_;
  CoreCounters counters_;
  int64_t ignored_ = 0;

  /// A job that is to have windows.
  struct Shifting {
    std::string job;
    const planner::MultiJobJobPlan* plan = nullptr;
    std::vector<uint64_t> flows;
    double phase_s = 0;                    ///< when one of its bursts began, in our time
  };
  std::set<std::string> TakeShifts(const MultiJobInput& input, const planner::MultiJobPlan& plan);
  bool AreInPlace(const std::vector<Shifting>& group) const;
  std::set<std::string> ShiftGroup(const std::vector<Shifting>& group);
  std::optional<double> PhaseOf(const std::vector<uint64_t>& flows) const;
  void GiveWindow(SendFlow& flow, const FlowWindow& window, double phase_s);
  bool JoinWindows(const Shifting& job);
  void KeepInStep();
  void ClearWindows(const std::string& job_id);
  struct Pace {
    double period_s = 0;                   ///< mean; 0: not measured
    double held_s = 0;                     ///< of an iteration, by the window that holds least
  };
  Pace PaceOf(const std::string& job_id, double since_s) const;
  void Widen(const std::string& job_id);

  /// What is in force for a job, and how it came to be.
  struct MultiJobState {
    MultiJobInForce force;
    v1::MultiJobDecision decision;
    double period_s = 0;                   ///< measured when it was decided
    FlowWindow window;                     ///< of its flows, the offset in our time; period 0: none
    double window_since_s = 0;
    bool placing = false;                  ///< windows are short, so that bursts fall in with them
    double before_s = 0;                   ///< period of its iterations before it had windows
    int failures = 0;                      ///< windows, one after the other, that did it no good
    bool misfit_told = false;              ///< that they come too soon or too late for it, since they were given
  };
  struct PathsQuestion {
    uint64_t number = 0;
    double asked_s = 0;
    bool whole = false;                    ///< what a quick plan may have left
    int64_t capacity_changes = 0;          ///< when it was asked
    FlowQuestion flows;
    std::vector<std::string> triggers;     ///< what it was asked for
  };
  std::optional<PathsQuestion> paths_question_;  ///< that waits for its answer
  uint64_t paths_number_ = 0;
  bool whole_plan_due_ = false;            ///< after a quick plan ...
  int64_t whole_plan_capacity_ = 0;        ///< ... of so many capacity_changes_

  /// What a restart would give a job, as last looked at.
  struct Advice {
    std::string fabric;
    std::optional<v1::RestartAdvice> advice;
    int64_t looked = 0;                    ///< changes_ then
    double looked_s = 0, iteration_s = 0;  ///< and when that was, and the job's iteration then; 0: not known
    std::optional<v1::StrategyChange> change;  ///< with its plan
    double change_since_s = 0;             ///< that the same strategy has been advised
  };
  bool IterationChanged(const std::string& job_id, const Job& job, const Advice& advice) const;
  std::map<std::string, Listener> listeners_;  ///< by running job
  std::map<std::string, Advice> advice_;   ///< of jobs that are not released
  std::string advising_;                   ///< the job that is looked at now; empty: none
  double advising_since_s_ = 0;
  int64_t changes_ = 0;                    ///< of links, jobs or what is measured of them
  std::map<std::string, MultiJobState> multi_job_;
  std::map<std::string, JobRhythm> rhythms_;
  std::map<std::string, KeptModel> kept_;  ///< what jobs were last modelled with
  double multi_job_looked_s_ = 0;              ///< when the problem of all jobs was last made
  double step_checked_s_ = 0;
  std::optional<MultiJobQuestion> question_;  ///< that waits for its answer
  uint64_t planned_digest_ = 0;            ///< of the newest answer
  double multi_job_dirty_since_s_ = -1;
  MoveBrake move_brake_;                       ///< of plans of all jobs
  MoveWatch moves_;
  double next_multi_job_s_ = -1e300;
  std::set<std::string> conflicts_;        ///< of topology sources, that were reported
  size_t compared_links_ = 0;              ///< of the fabric when its sources were last compared
  v1::ClusterOutlook outlook_;

  struct Awaited {
    int64_t epoch = 0;
    double since_s = 0;                    ///< when it was pushed
    bool late = false;                     ///< told, and its flows count as they are
  };
  std::map<std::pair<std::string, std::string>, Awaited> awaited_;  ///< by job and host: not applied yet
  std::map<std::pair<std::string, std::string>, v1::Shortage> shortages_;  ///< newest word, by job and host
  Foretold would_paths_, would_jobs_;      ///< while nothing is pushed: by the plan of paths, and by that of all jobs
  int64_t judged_slot_ = -1;
  int64_t loss_slot_ = -1;
  std::map<std::pair<LinkId, Owner>, BitsPerSecond> rates_;  ///< of links, when paths were last given up for them
  int64_t capacity_changes_ = 0;           ///< times that some link gave something clearly else than before
  std::map<uint64_t, double> planned_shares_;  ///< of the newest plan (flow_demand.h)
  std::map<uint64_t, double> asked_shares_;    ///< those of its problem
  double activity_s_ = 0;
  bool asked_ = false;                     ///< the last tick asked for a plan
  double next_forget_s_ = 0;
  double dirty_since_s_ = -1;              ///< -1: nothing changed since the last plan
  std::vector<std::string> triggers_;
  double next_plan_s_ = -1e300;
  double picture_s_ = -1e300;              ///< no plan before: flows that were resumed have yet to be measured
  double picture_since_s_ = -1e300;        ///< when the first of them came
  double collision_retry_s_ = -1e300;      ///< a collision that planning could not mend is not tried before
};

}  // namespace weft::controller
