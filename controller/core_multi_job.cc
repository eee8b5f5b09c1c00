// The half of the core that has all jobs planned together: when it asks, and what it makes of the answer. Traffic classes
// and time windows are leased: the agents renew them while this controller lives.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/parse_units.h"
#include "controller/core.h"
#include "proto/operation_codec.h"

namespace weft::controller {
namespace {

constexpr double kAnswerTimeout = 120;   // seconds, after which a question counts as lost
constexpr double kGracePeriods = 20;     // until agents' medians are of iterations with new windows
constexpr double kLookAgain = 60;        // seconds, after which jobs with windows are looked at anew
constexpr size_t kLinksNamed = 4;
constexpr size_t kMostConflicts = 100;

/// What was found out about a job, without its names in other tables.
v1::MultiJobDecision ToDecision(const planner::MultiJobJobPlan& plan, const planner::MultiJobJob& job) {
  v1::MultiJobDecision decision;
  double bytes = 0;
  for (const planner::MultiJobFlow& flow : job.flows) bytes += static_cast<double>(flow.bytes.count());
  decision.set_compute_s(job.compute.count());
  decision.set_release_s(job.release.count());
  decision.set_communication_s(plan.communication.count());
  decision.set_bytes(static_cast<int64_t>(bytes));
  decision.set_intensity(plan.intensity);
  decision.set_correction(plan.correction);
  decision.set_traffic_class(plan.traffic_class);
  decision.set_predicted_s(plan.predicted.count());
  decision.set_bound_s(plan.bound.count());
  if (plan.bound.count() > 0) decision.set_gap(std::max(0.0, plan.predicted / plan.bound - 1));
  for (const std::string& reason : plan.why) decision.add_why(reason);
  for (const std::string& reason : plan.rejected) decision.add_rejected(reason);
  return decision;
}

/// Where there is nothing to choose, that is no want of probes.
void AddSinglePaths(const planner::MultiJobJob& job, v1::MultiJobDecision& decision) {
  const auto single = std::count_if(job.flows.begin(), job.flows.end(), [](const auto& flow) { return flow.paths.size() == 1; });
  if (single == 0) return;
  decision.add_why(fmt::format("{} of {} flows have one path only: both hosts hang on one switch, or all probed ports go one way",
                               single, job.flows.size()));
}

void AddContenders(const planner::MultiJobJobPlan& plan, const planner::MultiJobProblem& problem,
                   const planner::MultiJobPlan& all, v1::MultiJobDecision& decision) {
  for (const planner::MultiJobContender& other : plan.meets) {
    v1::Contender* contender = decision.add_meets();
    contender->set_job_id(problem.jobs[other.job].name);
    contender->set_intensity(all.jobs[other.job].intensity);
    contender->set_traffic_class(all.jobs[other.job].traffic_class);
    contender->set_link_count(static_cast<int64_t>(other.links.size()));
    for (size_t i = 0; i < other.links.size() && i < kLinksNamed; ++i) {
      contender->add_links(problem.topology.LinkName(other.links[i]));
    }
  }
}

}  // namespace

/// `step`: so many classes later.
int32_t Core::DscpOf(const std::string& job_id, int32_t step) const {
  const std::vector<int32_t>& dscp = options_.joint.dscp;
  const auto joint = multi_job_.find(job_id);
  if (joint == multi_job_.end() || joint->second.force.traffic_class < 0) return 0;
  if (classes_.IsWithdrawn(job_id)) return dscp.size() < 2 ? 0 : dscp.back();
  const auto index = std::clamp(joint->second.force.traffic_class + step, 0, static_cast<int32_t>(dscp.size()) - 1);
  return dscp.size() < 2 ? 0 : dscp[static_cast<size_t>(index)];
}

std::pair<bool, bool> Core::FreeNeighbours(const std::string& job_id) const {
  const auto mine = multi_job_.find(job_id);
  const auto last = static_cast<int32_t>(options_.joint.dscp.size()) - 1;
  if (mine == multi_job_.end() || mine->second.force.traffic_class < 0 || last < 1 || classes_.IsWithdrawn(job_id)) return {false, false};
  const int32_t own = std::min(mine->second.force.traffic_class, last);
  bool later = own < last, earlier = own > 0;
  for (const auto& [id, job] : jobs_.jobs()) {
    if (id == job_id || job.state != JobState::kRunning) continue;
    const auto other = multi_job_.find(id);
    const bool decided = other != multi_job_.end() && other->second.force.traffic_class >= 0 && !classes_.IsWithdrawn(id);
    const int32_t theirs = decided ? std::min(other->second.force.traffic_class, last) : last;
    later &= theirs != own + 1;
    earlier &= theirs != own - 1;
  }
  return {later, earlier};
}

Core::InnerClasses Core::InnerClassesOf(const std::string& job_id) const {
  if (options_.joint.dscp.size() < 2) return {};
  InnerClasses inner{.known = CommunicatorsOf(job_id)};
  if (!inner.known.empty()) std::tie(inner.later, inner.earlier) = FreeNeighbours(job_id);
  return inner;
}

Core::Communicators Core::CommunicatorsOf(const std::string& job_id) const {
  const Job* job = jobs_.Find(job_id);
  if (job == nullptr || !job->submitted || !job->plan.has_operations()) return {};
  const Result<planner::OperationList> list = proto::OperationListFromProto(job->plan.operations());
  if (!list) return {};
  const std::vector<std::string> rank_hosts(job->plan.rank_hosts().begin(), job->plan.rank_hosts().end());
  std::vector<const SendFlow*> flows;
  for (const std::string& host : std::set<std::string>(rank_hosts.begin(), rank_hosts.end())) {
    for (const uint64_t id : table_.FlowsOf(host)) {
      const SendFlow& flow = table_.flows().at(id);
      if (flow.identity.job_id() == job_id && !flow.stale()) flows.push_back(&flow);
    }
  }
  return MatchCommunicators(*list, rank_hosts, flows);
}

/// Follows the measured periods: one that moves away from what was planned with calls for another plan.
void Core::WatchRhythms() {
  const double drift = options_.joint.drift;
  const std::map<std::string, double> periods = MeasuredPeriods(table_);
  bool shifted = false, dirty = false;
  for (const auto& [id, job] : jobs_.jobs()) {
    if (job.state == JobState::kReleased) continue;
    const auto measured = periods.find(id);
    JobRhythm& rhythm = rhythms_[id];
    const bool was_steady = rhythm.steady;
    const auto joint = multi_job_.find(id);
    const double window_s = joint == multi_job_.end() ? 0 : joint->second.window.period_s;
    shifted |= window_s > 0;
    if (window_s > 0) Widen(id);
    if (window_s > 0 && now_s_ < joint->second.window_since_s + kGracePeriods * window_s) continue;
    Follow(rhythm, measured == periods.end() ? 0 : measured->second, drift, now_s_);
    const double planned_with = joint == multi_job_.end() ? 0 : joint->second.period_s;
    rhythm.steady = IsSteady(rhythm, now_s_);
    const bool drifted = std::abs(rhythm.period_s - planned_with) > drift * planned_with;  // also if there is none any more
    dirty |= drifted || (rhythm.steady && !was_steady) || MayTryAgain(id);
    WatchShift(id, rhythm);
  }
  // What a job does between windows can change without a change of its period, which the windows hold.
  dirty |= shifted && now_s_ - multi_job_looked_s_ >= kLookAgain;
  if (dirty && multi_job_dirty_since_s_ < 0) multi_job_dirty_since_s_ = now_s_;
  KeepInStep();
}

/// Compares what probes found with what files say, when there is more of it.
void Core::WatchTopology() {
  const size_t links = fabric_.topology().links().size();
  if (options_.imported.empty() || links == compared_links_) return;
  compared_links_ = links;
  std::map<std::string, std::string> probed;
  std::map<std::string, BitsPerSecond> configured;
  for (const auto& [name, host] : hosts_) {
    const std::string leaf = fabric_.LeafOf(name);
    if (leaf.empty()) continue;
    probed[name] = leaf;
    const auto from = fabric_.topology().FindNode(name), to = fabric_.topology().FindNode(leaf);
    if (!from || !to) continue;
    if (const auto link = fabric_.topology().FindLink(*from, *to)) configured[name] = fabric_.topology().link(*link).line_rate;
  }
  std::vector<std::string> found = options_.imported.conflicts;
  for (std::string& conflict : TopologyConflicts(options_.imported, probed, configured)) found.push_back(std::move(conflict));
  for (const std::string& conflict : found) {
    if (conflicts_.size() < kMostConflicts && conflicts_.insert(conflict).second) Decide("topology", "", conflict);
  }
}

bool Core::MaybePlanJobs() {
  if (question_ && now_s_ - question_->asked_s < kAnswerTimeout) return false;
  if (multi_job_dirty_since_s_ < 0 || now_s_ < next_multi_job_s_) return false;
  if (now_s_ - multi_job_dirty_since_s_ < options_.joint.settle.count()) return false;
  multi_job_dirty_since_s_ = -1;
  next_multi_job_s_ = now_s_ + options_.joint.interval.count();
  std::map<std::string, MultiJobInForce> in_force;
  for (const auto& [id, state] : multi_job_) {
    in_force[id] = state.force;
    if (state.force.shifted) in_force[id].before_s = state.before_s;
  }
  MultiJobQuestion question{.asked_s = now_s_, .capacity_changes = capacity_changes_, .input = {}, .problem = nullptr};
  question.input = BuildMultiJobProblem({.table = &table_, .fabric = &fabric_, .monitor = &monitor_, .jobs = &jobs_.jobs(),
                                      .in_force = &in_force, .rhythms = &rhythms_, .kept = &kept_,
                                      .drift = options_.joint.drift, .now_s = now_s_},
                                     options_.joint.planning);
  multi_job_looked_s_ = now_s_;
  for (const auto& [id, model] : question.input.kept) kept_[id] = model;
  if (!options_.joint.shifts) {
    for (planner::MultiJobJob& job : question.input.problem.jobs) job.stable = job.shifted = false;
  }
  question.problem = std::make_shared<const planner::MultiJobProblem>(std::move(question.input.problem));
  question.input.problem = {};
  question.digest = planner::DigestOf(*question.problem);
  if (question.digest == planned_digest_) return true;  // nothing that matters has changed
  actions_.push_back(PlanJobs{question.digest, question.problem});
  question_ = std::move(question);
  return true;
}

void Core::On(const JobsPlanned& event) {
  const bool wanted = question_ && event.digest == question_->digest && event.plan != nullptr &&
                      event.plan->jobs.size() == question_->problem->jobs.size();
  if (!wanted) {
    ++ignored_;
    return;
  }
  MultiJobQuestion question = std::move(*question_);
  question_.reset();
  planned_digest_ = event.digest;
  ++counters_.multi_job_plans;
  ++changes_;
  question.input.problem = *question.problem;
  TakeOutlook(*event.plan);
  TakePaths(question, *event.plan);
  TakeMultiJob(question.input, *event.plan);
}

void Core::TakeOutlook(const planner::MultiJobPlan& plan) {
  outlook_.Clear();
  outlook_.set_jobs(plan.modelled);
  outlook_.set_gpu_use(plan.gpu_use);
  outlook_.set_gpu_use_default(plan.gpu_use_default);
  outlook_.set_gpu_use_bound(plan.gpu_use_bound);
  outlook_.set_gap(plan.gap);
  outlook_.set_decided_s(now_s_);
  outlook_.set_complete(plan.complete);
  for (const std::string& note : plan.notes) outlook_.add_notes(note);
  for (const std::string& conflict : conflicts_) outlook_.add_notes("topology: " + conflict);
}

/// What was decided with all jobs together stands against the plan of flows alone (flow_planner.h) until some way of a flow changes.
void Core::TakePaths(const MultiJobQuestion& question, const planner::MultiJobPlan& plan) {
  if (question.capacity_changes != capacity_changes_) {  // another plan is due, also where the links give again what they gave then
    planned_digest_ = 0;
    if (mode_ != v1::MODE_ENFORCE) would_jobs_ = {};
    return;
  }
  std::vector<AskedFlow> asked;
  std::vector<std::vector<double>> shares;
  for (const auto& [id, flows] : question.input.asked) {
    const Job* job = jobs_.Find(id);
    const planner::MultiJobJobPlan& decided = plan.jobs[question.input.models.at(id).place];
    if (job == nullptr || job->state == JobState::kReleased || !decided.modelled || decided.shares.size() != flows.size()) continue;
    asked.insert(asked.end(), flows.begin(), flows.end());
    shares.insert(shares.end(), decided.shares.begin(), decided.shares.end());
  }
  FlowDecision decision{.moves = MovesTo(table_, monitor_, asked, shares),
                        .outcome = fmt::format("GPU use of the {} measured jobs {:.1f} % simulated, before {:.1f} %, bound {:.1f} %",
                                               plan.modelled, 100 * plan.gpu_use, 100 * plan.gpu_use_present, 100 * plan.gpu_use_bound)};
  if (mode_ != v1::MODE_ENFORCE) return Foretell(decision, {"all jobs were planned together"}, would_jobs_);
  const bool moves = std::ranges::any_of(decision.moves, [](const FlowMove& move) { return move.live && move.shares_changed; });
  if (moves) {
    std::set<std::string> jobs;
    for (const auto& [id, flows] : question.input.asked) jobs.insert(id);
    const double gain = plan.gpu_use_present > 0 ? plan.gpu_use / plan.gpu_use_present - 1 : 1;
    if (!move_brake_.Passes(gain, jobs, capacity_changes_, now_s_)) {
      // They stay where they are, which is almost as good: no plan of flows alone moves them either.
      for (const AskedFlow& one : asked) Settle(one);
      return;
    }
  }
  if (!decision.moves.empty()) Apply(decision, {"all jobs were planned together"});
  std::set<uint64_t> elsewhere;  // what was left out
  for (const FlowMove& move : decision.moves) {
    if (const SendFlow* flow = table_.Find(move.flow); flow != nullptr && flow->decided != move.weights) elsewhere.insert(move.flow);
  }
  for (const AskedFlow& one : asked) {
    if (!elsewhere.contains(one.flow)) Settle(one);
  }
}

/// The flow's paths stand against the plan of flows alone, where they are still those that were asked about.
void Core::Settle(const AskedFlow& asked) {
  SendFlow* flow = table_.Find(asked.flow);
  if (flow != nullptr && !flow->decided.empty() && StillStands(*flow, asked)) flow->settled = true;
}

void Core::TakeMultiJob(const MultiJobInput& input, const planner::MultiJobPlan& plan) {
  const bool enforce = mode_ == v1::MODE_ENFORCE;
  std::set<std::string> changed;
  for (const auto& [id, model] : input.models) {
    const Job* job = jobs_.Find(id);
    if (job == nullptr || job->state == JobState::kReleased) continue;
    MultiJobState& state = multi_job_[id];
    const bool known = model.source != "none" && plan.jobs[model.place].modelled;
    v1::MultiJobDecision decision;
    if (known) {
      decision = ToDecision(plan.jobs[model.place], input.problem.jobs[model.place]);
      AddSinglePaths(input.problem.jobs[model.place], decision);
      AddContenders(plan.jobs[model.place], input.problem, plan, decision);
    } else {
      decision.set_traffic_class(state.force.traffic_class < 0 ? options_.joint.planning.classes - 1
                                                               : state.force.traffic_class);
      decision.add_why("not modelled: " + (model.missing.empty() ? "a link on its way is dead" : model.missing));
      if (table_.UnsettleJob(id)) TouchPaths(fmt::format("job {} is not planned with the others any more", id));
    }
    decision.set_model(known ? model.source : "none");
    decision.set_classes(options_.joint.planning.classes);
    decision.set_dscp(classes_.IsWithdrawn(id) ? options_.joint.dscp.back() : options_.joint.dscp[static_cast<size_t>(decision.traffic_class())]);
    decision.set_decided_s(now_s_);
    state.period_s = model.source == "measured" ? model.period_s : 0;  // else asked again once it is measured
    if (known && enforce && TakeClass(id, decision)) changed.insert(id);
    if (state.window.period_s > 0) {
      decision.set_shift_s(state.decision.shift_s());
      decision.set_window_s(state.decision.window_s());
    }
    state.decision = std::move(decision);
  }
  if (enforce) changed.merge(TakeShifts(input, plan));
  else ForetellJobs(input, plan);
  PushJobs(changed);
}

/// True if the job's packets are to be marked otherwise than before.
bool Core::TakeClass(const std::string& job_id, const v1::MultiJobDecision& decision) {
  MultiJobState& state = multi_job_[job_id];
  const int32_t before = DscpOf(job_id);
  const int32_t old_class = state.force.traffic_class;
  state.force.traffic_class = decision.traffic_class();
  if (DscpOf(job_id) == before) {
    // Its communicators may have classes of their own from now on.
    const Job* job = jobs_.Find(job_id);
    return old_class < 0 && options_.joint.dscp.size() > 1 && job != nullptr && job->plan.has_operations();
  }
  Decide("class", job_id,
         fmt::format("class {} of {} (DSCP {}) in place of {}; {}", decision.traffic_class(), decision.classes(),
                     decision.dscp(),
                     old_class < 0 || old_class == decision.classes() - 1 ? std::string("the default")
                                                                         : fmt::format("{}", old_class),
                     fmt::join(decision.why(), "; ")));
  classes_.Changed(now_s_);
  return true;
}

/// All that was decided for classes and windows again: hosts may have missed some of it while nothing was pushed.
void Core::PushAllJobs() {
  std::set<std::string> jobs;
  for (const auto& [id, state] : multi_job_) {
    if (state.force.traffic_class >= 0 || state.window.period_s > 0) jobs.insert(id);
  }
  PushJobs(jobs);
}

/// New epochs of these jobs to all hosts that send for them.
void Core::PushJobs(const std::set<std::string>& jobs) {
  if (mode_ != v1::MODE_ENFORCE) return;
  std::set<std::pair<std::string, std::string>> targets;
  std::set<std::string> pushed;
  for (const auto& [id, flow] : table_.flows()) {
    const std::string& job_id = flow.identity.job_id();
    if (!jobs.contains(job_id) || flow.stale()) continue;
    targets.insert({job_id, flow.host});
    pushed.insert(job_id);
  }
  PushPolicies(pushed, targets);
}

}  // namespace weft::controller
