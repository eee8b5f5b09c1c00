// Time windows: from the planner's shifts and where bursts are now to windows on each host's clock, and the loop around it.
//
// What keeps the loop still: windows that are long enough and stand to each other as planned stay, whatever else a plan
// says; those of jobs that could meet are made together or not at all; a job's model stays while it is nearly right
// (multi_job_problem.h); and windows that did a job no good are not tried again soon, each time later.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/parse_units.h"
#include "controller/core.h"

namespace weft::controller {
namespace {

constexpr double kSameShift = 0.1;       // of the period: windows that are closer to their place stay
constexpr double kTooLong = 0.03;        // of the period: windows that come later than needed by less stay,
constexpr double kTooShort = 0.01;       // and those that come earlier than needed by less
constexpr double kSameRatio = 1e-3;      // of two periods
constexpr double kSlower = 0.005;        // of the period, from which on a job can't keep up with its windows,
constexpr double kHeld = 0.035;          // and the mean hold, from which on they come later than it needs
constexpr double kWorse = 0.02;          // of the period, by which iterations may last longer than planned
constexpr double kTight = 0.04;          // of the period: how long windows are open while bursts fall in with them,
constexpr double kPlacingPeriods = 4;    // for so many periods
constexpr double kOutOfStep = 0.05;      // of the period, that clocks may carry a window away from its place
constexpr double kStepInterval = 10;     // seconds, between looks at that
constexpr double kFirstRetry = 60;       // seconds after windows that did no good; then twice as long each time,
constexpr double kLastRetry = 3600;      // up to this
constexpr double kProvenPeriods = 200;   // after which windows have done good

double Modulo(double value, double period) {
  const double rest = std::fmod(value, period);
  return rest < 0 ? rest + period : rest;
}

/// In [-period/2, period/2).
double Centred(double value, double period) { return Modulo(value + period / 2, period) - period / 2; }

std::string Duration(double seconds) { return FormatDuration(Seconds(seconds)); }

}  // namespace

/// When a burst of the job began, in our time; by the first of these flows that knows.
std::optional<double> Core::PhaseOf(const std::vector<uint64_t>& flows) const {
  for (const uint64_t id : flows) {
    const SendFlow& flow = table_.flows().at(id);
    if (!flow.stale() && flow.iteration_start_s > 0) return flow.iteration_start_s + hosts_.at(flow.host).offset_s;
  }
  return std::nullopt;
}

/// The job's window on the clock of the flow's host, as far before or after it as the flow's bursts begin before or after
/// one of the job's at `phase_s`. Hosts report at different times, so that the two may be of different iterations. A flow
/// whose phase is not known may begin at any time.
void Core::GiveWindow(SendFlow& flow, const FlowWindow& window, double phase_s) {
  flow.window = {};
  if (flow.iteration_start_s <= 0 || flow.period_s <= 0) return;
  const double offset_s = hosts_.at(flow.host).offset_s;
  const double lead_s = Centred(flow.iteration_start_s + offset_s - phase_s, flow.period_s);
  const bool placing = multi_job_.at(flow.identity.job_id()).placing;
  const double length_s = placing ? std::min(window.length_s, kTight * window.period_s) : window.length_s;
  flow.window = {window.period_s, std::max(0.0, window.offset_s + lead_s - offset_s), length_s, lead_s};
}

/// Flows that opened after the job had got its windows get one like the others. True if a window changed.
bool Core::JoinWindows(const Shifting& job) {
  const FlowWindow& window = multi_job_.at(job.job).window;
  std::vector<uint64_t> with, without;
  for (const uint64_t id : job.flows) {
    const SendFlow& flow = table_.flows().at(id);
    if (flow.window.period_s == window.period_s) with.push_back(id);
    else if (flow.window.period_s > 0 || (flow.iteration_start_s > 0 && flow.period_s > 0)) without.push_back(id);
  }
  const std::optional<double> phase = PhaseOf(with);
  if (!phase || without.empty()) return false;
  for (const uint64_t id : without) GiveWindow(*table_.Find(id), window, *phase);
  return true;
}

void Core::ClearWindows(const std::string& job_id) {
  for (const auto& [id, unused] : table_.flows()) {
    SendFlow& flow = *table_.Find(id);
    if (flow.identity.job_id() == job_id) flow.window = {};
  }
  MultiJobState& state = multi_job_[job_id];
  state.force.shifted = false;
  state.force.shift_s = 0;
  state.window = {};
  state.decision.clear_shift_s();
  state.decision.clear_window_s();
}

void Core::TakeBackWindows(const std::string& job_id, const std::string& why, bool failed) {
  ClearWindows(job_id);
  MultiJobState& state = multi_job_[job_id];
  std::string later;
  if (failed) {
    const double wait_s = std::min(kLastRetry, kFirstRetry * std::exp2(std::min(state.failures++, 20)));
    state.force.not_before_s = now_s_ + wait_s;
    later = "; none for the next " + Duration(wait_s);
  }
  Decide("shift", job_id, "time window taken back: " + why + later);
}

/// Whether the time in which the job was to have no windows has just ended.
bool Core::MayTryAgain(const std::string& job_id) const {
  const auto joint = multi_job_.find(job_id);
  if (joint == multi_job_.end()) return false;
  const double at_s = joint->second.force.not_before_s;
  return at_s > 0 && now_s_ >= at_s && multi_job_looked_s_ < at_s;
}

/// Iterations that began after `since_s` and were measured. The mean, since a median would not show the turns that a job
/// loses now and then.
Core::Pace Core::PaceOf(const std::string& job_id, double since_s) const {
  std::vector<double> means;
  Pace pace{.period_s = 0, .held_s = 1e300};
  for (const auto& [id, flow] : table_.flows()) {
    if (flow.identity.job_id() != job_id || flow.stale() || !flow.meter.known) continue;
    if (flow.meter.since_s + hosts_.at(flow.host).offset_s < since_s) continue;
    means.push_back(flow.meter.period_s);
    pace.held_s = std::min(pace.held_s, flow.meter.held_each_s);
  }
  if (means.empty()) return {};
  const auto middle = means.begin() + static_cast<std::ptrdiff_t>(means.size() / 2);
  std::nth_element(means.begin(), middle, means.end());
  pace.period_s = *middle;
  return pace;
}

/// Bursts have fallen in with their windows: from now on one that is a little late may go at once.
void Core::Widen(const std::string& job_id) {
  MultiJobState& state = multi_job_.at(job_id);
  if (mode_ != v1::MODE_ENFORCE || !state.placing) return;
  if (now_s_ < state.window_since_s + kPlacingPeriods * state.window.period_s) return;
  state.placing = false;
  for (const auto& [id, known] : table_.flows()) {
    if (known.identity.job_id() != job_id || known.window.period_s <= 0) continue;
    table_.Find(id)->window.length_s = state.window.length_s;
  }
  PushJobs({job_id});
}

/// Whether windows do a job good. One that is slower than they come would wait for one whole period after the other, and of
/// one without a period nobody knows: it is set free. While nothing is pushed hosts keep their windows, which is not to be
/// forgotten.
void Core::WatchShift(const std::string& job_id, const JobRhythm& rhythm) {
  const auto joint = multi_job_.find(job_id);
  if (mode_ != v1::MODE_ENFORCE || joint == multi_job_.end() || joint->second.window.period_s <= 0) return;
  MultiJobState& state = joint->second;
  const double planned_s = state.window.period_s;
  if (rhythm.period_s <= 0) {
    TakeBackWindows(job_id, fmt::format("it has no steady period any more, the window was made for {}", Duration(planned_s)),
                    /*failed=*/false);
    return PushJobs({job_id});
  }
  const Pace pace = PaceOf(job_id, state.window_since_s + kPlacingPeriods * planned_s);
  const double now_s = pace.period_s > 0 ? pace.period_s : rhythm.period_s;
  const double change = now_s / planned_s - 1;
  const bool useless = change > kWorse && now_s > state.before_s;
  if (std::abs(change) > options_.joint.drift || useless) {
    TakeBackWindows(job_id, fmt::format("its period is {}, the window was made for {}, and without it was {}", Duration(now_s),
                                        Duration(planned_s), Duration(state.before_s)),
                    /*failed=*/change > 0);
    return PushJobs({job_id});
  }
  if (now_s_ - state.window_since_s > kProvenPeriods * planned_s) state.failures = 0;
  if (state.misfit_told || (change <= kSlower && pace.held_s <= kHeld * planned_s)) return;
  state.misfit_told = true;
  kept_.erase(job_id);  // what it was modelled with was too little or too much: what is measured now counts
  if (multi_job_dirty_since_s_ < 0) multi_job_dirty_since_s_ = now_s_;
}

/// Hosts' clocks carry windows away from each other, slowly: one that has left its place is put back.
void Core::KeepInStep() {
  if (mode_ != v1::MODE_ENFORCE || now_s_ - step_checked_s_ < kStepInterval) return;
  step_checked_s_ = now_s_;
  std::map<std::string, double> moved;
  for (const auto& [id, known] : table_.flows()) {
    const std::string& job_id = known.identity.job_id();
    const auto joint = multi_job_.find(job_id);
    if (known.stale() || known.window.period_s <= 0 || joint == multi_job_.end()) continue;
    const FlowWindow& window = joint->second.window;
    if (window.period_s != known.window.period_s) continue;
    const double place_s = window.offset_s + known.window.lead_s - hosts_.at(known.host).offset_s;
    const double off_s = Centred(place_s - known.window.offset_s, window.period_s);
    if (std::abs(off_s) <= kOutOfStep * window.period_s) continue;
    table_.Find(id)->window.offset_s = Modulo(known.window.offset_s + off_s, window.period_s);
    if (std::abs(off_s) > std::abs(moved[job_id])) moved[job_id] = off_s;
  }
  std::set<std::string> jobs;
  for (const auto& [job_id, off_s] : moved) {
    jobs.insert(job_id);
    Decide("shift", job_id, fmt::format("time window put back by {}: a host's clock had carried it out of step",
                                        Duration(std::abs(off_s))));
  }
  PushJobs(jobs);
}

/// Windows for the jobs that are to be shifted. Returns the jobs whose windows changed.
std::set<std::string> Core::TakeShifts(const MultiJobInput& input, const planner::MultiJobPlan& plan) {
  std::set<std::string> changed;
  std::map<std::string, std::vector<uint64_t>> flows;
  for (const auto& [id, flow] : table_.flows()) flows[flow.identity.job_id()].push_back(id);
  std::map<size_t, std::vector<Shifting>> groups;
  const auto take_back = [&](const std::string& id, const std::string& why, bool failed) {
    const MultiJobState& state = multi_job_.at(id);
    if (state.window.period_s <= 0) return;
    // What did not pay for long had better not be tried again at the next plan.
    TakeBackWindows(id, why, failed && now_s_ - state.window_since_s < kProvenPeriods * state.window.period_s);
    changed.insert(id);
  };
  // The answer may have been asked for before the job's windows were taken back.
  const auto waits = [&](const std::string& id) { return now_s_ < multi_job_.at(id).force.not_before_s; };
  for (const auto& [id, model] : input.models) {
    if (!multi_job_.contains(id)) continue;
    const planner::MultiJobJobPlan* job = model.source == "none" ? nullptr : &plan.jobs[model.place];
    const std::optional<double> phase = PhaseOf(flows[id]);
    if (job == nullptr) take_back(id, "not modelled: " + model.missing, false);
    else if (!job->modelled) take_back(id, "a link on its way is dead", false);
    else if (!job->shifted || !(job->period.count() > 0) || waits(id)) take_back(id, "it no longer pays", true);
    else if (!phase) take_back(id, "its bursts are not seen any more", false);
    else groups[job->group].push_back({id, job, flows[id], *phase});
  }
  for (const auto& [first, group] : groups) {
    if (group.size() == 1) take_back(group.front().job, "it is the only one left", false);
    else changed.merge(ShiftGroup(group));
  }
  return changed;
}

/// Whether the windows that the jobs have are long enough, stand to each other as planned, and come as often.
bool Core::AreInPlace(const std::vector<Shifting>& group) const {
  const MultiJobState& first = multi_job_.at(group.front().job);
  const double origin_s = first.window.offset_s - group.front().plan->burst.count();
  return std::all_of(group.begin(), group.end(), [&](const Shifting& job) {
    const FlowWindow& window = multi_job_.at(job.job).window;
    const double period_s = job.plan->period.count();
    if (!(window.period_s > 0)) return false;
    const double ratio = period_s / window.period_s;
    if (ratio > 1 + kTooShort || ratio < 1 - kTooLong) return false;
    const double first_ratio = group.front().plan->period.count() / first.window.period_s;
    if (std::abs(ratio / first_ratio - 1) > kSameRatio) return false;
    const double off_s = Centred(origin_s + job.plan->burst.count() - window.offset_s, window.period_s);
    return std::abs(off_s) <= kSameShift * window.period_s;
  });
}

/// Windows for jobs that could meet, all of them or none: the first job's bursts stay where they are, the others' are held
/// back until they stand to them as planned.
std::set<std::string> Core::ShiftGroup(const std::vector<Shifting>& group) {
  std::set<std::string> changed;
  if (AreInPlace(group)) {
    for (const Shifting& job : group) {
      if (JoinWindows(job)) changed.insert(job.job);
    }
    return changed;
  }
  const double origin_s = group.front().phase_s - group.front().plan->burst.count();
  for (const Shifting& job : group) {
    MultiJobState& state = multi_job_[job.job];
    const double period_s = job.plan->period.count(), length_s = job.plan->window.count();
    double delay_s = Modulo(origin_s + job.plan->burst.count() - job.phase_s, period_s);
    if (delay_s > (1 - kSameShift) * period_s) delay_s -= period_s;  // it comes a little late, and need not lose a turn
    if (state.window.period_s <= 0) state.before_s = std::max(rhythms_[job.job].period_s, PaceOf(job.job, 0).period_s);
    state.placing = true;
    state.window = {period_s, job.phase_s + delay_s, length_s, 0};
    for (const uint64_t id : job.flows) GiveWindow(*table_.Find(id), state.window, job.phase_s);
    state.force.shifted = true;
    state.force.shift_s = job.plan->shift.count();
    state.period_s = period_s;
    state.window_since_s = now_s_;
    state.misfit_told = false;
    state.decision.set_shift_s(delay_s);
    state.decision.set_window_s(length_s);
    rhythms_[job.job] = {period_s, now_s_, {}};  // which is expected from now on
    Decide("shift", job.job, fmt::format("bursts may begin for {} of every {}, {} {} than now", FormatDuration(job.plan->window),
                                         FormatDuration(job.plan->period), Duration(std::abs(delay_s)),
                                         delay_s < 0 ? "sooner" : "later"));
    changed.insert(job.job);
  }
  return changed;
}

}  // namespace weft::controller
