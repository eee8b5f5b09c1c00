#include "planner/jobs/simulate/fluid.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace weft::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSame = 1e-9;
constexpr int32_t kMissCost = 2;     // an opening in time pays one back
constexpr int32_t kMissLimit = 8;    // four in a row

}  // namespace

FluidSimulation::FluidSimulation(std::span<const BitsPerSecond> capacity)
    : capacity_(capacity.begin(), capacity.end()), link_bits_(capacity.size(), 0), link_rate_(capacity.size(), 0) {}

void FluidSimulation::set_trace(FluidTrace* trace) {
  trace_ = trace;
  last_sample_.assign(trace != nullptr ? capacity_.size() : 0, std::numeric_limits<size_t>::max());
}

size_t FluidSimulation::Add(const FluidJob& job) {
  WEFT_CHECK(job.release.count() >= 0 && job.release <= job.compute, "a job whose communication starts after compute");
  const size_t j = jobs_.size();
  jobs_.push_back({.spec = job, .compute = job.compute.count(), .release = job.release.count(), .ready = now_,
                   .updated = now_});
  settings_.emplace_back();
  progress_.push_back({.begin = now_, .end = now_});
  due_.push_back(kInfinity);
  BeginIteration(j);
  return j;
}

void FluidSimulation::Distort(size_t job, double compute, double bytes) {
  jobs_[job].compute = jobs_[job].spec.compute.count() * compute;
  jobs_[job].release = jobs_[job].spec.release.count() * compute;
  jobs_[job].stretch = compute;
  jobs_[job].scale = bytes;
}

FluidSimulation FluidSimulation::Fork() const {
  FluidSimulation fork(capacity_);
  fork.jobs_ = jobs_;
  fork.due_ = due_;
  fork.settings_.resize(jobs_.size());
  fork.now_ = now_;
  for (const Job& job : jobs_) fork.progress_.push_back({.begin = job.ready, .end = job.ready});
  for (Job& job : fork.jobs_) job.group = -1;
  return fork;
}

std::vector<double> FluidSimulation::LinkBits() const {
  std::vector<double> bits = link_bits_;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    Job job = jobs_[j];
    if (job.phase == Phase::kSending) Advance(&job);
    for (const LinkLoad& load : settings_[j].loads) {
      bits[load.link.index()] += job.sent * job.scale * static_cast<double>(load.bytes.count()) * 8;
    }
  }
  return bits;
}

void FluidSimulation::Apply(std::vector<FluidSetting> settings) {
  WEFT_CHECK(settings.size() == jobs_.size(), "not one setting per job");
  for (size_t j = 0; j < jobs_.size(); ++j) {
    if (jobs_[j].phase == Phase::kSending) Advance(&jobs_[j]);
    if (jobs_[j].phase == Phase::kSending) SetRate(j, 0);
  }
  link_bits_ = LinkBits();
  settings_ = std::move(settings);
  for (size_t j = 0; j < jobs_.size(); ++j) {
    Job& job = jobs_[j];
    job.sent = 0;
    job.misses = 0;
    job.alone = job.speed = 0;
    if (job.phase == Phase::kGone) continue;
    double largest = 0;
    for (const LinkLoad& load : settings_[j].loads) {
      if (load.bytes.count() == 0) continue;
      const double bits = job.scale * static_cast<double>(load.bytes.count()) * 8;
      const double rate = capacity_[load.link.index()].value();
      job.alone = std::max(job.alone, rate > 0 ? bits / rate : kInfinity);
      largest = std::max(largest, bits / load.flows);
    }
    job.speed = largest > 0 ? 1 / largest : 0;
    if (job.phase == Phase::kSending && !(job.alone > 0)) due_[j] = now_;  // nothing left to send on this plan
    Regate(j);
  }
  BuildGroups();
}

/// A job that is about to begin follows the new plan's gate.
void FluidSimulation::Regate(size_t j) {
  Job& job = jobs_[j];
  const bool begins = job.phase == Phase::kComputing && job.began == now_;
  if (job.phase != Phase::kWaiting && !begins) return;
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

void FluidSimulation::Advance(Job* job) const {
  const double part = std::min(std::max(0.0, job->left), job->rate * (now_ - job->updated));
  job->left -= part;
  job->sent += part;
  job->updated = now_;
}

void FluidSimulation::SetRate(size_t j, double rate) {
  Job& job = jobs_[j];
  if (rate == job.rate && rate > 0 && due_[j] < kInfinity) return;
  Advance(&job);
  if (trace_ != nullptr && rate != job.rate) NoteRate(j, rate - job.rate);
  job.rate = rate;
  due_[j] = rate > 0 ? now_ + std::max(0.0, job.left) / rate : kInfinity;
}

void FluidSimulation::NoteRate(size_t j, double change) {
  for (const LinkLoad& load : settings_[j].loads) {
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
  if (!group.dirty) dirty_.push_back(static_cast<size_t>(jobs_[j].group));
  group.dirty = true;
}

void FluidSimulation::BeginIteration(size_t j) {
  Job& job = jobs_[j];
  job.began = job.phase_began = now_;
  job.phase = Phase::kComputing;
  due_[j] = now_ + job.release;
}

void FluidSimulation::BeginSending(size_t j) {
  Job& job = jobs_[j];
  Note(j, PhaseKind::kComputing);
  job.phase = Phase::kSending;
  job.phase_began = job.updated = now_;
  job.left = 1;
  job.rate = 0;
  due_[j] = kInfinity;
  Group& group = groups_[static_cast<size_t>(job.group)];
  if (!group.dirty) dirty_.push_back(static_cast<size_t>(job.group));
  group.dirty = true;
}

bool FluidSimulation::EndSending(size_t j) {
  Job& job = jobs_[j];
  Advance(&job);
  job.sent += job.left;  // what rounding left over
  job.left = 0;
  if (trace_ != nullptr && job.rate != 0) NoteRate(j, -job.rate);
  job.rate = 0;
  Note(j, PhaseKind::kSending);
  Group& group = groups_[static_cast<size_t>(job.group)];
  if (!group.dirty) dirty_.push_back(static_cast<size_t>(job.group));
  group.dirty = true;
  if (job.began + job.compute <= now_) return EndIteration(j);
  job.phase = Phase::kFinishing;
  job.phase_began = now_;
  due_[j] = job.began + job.compute;
  return false;
}

bool FluidSimulation::EndIteration(size_t j) {
  Job& job = jobs_[j];
  progress_[j].durations.push_back(now_ - job.ready);
  progress_[j].end = now_;
  ++job.iteration;
  job.ready = now_;
  job.phase_began = now_;
  if (job.spec.iterations > 0 && job.iteration >= job.spec.iterations) {
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

/// Returns whether the job left.
bool FluidSimulation::EndPhase(size_t j) {
  Job& job = jobs_[j];
  ++events_;
  switch (job.phase) {
    case Phase::kWaiting:
      Note(j, PhaseKind::kWaiting);
      BeginIteration(j);
      return false;
    case Phase::kComputing:
      if (job.alone > 0) {
        BeginSending(j);
        return false;
      }
      if (job.began + job.compute <= now_) {
        Note(j, PhaseKind::kComputing);
        return EndIteration(j);
      }
      job.phase = Phase::kFinishing;
      due_[j] = job.began + job.compute;
      return false;
    case Phase::kSending: return EndSending(j);
    case Phase::kFinishing:
      Note(j, PhaseKind::kComputing);
      return EndIteration(j);
    case Phase::kGone: break;
  }
  return false;
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

}  // namespace weft::planner
