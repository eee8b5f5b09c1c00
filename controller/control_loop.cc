#include "controller/control_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <stop_token>
#include <utility>

#include "common/log.h"
#include "controller/job_hosts.h"
#include "controller/patience.h"

namespace weft::controller {
namespace {

constexpr char kComponent[] = "controller";

/// What the submitter is told; the job's status has it apart.
void AddErrors(PlannedJob& planned) {
  const char* const what = planned.plan.has_strategy() ? "" : "not planned: ";
  for (const std::string& error : planned.errors) planned.plan.add_why(what + error);
}

tl::unexpected<Error> CallerGone(const v1::JobSpec& spec) {
  return Fail(Code::kCancelled, fmt::format("job \"{}\": its caller has gone while it was planned: not kept", spec.job_id()));
}

constexpr int kMostAttempts = 3;  // to plan a job whose hosts went to others meanwhile

PlacementView ViewFor(const Core& core, const v1::JobSpec& spec) {
  PlacementView view = core.Placement(spec.job_id());
  if (AsksForHosts(spec)) view.used = core.UsedHosts(spec.job_id());
  return view;
}

JobAdvised Advise(const AdviseRestart& question, const JobPlannerOptions& planner, const AdviceOptions& options, const std::stop_token& stop) {
  const Patience patience(planner.patience, stop);
  JobAdvised answer{.job_id = question.spec.job_id(), .fabric = question.looked_at, .unchanged = true, .advice = {}, .change = {}};
  Result<Advised> advised = AdviseJob(question, planner, options, patience.token());
  if (!advised) {
    LogWarn(kComponent, "no advice", {{"job", answer.job_id}, {"error", advised.error().message()}});
    return answer;
  }
  answer.unchanged = advised->fabric == question.looked_at;
  answer.fabric = std::move(advised->fabric);
  answer.advice = std::move(advised->advice);
  answer.change = std::move(advised->change);
  return answer;
}

}  // namespace

ControlLoop::ControlLoop(ControlLoopOptions options, std::unique_ptr<Journal> journal, Clock* clock, Metrics* metrics)
    : options_(std::move(options)),
      clock_(clock),
      metrics_(metrics),
      start_(clock->Now()),
      journal_(std::move(journal)),
      core_(options_.core),
      incarnation_(options_.incarnation > 0 ? options_.incarnation : WallClockIncarnation()),
      qos_(options_.qos),
      multi_job_worker_([this](const JobsPlanned& planned) {
        const std::lock_guard lock(mutex_);
        Handle({.body = planned});
      }),
      path_worker_([this](const PlanPaths& question, const std::stop_token& stop) {
                     const Seconds begin = clock_->Now();
                     PathsPlanned answer{question.number, std::make_shared<const planner::FlowPlan>(planner::ChoosePaths(*question.problem, stop))};
                     metrics_->ObserveReplan(clock_->Now() - begin);
                     return answer;
                   },
                   [this](const PathsPlanned& planned) {
                     const std::lock_guard lock(mutex_);
                     Handle({.body = planned});
                   }),
      advice_worker_([this](const AdviseRestart& question, const std::stop_token& stop) {
                       std::unique_lock lock(mutex_);
                       const JobPlannerOptions planner = PlannerNow();
                       lock.unlock();
                       return Advise(question, planner, options_.advice, stop);
                     },
                     [this](const JobAdvised& advised) {
                       const std::lock_guard lock(mutex_);
                       Handle({.body = advised});
                     }),
      learn_worker_([this](const Lesson& lesson, const std::stop_token& stop) { return Learn(lesson, stop); },
                    [this](const Learned& learned) {
                      const std::lock_guard lock(mutex_);
                      Take(learned);
                    }) {}

Status ControlLoop::Recover() {
  const std::lock_guard lock(mutex_);
  if (journal_ == nullptr) return Ok();
  WEFT_ASSIGN_OR_RETURN(const std::vector<Event> events, journal_->Replay());
  WEFT_ASSIGN_OR_RETURN(incarnation_, journal_->NextIncarnation(incarnation_));
  v1::Mode journalled = v1::MODE_UNSPECIFIED;
  replaying_ = true;
  for (const Event& event : events) {
    if (const auto* mode = std::get_if<ModeSet>(&event.body)) journalled = mode->mode;
    else Handle(event);
  }
  replaying_ = false;
  ReconcileMode(journalled);
  WEFT_RETURN_IF_ERROR(RecoverRuns());
  LogInfo(kComponent, "journal replayed", {{"events", events.size()}, {"jobs", core_.Jobs().size()}});
  return Ok();
}

template <typename Change>
Status ControlLoop::KeepInJournal(const Change& change) {
  if (journal_ == nullptr || replaying_) return Ok();
  const Status status = journal_->Keep(change);
  if (!status) {
    ++journal_errors_;
    LogError(kComponent, "journal not written", {{"error", status.error().message()}});
  }
  return status;
}

// For control_loop_brake.cc.
template Status ControlLoop::KeepInJournal(const ModeSet&);
template Status ControlLoop::KeepInJournal(const JobReleased&);
template Status ControlLoop::KeepInJournal(const KeepPlan&);
// For control_loop_learn.cc.
template Status ControlLoop::KeepInJournal(const KeepRun&);

void ControlLoop::Handle(Event event) {
  if (!replaying_) event.time = Now();
  for (const Action& action : core_.Handle(event)) Carry(action);
}

void ControlLoop::SendTo(const std::string& host, v1::ControllerMessage message) {
  const auto session = sessions_.find(host);
  if (session != sessions_.end()) session->second->Send(std::move(message));
}

void ControlLoop::Carry(const Action& action) {
  v1::ControllerMessage message;
  if (const auto* policy = std::get_if<PushPolicy>(&action)) {
    *message.mutable_policy() = policy->policy;
    SendTo(policy->host, std::move(message));
  } else if (const auto* launch = std::get_if<PushLaunch>(&action)) {
    *message.mutable_launch() = launch->launch;
    SendTo(launch->host, std::move(message));
  } else if (const auto* ended = std::get_if<PushEnded>(&action)) {
    *message.mutable_ended() = ended->ended;
    SendTo(ended->host, std::move(message));
  } else if (const auto* again = std::get_if<PushProbeAgain>(&action)) {
    *message.mutable_probe_again() = again->again;
    SendTo(again->host, std::move(message));
  } else if (const auto* epoch = std::get_if<KeepEpoch>(&action)) {
    // A policy goes out even if its epoch could not be kept: agents tell the epochs that they hold when they join.
    static_cast<void>(KeepInJournal(*epoch));
  } else if (const auto* forgotten = std::get_if<ForgetEpoch>(&action)) {
    static_cast<void>(KeepInJournal(*forgotten));
  } else if (const auto* started = std::get_if<KeepStarted>(&action)) {
    static_cast<void>(KeepInJournal(*started));
  } else if (const auto* released = std::get_if<KeepReleased>(&action)) {
    static_cast<void>(KeepInJournal(*released));
  } else if (const auto* plan = std::get_if<KeepPlan>(&action)) {
    static_cast<void>(KeepOrLater("job " + plan->job_id, *plan));  // the word goes out even so
  } else if (const auto* question = std::get_if<PlanJobs>(&action)) {
    multi_job_worker_.Ask(*question);
  } else if (const auto* paths = std::get_if<PlanPaths>(&action)) {
    path_worker_.AskInstead(*paths);
  } else if (const auto* restart = std::get_if<AdviseRestart>(&action)) {
    if (!replaying_) advice_worker_.Ask(*restart);
  } else if (const auto* record = std::get_if<Record>(&action); record != nullptr && !replaying_) {
    const v1::Decision& decision = record->decision;
    LogInfo(kComponent, "decided", {{"kind", decision.kind()}, {"job", decision.job_id()}, {"epoch", decision.epoch()},
                                    {"reason", decision.reason()}});
  }
}

Status ControlLoop::Join(const v1::Register& message, const std::shared_ptr<AgentOutbox>& outbox) {
  const std::string& host = message.host();
  if (host.empty() || host.size() > 255) {
    return Fail(Code::kInvalidArgument, fmt::format("register: host \"{}\": expected 1 to 255 characters", host));
  }
  const std::lock_guard lock(mutex_);
  WEFT_RETURN_IF_ERROR(CheckNotSuperseded(message));
  std::shared_ptr<AgentOutbox>& session = sessions_[host];
  if (session != nullptr) {
    ++sessions_closed_;
    if (message.incarnation() < core_.IncarnationOf(host)) {
      return Fail(Code::kAborted,
                  fmt::format("register: host \"{}\" incarnation {}: a session of incarnation {} is open", host,
                              message.incarnation(), core_.IncarnationOf(host)));
    }
    session->Close(Code::kAborted, fmt::format("host \"{}\" has a newer session", host));
  }
  session = outbox;
  parts_.Forget(host);
  v1::ControllerMessage welcome;
  welcome.mutable_welcome()->set_cluster(options_.cluster_name);
  welcome.mutable_welcome()->set_controller_incarnation(incarnation_);
  welcome.mutable_welcome()->set_heartbeat_interval_s(kHeartbeatInterval.count());
  welcome.mutable_welcome()->set_sample_interval_s(options_.core.sample_interval.count());
  outbox->Send(std::move(welcome));
  TellQos(outbox.get());
  LogInfo(kComponent, "agent joined", {{"host", host}, {"incarnation", message.incarnation()}});
  Handle({.body = HostRegistered{message}});
  return Ok();
}

void ControlLoop::Receive(const std::string& host, const AgentOutbox* outbox, v1::AgentMessage message) {
  const Seconds begin = clock_->Now();
  if (message.has_sample()) {
    for (const v1::PolicyApplied& applied : message.sample().applied()) {
      if (applied.delay_s() >= 0) metrics_->ObserveApplied(Seconds(applied.delay_s()));
    }
  }
  const std::lock_guard lock(mutex_);
  const auto session = sessions_.find(host);
  if (session == sessions_.end() || session->second.get() != outbox) return;
  switch (message.kind_case()) {
    case v1::AgentMessage::kSample:
      if (!parts_.Complete(host, message.mutable_sample())) break;
      Handle({.body = SampleReceived{host, std::move(*message.mutable_sample())}});
      metrics_->ObserveSample(clock_->Now() - begin);
      break;
    case v1::AgentMessage::kPaths:
      Handle({.body = PathsReceived{host, std::move(*message.mutable_paths())}});
      break;
    case v1::AgentMessage::kQos:
      TakeQos(host, std::move(*message.mutable_qos()));
      break;
    case v1::AgentMessage::kRegisterHost:  // interfaces changed; the session stays, and with it the host's name
      if (message.register_host().host() == host) {
        Handle({.body = HostRegistered{std::move(*message.mutable_register_host()), /*again=*/true}});
      }
      break;
    case v1::AgentMessage::KIND_NOT_SET:
      break;
  }
}

void ControlLoop::Leave(const std::string& host, const AgentOutbox* outbox) {
  const std::lock_guard lock(mutex_);
  const auto session = sessions_.find(host);
  if (session == sessions_.end() || session->second.get() != outbox) return;
  sessions_.erase(session);
  parts_.Forget(host);
  LogWarn(kComponent, "agent left", {{"host", host}});
  Handle({.body = HostLost{host}});
}

Result<v1::JobPlan> ControlLoop::Plan(const v1::JobSpec& spec, const std::stop_token& gone) {
  PlacementView view;
  JobPlannerOptions planner;
  {
    const std::lock_guard lock(mutex_);
    view = ViewFor(core_, spec);
    planner = PlannerNow();
  }
  const Seconds begin = clock_->Now();
  const Patience patience(options_.planner.patience, gone);
  WEFT_ASSIGN_OR_RETURN(PlannedJob planned, PlanJob(spec, view, planner, patience.token()));
  if (gone.stop_requested()) return CallerGone(spec);
  metrics_->ObservePlan(clock_->Now() - begin);
  AddErrors(planned);
  return std::move(planned.plan);
}

Result<v1::JobPlan> ControlLoop::Submit(const v1::JobSpec& spec, const std::stop_token& gone) {
  const auto known = [&] {
    const auto job = core_.FindJob(spec.job_id());
    if (!job || job->state() == "released") return false;
    // Who submits it owns it: one that somebody else has submitted stays his, planned or not.
    if (const std::string& owner = job->spec().submitter(); !owner.empty() && owner != spec.submitter()) return true;
    // One whose flows merely appeared may still be submitted, and one that could not be planned submitted again.
    return job->has_plan() && job->planning_errors().empty();
  };
  const auto exists = [&] { return Fail(Code::kAlreadyExists, fmt::format("job \"{}\" exists already", spec.job_id())); };
  const Patience patience(options_.planner.patience, gone);
  std::unique_lock lock(mutex_);
  PlannedJob planned;
  for (int attempt = 0; attempt == 0 || (AsksForHosts(spec) && !core_.AreFree(planned.order, spec.job_id())); ++attempt) {
    if (attempt == kMostAttempts) {
      return Fail(Code::kFailedPrecondition,
                  fmt::format("job \"{}\": its hosts went to jobs that were submitted at the same time, submit it again", spec.job_id()));
    }
    if (known()) return exists();
    const PlacementView view = ViewFor(core_, spec);
    const JobPlannerOptions planner = PlannerNow();
    lock.unlock();  // samples and flow planning must not wait for a strategy search
    const Seconds begin = clock_->Now();
    WEFT_ASSIGN_OR_RETURN(planned, PlanJob(spec, view, planner, patience.token()));
    if (gone.stop_requested()) return CallerGone(spec);
    metrics_->ObservePlan(clock_->Now() - begin);
    lock.lock();
  }
  if (known()) return exists();
  // Two jobs that are planned at the same time see the same trees free.
  KeepTreeQuota(spec.job_id(), core_.TreeJobs(), options_.planner.reduction.switches.trees, &planned.plan);
  const JobSubmitted submitted{planned.spec, planned.plan, planned.errors};
  WEFT_RETURN_IF_ERROR(KeepInJournal(submitted));
  unkept_.erase("job " + spec.job_id());   // what was left to write of an earlier job of this name
  Handle({.body = submitted});
  AddErrors(planned);
  return std::move(planned.plan);
}

std::string ControlLoop::Release(const std::string& job_id) {
  const std::lock_guard lock(mutex_);
  return Brake({.body = JobReleased{job_id}});
}

Result<std::string> ControlLoop::SetMode(v1::Mode mode) {
  if (mode != v1::MODE_OBSERVE && mode != v1::MODE_ENFORCE) {
    return Fail(Code::kInvalidArgument,
                fmt::format("mode {}: expected MODE_OBSERVE or MODE_ENFORCE", static_cast<int>(mode)));
  }
  const std::lock_guard lock(mutex_);
  const ModeSet set{mode, ""};
  if (mode == v1::MODE_OBSERVE) return Brake({.body = set});
  WEFT_RETURN_IF_ERROR(KeepInJournal(set));
  unkept_.erase("mode");
  superseded_by_.clear();
  Handle({.body = set});
  return std::string();
}

std::vector<v1::JobStatus> ControlLoop::Jobs() const {
  const std::lock_guard lock(mutex_);
  return core_.Jobs();
}

Result<v1::ExplainJobResponse> ControlLoop::Explain(const std::string& job_id) const {
  const std::lock_guard lock(mutex_);
  std::optional<v1::JobStatus> job = core_.FindJob(job_id);
  if (!job) return Fail(Code::kNotFound, fmt::format("no job \"{}\"", job_id));
  v1::ExplainJobResponse response;
  for (std::string& line : QosLines(*job)) response.add_qos(std::move(line));
  *response.mutable_job() = std::move(*job);
  for (const v1::Decision& decision : core_.decisions()) {
    if (decision.job_id() == job_id || decision.job_id().empty()) *response.add_decisions() = decision;
  }
  for (std::string& line : core_.Would(job_id)) response.add_would(std::move(line));
  *response.mutable_cluster() = core_.outlook();
  return response;
}

v1::GetTopologyResponse ControlLoop::Topology() const {
  const std::lock_guard lock(mutex_);
  v1::GetTopologyResponse response;
  for (v1::HostStatus& host : core_.Hosts()) *response.add_hosts() = std::move(host);
  for (v1::LinkStatus& link : core_.Links()) *response.add_links() = std::move(link);
  return response;
}

v1::ListDecisionsResponse ControlLoop::Decisions() const {
  const std::lock_guard lock(mutex_);
  v1::ListDecisionsResponse response;
  for (const v1::Decision& decision : core_.decisions()) *response.add_decisions() = decision;
  response.set_replans(core_.counters().replans);
  response.set_policy_epochs(core_.counters().policy_epochs);
  *response.mutable_cluster() = core_.outlook();
  return response;
}

v1::Mode ControlLoop::mode() const {
  const std::lock_guard lock(mutex_);
  return core_.mode();
}

void ControlLoop::Tick() {
  const std::lock_guard lock(mutex_);
  Handle({.body = controller::Tick{}});
  Beat();
  WatchRuns();
}

std::string ControlLoop::MetricsText() const {
  MetricsView view;
  {
    const std::lock_guard lock(mutex_);
    view = {.jobs = core_.Jobs(),
            .hosts = core_.Hosts(),
            .links = core_.Links(),
            .counters = core_.counters(),
            .ignored = core_.ignored(),
            .flows = core_.flow_count(),
            .unattributed_bytes = core_.unattributed_bytes(),
            .mode = core_.mode(),
            .outlook = core_.outlook(),
            .sessions_closed = sessions_closed_,
            .journal_errors = journal_errors_,
            .qos_drifts = qos_.Drifts(),
            .learned = {.runs = learned_.runs, .before = learned_.before, .after = learned_.after},
            .uptime = Now()};
  }
  return metrics_->Render(view);
}

}  // namespace weft::controller
