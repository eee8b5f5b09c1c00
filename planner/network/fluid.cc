#include "planner/network/fluid.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace weft::planner::inline network {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSame = 1e-9;
constexpr int32_t kMissCost = 2;     // an opening in time pays one back
constexpr int32_t kMissLimit = 8;    // four in a row

/// Bursts in order, each within the computation.
bool InOrder(const FluidJob& job) {
  Seconds release{0}, needed{0};
  for (const BurstTimes& burst : job.bursts) {
    if (burst.release < release || burst.needed < needed || burst.release > burst.needed || burst.needed > job.compute) return false;
    release = burst.release;
    needed = burst.needed;
  }
  return !job.bursts.empty();
}

}  // namespace

Seconds IterationOf(Seconds compute, std::span<const BurstTimes> bursts, std::span<const double> sending,
                    std::vector<double>* ends) {
  double stalled = 0, through = 0;    // what the computation has waited, and when the burst before was through
  size_t waited = 0;                  // bursts that it has passed the need of
  std::vector<double> own;
  std::vector<double>& through_at = ends != nullptr ? *ends : own;
  const auto pass = [&](double at) {
    for (; waited < through_at.size() && bursts[waited].needed.count() <= at; ++waited) {
      stalled = std::max(stalled, through_at[waited] - bursts[waited].needed.count());
    }
  };
  for (size_t b = 0; b < bursts.size(); ++b) {
    pass(bursts[b].release.count());
    if (sending[b] > 0) through = std::max(through, bursts[b].release.count() + stalled) + sending[b];
    through_at.push_back(through);
  }
  pass(compute.count());
  return Seconds(std::max(compute.count() + stalled, through));
}

FluidSimulation::FluidSimulation(std::span<const BitsPerSecond> capacity)
    : capacity_(capacity.begin(), capacity.end()), link_bits_(capacity.size(), 0), link_rate_(capacity.size(), 0) {}

void FluidSimulation::set_trace(FluidTrace* trace) {
  trace_ = trace;
  last_sample_.assign(trace != nullptr ? capacity_.size() : 0, std::numeric_limits<size_t>::max());
}

size_t FluidSimulation::Add(const FluidJob& job) {
  const size_t j = jobs_.size();
  jobs_.emplace_back();
  settings_.emplace_back();
  due_.emplace_back();
  progress_.emplace_back();
  Begin(j, job);
  return j;
}

void FluidSimulation::Restart(size_t job, const FluidJob& spec) {
  WEFT_CHECK(present(job), "a job restarted that has left");
  for (size_t j = 0; j < jobs_.size(); ++j) {
    if (jobs_[j].sending) SetRate(j, 0);
  }
  // What it has sent until now stays counted: its bursts get new places.
  jobs_[job].sending = false;
  link_bits_ = LinkBits();
  for (Burst& burst : bursts_) burst.sent = 0;
  Begin(job, spec);
}

void FluidSimulation::Begin(size_t j, const FluidJob& spec) {
  WEFT_CHECK(InOrder(spec), "a job whose bursts are not in order, or not within its computation");
  Profile profile{.spec = spec, .marks = {}};
  for (size_t b = 0; b < spec.bursts.size(); ++b) {
    profile.marks.push_back({spec.bursts[b].release.count(), b, true});
    // What is needed at the end alone is waited for there anyway.
    if (spec.bursts[b].needed < spec.compute) profile.marks.push_back({spec.bursts[b].needed.count(), b, false});
  }
  // What comes first at one place: the burst before is waited for, then the next one is released.
  std::stable_sort(profile.marks.begin(), profile.marks.end(), [](const Mark& a, const Mark& b) { return a.at < b.at; });
  jobs_[j] = {.profile = std::make_shared<const Profile>(std::move(profile)), .ready = now_, .phase_began = now_,
              .first = bursts_.size(), .bursts = spec.bursts.size(), .updated = now_};
  bursts_.resize(bursts_.size() + spec.bursts.size());
  settings_[j] = {.loads = std::vector<std::vector<LinkLoad>>(spec.bursts.size())};
  due_[j] = kInfinity;
  if (spec.start.count() > 0) {
    jobs_[j].phase = Phase::kWaiting;
    jobs_[j].ready += spec.start.count();
    due_[j] = jobs_[j].ready;
  } else {
    BeginIteration(j);
  }
  progress_[j] = {.begin = jobs_[j].ready, .end = jobs_[j].ready};
}

void FluidSimulation::Remove(size_t job) {
  if (!present(job)) return;
  if (jobs_[job].sending) SetRate(job, 0);
  jobs_[job].sending = false;
  jobs_[job].phase = Phase::kGone;
  progress_[job].left = now_;
  due_[job] = kInfinity;
}

void FluidSimulation::Distort(size_t job, double compute, double bytes) {
  jobs_[job].stretch = compute;
  jobs_[job].scale = bytes;
}

FluidSimulation FluidSimulation::Fork() const {
  FluidSimulation fork(capacity_);
  fork.jobs_ = jobs_;
  fork.bursts_ = bursts_;
  fork.due_ = due_;
  fork.settings_.resize(jobs_.size());
  fork.now_ = now_;
  for (const Job& job : jobs_) fork.progress_.push_back({.begin = job.ready, .end = job.ready});
  for (Job& job : fork.jobs_) job.group = -1;
  return fork;
}

void FluidSimulation::Apply(std::vector<FluidSetting> settings) {
  WEFT_CHECK(settings.size() == jobs_.size(), "not one setting per job");
  for (size_t j = 0; j < jobs_.size(); ++j) {
    if (jobs_[j].sending) SetRate(j, 0);
  }
  link_bits_ = LinkBits();
  settings_ = std::move(settings);
  for (size_t j = 0; j < jobs_.size(); ++j) {
    Job& job = jobs_[j];
    job.misses = 0;
    WEFT_CHECK(job.phase == Phase::kGone || settings_[j].loads.size() == job.bursts, "not loads for every burst of a job");
    MeasureBursts(j);
    if (job.phase == Phase::kGone) continue;
    if (job.sending && !(Current(job).alone > 0)) {
      job.through = now_;  // nothing left to send on this plan
      Schedule(j);
    }
    Regate(j);
  }
  BuildGroups();
}

/// A job that is about to begin follows the new plan's gate.
void FluidSimulation::Regate(size_t j) {
  Job& job = jobs_[j];
  const bool begins = job.phase == Phase::kRunning && job.mark == 0 && job.offset == now_;
  if (job.phase != Phase::kWaiting && !begins) return;
  if (job.phase == Phase::kWaiting && now_ < job.ready) return;  // it has not started yet
  const double opening = Opening(&job, settings_[j].gate);
  job.misses = 0;
  if (opening <= now_) {
    Note(j, PhaseKind::kWaiting);
    BeginIteration(j);
  } else {
    job.phase = Phase::kWaiting;
    due_[j] = opening;
  }
}

/// Brings what is left of the burst up to now. Returns the share that was sent since the last time.
double FluidSimulation::Advance(Job* job) const {
  const double part = std::min(std::max(0.0, job->left), job->rate * (now_ - job->updated));
  job->left -= part;
  job->updated = now_;
  return part;
}

void FluidSimulation::SetRate(size_t j, double rate) {
  Job& job = jobs_[j];
  if (rate == job.rate && rate > 0 && job.through < kInfinity) return;
  Current(job).sent += Advance(&job);
  if (trace_ != nullptr && rate != job.rate) NoteRate(j, rate - job.rate);
  job.rate = rate;
  job.through = rate > 0 ? now_ + std::max(0.0, job.left) / rate : kInfinity;
  Schedule(j);
}

/// The job's next event. Past its last mark nothing happens before its last burst is through.
void FluidSimulation::Schedule(size_t j) {
  const Job& job = jobs_[j];
  const bool last = job.sending && job.burst + 1 == job.bursts && job.mark == job.profile->marks.size();
  due_[j] = last ? job.through : job.sending ? std::min(job.reach, job.through) : job.reach;
}

void FluidSimulation::Disturb(size_t j) {
  Group& group = groups_[static_cast<size_t>(jobs_[j].group)];
  if (!group.dirty) dirty_.push_back(static_cast<size_t>(jobs_[j].group));
  group.dirty = true;
}

void FluidSimulation::NoteRate(size_t j, double change) {
  for (const LinkLoad& load : settings_[j].loads[jobs_[j].burst]) {
    const double bits = jobs_[j].scale * static_cast<double>(load.bytes.count()) * 8;
    if (bits == 0) continue;
    double& rate = link_rate_[load.link.index()];
    rate += change * bits;
    if (std::abs(rate) < kSame * capacity_[load.link.index()].value()) rate = 0;
    // The last word of an instant counts.
    size_t& last = last_sample_[load.link.index()];
    if (last < trace_->samples.size() && trace_->samples[last].at.count() == now_) {
      trace_->samples[last].rate = BitsPerSecond(rate);
      continue;
    }
    last = trace_->samples.size();
    trace_->samples.push_back({load.link, now(), BitsPerSecond(rate)});
  }
}

void FluidSimulation::Note(size_t j, PhaseKind kind) const {
  const Job& job = jobs_[j];
  if (trace_ == nullptr || !(now_ > job.phase_began)) return;
  trace_->phases.push_back({j, job.iteration, kind, Seconds(job.phase_began), now()});
}

/// When the job may begin, from now on; counts openings that it missed.
double FluidSimulation::Opening(Job* job, const Gate& gate) const {
  const double period = gate.period.count();
  if (!(period > 0) || job->misses >= kMissLimit) return now_;
  const double turns = std::ceil((now_ - gate.first.count()) / period - kGateTolerance);
  const double opening = std::max(now_, gate.first.count() + turns * period);
  const bool missed = opening - now_ > gate.slack.count() + kGateTolerance * period;
  job->misses = missed ? job->misses + kMissCost : std::max(0, job->misses - 1);
  return opening;
}

/// Ends what was planned for the group of job j. A job that waits for an opening still waits for that one.
void FluidSimulation::Withdraw(size_t j) {
  Group& group = groups_[static_cast<size_t>(jobs_[j].group)];
  for (const size_t k : group.members) {
    settings_[k].gate = {};
    settings_[k].priority = 0;
  }
  std::sort(group.by_class.begin(), group.by_class.end());
  group.rates.clear();
  Disturb(j);
}

void FluidSimulation::BeginIteration(size_t j) {
  Job& job = jobs_[j];
  job.phase = Phase::kRunning;
  job.phase_began = job.offset = now_;
  job.mark = job.released = job.burst = 0;
  job.waits = job.computed = job.sending = false;
  job.reach = ReachOf(job);
  Schedule(j);
}

/// When the computation comes to its next mark, or to its end.
double FluidSimulation::ReachOf(const Job& job) const {
  const std::vector<Mark>& marks = job.profile->marks;
  const double at = job.mark < marks.size() ? marks[job.mark].at : job.profile->spec.compute.count();
  return job.offset + at * job.stretch;
}

/// Passes the marks that the computation has come to. Returns whether the job left.
bool FluidSimulation::Compute(size_t j) {
  Job& job = jobs_[j];
  const std::vector<Mark>& marks = job.profile->marks;
  while (job.reach <= now_) {
    if (job.mark == marks.size()) {
      job.computed = true;
      job.reach = kInfinity;
      break;
    }
    const Mark& mark = marks[job.mark];
    if (mark.release) {
      job.released = mark.burst + 1;
      if (!job.sending) SendNext(j);
    } else if (job.burst <= mark.burst) {
      job.waits = true;
      job.reach = kInfinity;
      break;
    }
    ++job.mark;
    job.reach = ReachOf(job);
  }
  Schedule(j);
  return EndIfDone(j);
}

/// Begins the next burst, if there is one to send; those without bytes are through at once.
void FluidSimulation::SendNext(size_t j) {
  Job& job = jobs_[j];
  while (job.burst < job.released && !(Current(job).alone > 0)) ++job.burst;
  if (job.burst < job.released) {
    Note(j, PhaseKind::kComputing);
    job.sending = true;
    job.phase_began = job.updated = now_;
    job.left = 1;
    job.rate = 0;
    job.through = kInfinity;
    Disturb(j);
  }
  if (!job.waits || job.burst <= job.profile->marks[job.mark].burst) return;
  job.waits = false;
  job.offset = now_ - job.profile->marks[job.mark].at * job.stretch;
  ++job.mark;
  job.reach = ReachOf(job);
}

void FluidSimulation::EndSending(size_t j) {
  Job& job = jobs_[j];
  Current(job).sent += Advance(&job) + job.left;  // with what rounding left over
  if (trace_ != nullptr && job.rate != 0) NoteRate(j, -job.rate);
  job.left = job.rate = 0;
  Note(j, PhaseKind::kSending);
  job.phase_began = now_;
  job.sending = false;
  ++job.burst;
  Disturb(j);
  SendNext(j);
}

bool FluidSimulation::EndIfDone(size_t j) {
  const Job& job = jobs_[j];
  return job.computed && job.burst == job.bursts && EndIteration(j);
}

bool FluidSimulation::EndIteration(size_t j) {
  Job& job = jobs_[j];
  Note(j, PhaseKind::kComputing);
  progress_[j].durations.push_back(now_ - job.ready);
  progress_[j].end = now_;
  ++job.iteration;
  job.ready = now_;
  job.phase_began = now_;
  job.computed = false;
  if (job.profile->spec.iterations > 0 && job.iteration >= job.profile->spec.iterations) {
    job.phase = Phase::kGone;
    progress_[j].left = now_;
    due_[j] = kInfinity;
    return true;
  }
  const bool held = settings_[j].gate.period.count() > 0;
  const double opening = Opening(&job, settings_[j].gate);
  if (held && job.misses >= kMissLimit) Withdraw(j);
  if (opening <= now_) {
    BeginIteration(j);
  } else {
    job.phase = Phase::kWaiting;
    due_[j] = opening;
  }
  return false;
}

/// What is due of job j. Returns whether the job left.
bool FluidSimulation::EndPhase(size_t j) {
  Job& job = jobs_[j];
  ++events_;
  if (job.phase == Phase::kWaiting) {
    Note(j, PhaseKind::kWaiting);
    BeginIteration(j);
    return false;
  }
  if (job.sending && job.through <= now_) EndSending(j);
  return Compute(j);
}

bool FluidSimulation::Run(Seconds until) {
  for (;;) {
    for (const size_t g : dirty_) Refresh(&groups_[g]);
    dirty_.clear();
    double next = kInfinity;
    for (const double due : due_) next = std::min(next, due);
    if (next > until.count()) {
      now_ = std::max(now_, until.count());
      return false;
    }
    now_ = std::max(now_, next);
    bool left = false;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      while (due_[j] <= now_) left |= EndPhase(j);  // a phase of no length ends at once
    }
    if (left) return true;
  }
}

}  // namespace weft::planner::network
