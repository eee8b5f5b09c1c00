// Decisions that moved flows, judged by the iterations that follow: what made them longer is taken back.
#include <fmt/format.h>

#include <algorithm>

#include "common/parse_units.h"
#include "controller/core.h"

namespace weft::controller {
namespace {

constexpr double kSteadyPeriods = 5;    // for which links and jobs must have been as they are, so that periods are of them
constexpr double kWorse = 0.9;          // of the speed before: less is harm. Iterations of a few vary by some percent.
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
  if (capacity_changes_ == moves_.capacity_changes && jobs == moves_.jobs) return;
  moves_ = {.capacity_changes = capacity_changes_, .jobs = std::move(jobs), .since_s = now_s_, .trial = {}, .undo = {}, .undone = {}};
}

/// Takes moves out that did harm lately.
void Core::HoldBack(FlowDecision& decision) {
  if (!options_.rollback) return;
  WatchCircumstances();
  const bool held = std::ranges::any_of(
      decision.moves, [&](const FlowMove& move) { return IsMove(move) && moves_.undone.Holds(move.flow, move.weights, now_s_); });
  if (held) std::erase_if(decision.moves, IsMove);
}

/// Of a decision that is about to be carried out, but for flows `left_out`.
void Core::BeginTrial(const FlowDecision& decision, const std::set<uint64_t>& left_out) {
  if (!options_.rollback) return;
  std::set<std::string> moved;
  std::map<uint64_t, LaneWeights> before;
  for (const FlowMove& move : decision.moves) {
    if (!IsMove(move) || left_out.contains(move.flow)) continue;
    const SendFlow& flow = *table_.Find(move.flow);
    moved.insert(flow.identity.job_id());
    before[move.flow] = PresentWeights(flow);
  }
  if (moved.empty()) return;
  moves_.trial.reset();  // of the decision before: what follows is of both
  std::map<std::string, MoveTrial::Job> jobs;
  for (const auto& [id, period_s] : MeasuredPeriods(table_)) {
    jobs[id] = {.before_s = period_s, .flow = 0, .moved = moved.contains(id)};
  }
  for (const auto& [id, flow] : table_.flows()) {
    const auto job = jobs.find(flow.identity.job_id());
    if (job != jobs.end() && job->second.flow == 0 && !flow.stale() && flow.iteration_start_s > 0) job->second.flow = id;
  }
  std::erase_if(jobs, [](const auto& job) { return job.second.flow == 0; });
  double longest_s = 0;
  for (const auto& [id, job] : jobs) longest_s = std::max(longest_s, job.before_s);
  const bool known = std::ranges::all_of(moved, [&](const std::string& id) { return jobs.contains(id); });
  if (!known || now_s_ - moves_.since_s < kSteadyPeriods * longest_s) return;
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
  if (verdict->speed < kWorse) RollBack(*verdict);
}

void Core::RollBack(const MoveTrial::Verdict& verdict) {
  std::map<uint64_t, LaneWeights> undone;
  std::set<std::string> jobs;
  std::set<std::pair<std::string, std::string>> targets;
  for (const auto& [id, weights] : moves_.undo) {
    SendFlow* flow = table_.Find(id);
    if (flow == nullptr || flow->stale() || weights.empty() || !CanCarry(*flow, weights)) continue;
    undone[id] = std::exchange(flow->decided, weights);
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
