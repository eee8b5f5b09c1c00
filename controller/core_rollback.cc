// Decisions that moved flows, judged by the iterations that follow: what made them longer is taken back.
#include <fmt/format.h>

#include <algorithm>

#include "common/parse_units.h"
#include "controller/core.h"
#include "controller/link_load.h"

namespace weft::controller {
namespace {

constexpr double kSteadyPeriods = 5;    // for which links and jobs must have been as they are, so that periods are of them
constexpr double kSeenOneByOne = 2;     // sample intervals: of shorter iterations agents' means count

/// As its lanes are now; empty: not known.
LaneWeights PresentWeights(const SendFlow& flow) {
  if (!flow.decided.empty()) return flow.decided;
  LaneWeights weights;
  for (const auto& [port, lane] : flow.lanes) {
    if (lane.active && lane.weight > 0) weights[port] = lane.weight;
  }
  return weights;
}

bool CanCarry(const SendFlow& flow, const LaneWeights& weights) {
  return std::ranges::all_of(weights, [&](const auto& entry) {
    const auto lane = flow.lanes.find(entry.first);
    return entry.second <= 0 || (lane != flow.lanes.end() && lane->second.usable());
  });
}

bool IsMove(const FlowMove& move) { return move.live && move.shares_changed; }

}  // namespace

/// Links and running jobs: with others nothing that was measured before says anything.
void Core::WatchCircumstances() {
  std::set<std::string> jobs;
  for (const auto& [id, job] : jobs_.jobs()) {
    if (job.state == JobState::kRunning) jobs.insert(id);
  }
  const int64_t seen = capacity_changes_ + moves_.findings;
  if (seen == moves_.seen && jobs == moves_.jobs) return;
  moves_ = {.findings = moves_.findings, .seen = seen, .jobs = std::move(jobs), .since_s = now_s_, .trial = {}, .undo = {}, .undone = {}};
}

/// Takes moves out that did harm lately, and what else the decision does with the flows of their jobs.
void Core::HoldBack(FlowDecision& decision) {
  if (!options_.rollback) return;
  WatchCircumstances();
  std::set<std::string> held;
  const auto job_of = [&](const FlowMove& move) { return table_.Find(move.flow)->identity.job_id(); };
  for (const FlowMove& move : decision.moves) {
    if (IsMove(move) && moves_.undone.Holds(move.flow, move.weights, now_s_)) held.insert(job_of(move));
  }
  std::erase_if(decision.moves, [&](const FlowMove& move) { return IsMove(move) && held.contains(job_of(move)); });
}

/// Of a decision that is about to be carried out, but for flows `left_out`. One that comes during a trial ends it and has none: what
/// follows is of both.
void Core::BeginTrial(const FlowDecision& decision, const std::set<uint64_t>& left_out) {
  if (!options_.rollback) return;
  std::map<std::string, MoveTrial::Job> jobs;
  std::map<uint64_t, MoveWatch::Before> before;
  const std::map<std::string, double> periods = MeasuredPeriods(table_);
  bool known = true;
  double longest_s = 0;
  for (const FlowMove& move : decision.moves) {
    if (!IsMove(move) || left_out.contains(move.flow)) continue;
    const SendFlow& flow = *table_.Find(move.flow);
    const auto period = periods.find(flow.identity.job_id());
    before[move.flow] = {PresentWeights(flow), flow.planned};
    known &= period != periods.end();
    if (!known) continue;
    longest_s = std::max(longest_s, period->second);
    jobs[period->first] = {.before_s = period->second, .flow = 0, .owner = flow.owner};
  }
  if (before.empty()) return;
  const bool soon = moves_.trial.has_value() || now_s_ - moves_.since_s < kSteadyPeriods * longest_s;
  if (moves_.trial) moves_.since_s = now_s_;
  moves_.trial.reset();
  for (const auto& [id, flow] : table_.flows()) {
    const auto job = jobs.find(flow.identity.job_id());
    if (job == jobs.end() || flow.stale()) continue;
    job->second.rate += CarriedRate(flow, now_s_);
    if (job->second.flow == 0 && flow.iteration_start_s > 0) job->second.flow = id;
  }
  known &= std::ranges::none_of(jobs, [](const auto& job) { return job.second.flow == 0; });
  if (!known || soon) return;
  moves_.trial.emplace(MoveTrial(std::move(jobs), now_s_));
  moves_.undo = std::move(before);
}

void Core::WatchTrial() {
  if (!moves_.trial) return;
  WatchCircumstances();
  if (moves_.trial && (mode_ != v1::MODE_ENFORCE || moves_.trial->IsLate(now_s_))) moves_.trial.reset();
  if (!moves_.trial) return;
  std::vector<std::pair<std::string, const SendFlow*>> seen;
  for (const auto& [id, job] : moves_.trial->jobs()) seen.emplace_back(id, table_.Find(job.flow));
  std::map<std::string, double> bytes;
  for (const auto& [id, flow] : table_.flows()) {
    if (moves_.trial->jobs().contains(flow.identity.job_id())) bytes[flow.identity.job_id()] += flow.wire_bytes;
  }
  for (const auto& [id, of] : bytes) moves_.trial->SeeBytes(id, of, now_s_);
  for (const auto& [id, flow] : seen) {
    if (flow == nullptr || flow->stale()) continue;
    const double offset_s = hosts_.at(flow->host).offset_s;
    if (moves_.trial->jobs().at(id).before_s >= kSeenOneByOne * options_.sample_interval.count()) {
      if (flow->iteration_start_s > 0) moves_.trial->SeeStart(id, flow->iteration_start_s + offset_s);
    } else if (flow->meter.known && flow->meter.since_s + offset_s >= moves_.trial->begun_s() + MoveTrial::kInForceS) {
      moves_.trial->SeePeriod(id, flow->meter.period_s);
    }
  }
  const std::optional<MoveTrial::Verdict> verdict = moves_.trial->Judge();
  if (!verdict) return;
  moves_.trial.reset();
  if (verdict->speed < MoveTrial::kWorse && !verdict->slower.empty()) RollBack(*verdict);
}

/// What one owner's processes alone say takes his own flows back.
void Core::RollBack(const MoveTrial::Verdict& verdict) {
  const bool alone = verdict.slower.size() == 1 && verdict.owners.size() > 1;
  std::map<uint64_t, LaneWeights> undone;
  std::set<std::string> jobs;
  std::set<std::pair<std::string, std::string>> targets;
  for (const auto& [id, before] : moves_.undo) {
    SendFlow* flow = table_.Find(id);
    if (flow == nullptr || flow->stale() || before.decided.empty() || !CanCarry(*flow, before.decided)) continue;
    if (alone && !verdict.slower.contains(flow->owner)) continue;
    undone[id] = std::exchange(flow->decided, before.decided);
    flow->planned = before.planned;
    flow->settled = false;
    monitor_.Forget(id, Seconds(now_s_));
    jobs.insert(flow->identity.job_id());
    targets.insert({flow->identity.job_id(), flow->host});
  }
  if (undone.empty()) return;
  const double hold_s = moves_.undone.Add(undone, now_s_);
  PushPolicies(jobs, targets);
  Decide("rollback", jobs.size() == 1 ? *jobs.begin() : "",
         fmt::format("{} flows go back where they were: since they were moved iterations go at {:.0f} % of their speed before ({}); "
                     "not tried again for {} while links and jobs are the same",
                     undone.size(), 100 * verdict.speed, verdict.text, FormatDuration(Seconds(hold_s))));
}

}  // namespace weft::controller
