// The deciding half of the core: measured slots to capacity changes and collisions, and those to new paths.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/parse_units.h"
#include "controller/core.h"

namespace weft::controller {
namespace {

constexpr int64_t kLongestCatchUp = SlotRing::kSlots / 2;  // slots judged at once after a pause of the timer
constexpr int kMostSlotsATick = 2;                         // the rest of a pause is made up for in the next ticks
constexpr double kAnswerTimeout = 60;                      // seconds, for a plan of all paths
constexpr double kCollisionRetry = 10;                     // seconds
constexpr size_t kMovesNamed = 8;
constexpr double kDemandDrift = 0.25;                      // of a line rate: from there on a flow's demand is another one
constexpr size_t kMostRates = 1 << 16;
constexpr double kStands = 0.8;                            // of a link's rate, from which on decided paths stand until the next plan
constexpr int kMaxLanes = 8;                               // of a flow, in the plugin's policy segment

/// Whose flows, in words.
std::string OwnerName(Owner owner) { return owner == kNoOwner ? "flows of a user not known" : fmt::format("flows of uid {}", owner); }

}  // namespace

Core::Window Core::LastSecond() const {
  const double slot_s = options_.monitor.slot.count();
  const double lag = options_.sample_interval.count() + 0.1;
  Window window;
  window.last = static_cast<int64_t>(std::floor((now_s_ - lag) / slot_s)) - 1;
  const auto slots = std::max<int64_t>(1, std::llround(1 / slot_s));
  window.first = window.last - slots + 1;
  window.seconds = static_cast<double>(slots) * slot_s;
  return window;
}

void Core::Measure() {
  const int64_t newest = LastSecond().last - 1;  // its neighbour must have been measured too
  judged_slot_ = std::max(judged_slot_, newest - kLongestCatchUp);
  std::vector<CapacityChange> changes;
  for (int judged = 0; judged_slot_ < newest && judged < kMostSlotsATick; ++judged) {
    const auto found = monitor_.Evaluate(table_, ++judged_slot_, Seconds(now_s_));
    changes.insert(changes.end(), found.begin(), found.end());
    SeeClasses();
  }
  const auto recovered = monitor_.Recover(Seconds(now_s_));
  changes.insert(changes.end(), recovered.begin(), recovered.end());
  TakeChanges(changes);
  NameSilences();
  NameBadLinks();
}

/// Whether the link has come, in one step or several, to give clearly less than when paths were last given up for it, or all again.
/// What is tested and not found is neither.
bool Core::IsOtherRate(const CapacityChange& change) {
  if (rates_.size() > kMostRates) rates_.clear();
  const auto [rate, added] = rates_.try_emplace({change.link, change.for_all ? kNoOwner : change.owner}, change.before);
  const bool less = change.after < kStands * rate->second;
  const bool restored = rate->second < kStands * change.after && change.after >= fabric_.topology().link(change.link).line_rate;
  if (less || restored) rate->second = change.after;
  return less || restored;
}

void Core::TakeChanges(const std::vector<CapacityChange>& changes) {
  std::set<LinkId> links;
  std::map<Owner, std::set<LinkId>> own;
  bool others = false;
  for (const CapacityChange& change : changes) {
    if (!IsOtherRate(change)) continue;
    others |= change.for_all;
    // A little less, or more, is the next plan's: what all jobs were planned together for is still better than a plan of flows alone.
    (change.for_all ? links : own[change.owner]).insert(change.link);
  }
  if (!changes.empty()) ++moves_.findings;
  if (!links.empty()) table_.Unsettle(links);
  if (others) ++capacity_changes_;
  for (const auto& [owner, of] : own) table_.Unsettle(of, owner);
  for (const CapacityChange& change : changes) {
    const std::string name = fabric_.topology().LinkName(change.link);
    const std::string whom = change.for_all ? "" : " for " + OwnerName(change.owner);
    ++changes_;
    Decide("capacity", "", fmt::format("{}; planned with {}{} from now on", change.reason, FormatRate(change.after), whom));
    Touch(Change::kPaths,
          fmt::format("link {} gives {} in place of {}{}", name, FormatRate(change.after), FormatRate(change.before), whom));
  }
}

/// What was planned for and what is carried now; a plan for another picture is made anew.
void Core::WatchDemand() {
  bool drifted = false;
  for (const auto& [id, share] : DemandShares(table_, Seconds(now_s_), options_.planning.demand)) {
    const auto planned = planned_shares_.find(id);
    if (planned == planned_shares_.end()) continue;  // its coming has called for a plan already
    drifted |= std::abs(share - planned->second) > kDemandDrift;
  }
  if (drifted) TouchPaths("flows carry more or less than the last plan assumed");
}

std::string Core::CollisionText() const {
  const Window window = LastSecond();
  std::string text;
  size_t named = 0;
  for (const Collision& collision : monitor_.collisions()) {
    if (!fabric_.IsBetweenSwitches(collision.link)) continue;  // a host's own cable has no way around it
    if (++named > 2) break;
    std::set<std::string> jobs;
    for (const uint64_t id : collision.flows) {
      const auto flow = table_.flows().find(id);
      if (flow != table_.flows().end()) jobs.insert(flow->second.identity.job_id());
    }
    const double bytes = table_.links()[collision.link.index()].carried.Sum(window.first, window.last);
    text += fmt::format("{}link {} carries {} of {} for {} flows of jobs {} that wait for it", text.empty() ? "" : ", ",
                        fabric_.topology().LinkName(collision.link),
                        FormatRate(BitsPerSecond(bytes * 8 / window.seconds)),
                        FormatRate(monitor_.Available(collision.link)), collision.flows.size(), fmt::join(jobs, ", "));
  }
  return text;
}

bool Core::MaybeReplan() {
  if (now_s_ < next_plan_s_) return false;
  // A whole plan of many flows takes seconds, which a link that changes does not wait for.
  if (paths_question_ && now_s_ - paths_question_->asked_s < kAnswerTimeout &&
      !(paths_question_->whole && paths_question_->capacity_changes != capacity_changes_)) {
    return false;
  }
  if (now_s_ < picture_s_) return false;  // of what flows carry that were there before us
  const bool settled = dirty_since_s_ >= 0 && now_s_ - dirty_since_s_ >= options_.settle.count();
  const std::string collision = CollisionText();
  const bool collided = !collision.empty() && now_s_ >= collision_retry_s_;
  if (!settled && !collided) return false;
  if (!collision.empty()) triggers_.insert(triggers_.begin(), collision);
  Replan();
  return true;
}

void Core::Replan() {
  collision_retry_s_ = now_s_ + kCollisionRetry;
  dirty_since_s_ = -1;
  ++counters_.plans;
  const bool whole = whole_plan_due_ && whole_plan_capacity_ == capacity_changes_;
  whole_plan_due_ = false;
  FlowPlannerOptions planning = options_.planning;
  planning.quick = !whole;
  paths_question_ = {.number = ++paths_number_, .asked_s = now_s_, .whole = whole, .capacity_changes = capacity_changes_,
                     .flows = AskForPaths(table_, fabric_, monitor_, jobs_.Weights(), Seconds(now_s_), planning, asked_shares_),
                     .triggers = std::exchange(triggers_, {})};
  planned_shares_ = paths_question_->flows.shares;
  asked_shares_ = paths_question_->flows.rounded;
  next_plan_s_ = now_s_ + options_.settle.count();
  if (paths_question_->flows.flows.empty()) return paths_question_.reset();
  actions_.emplace_back(PlanPaths{paths_number_, paths_question_->flows.problem});
}

void Core::On(const PathsPlanned& event) {
  const bool wanted = paths_question_ && event.number == paths_question_->number && event.plan != nullptr &&
                      event.plan->flows.size() == paths_question_->flows.flows.size();
  if (!wanted) {
    ++ignored_;
    return;
  }
  const PathsQuestion question = *std::exchange(paths_question_, std::nullopt);
  const FlowDecision decision = CarryOut(table_, monitor_, question.flows, *event.plan);
  // A plan that changes nothing need not hold up the next: flows come before their probes do.
  next_plan_s_ = std::max(next_plan_s_, now_s_ + (decision.moves.empty() ? Seconds(0) : options_.replan_interval).count());
  if (question.flows.problem->quick && !event.plan->complete) {
    whole_plan_due_ = true;
    whole_plan_capacity_ = question.capacity_changes;
    TouchPaths("a quick plan was made whole");
  }
  if (mode_ != v1::MODE_ENFORCE) return Foretell(decision, question.triggers, would_paths_);
  if (!decision.moves.empty()) Apply(decision, question.triggers);
}

void Core::Apply(FlowDecision decision, const std::vector<std::string>& triggers) {
  HoldBack(decision);
  if (decision.moves.empty()) return;
  std::set<std::string> jobs;
  std::set<std::pair<std::string, std::string>> targets;
  const std::set<uint64_t> left_out = LeaveOut(decision);
  BeginTrial(decision, left_out);
  for (const FlowMove& move : decision.moves) {
    if (left_out.contains(move.flow)) continue;
    SendFlow* flow = table_.Find(move.flow);
    flow->decided = move.weights;
    flow->planned = move.planned;
    if (move.shares_changed) monitor_.Forget(flow->id, Seconds(now_s_));
    jobs.insert(flow->identity.job_id());
    targets.insert({flow->identity.job_id(), flow->host});
  }
  PushPolicies(jobs, targets);
  std::erase_if(decision.moves, [&](const FlowMove& move) { return left_out.contains(move.flow); });
  Announce(decision, triggers);
}

void Core::PushPolicies(const std::set<std::string>& jobs,
                        const std::set<std::pair<std::string, std::string>>& targets) {
  for (const std::string& job_id : jobs) {
    actions_.push_back(KeepEpoch{job_id, jobs_.NextEpoch(job_id)});
    ++counters_.policy_epochs;
  }
  std::map<std::string, InnerClasses> inner;   // where flows of one job can have several classes
  for (const auto& [job_id, host] : targets) {
    if (!inner.contains(job_id)) inner[job_id] = InnerClassesOf(job_id);
    actions_.push_back(PushPolicy{host, PolicyOf(job_id, host, inner[job_id])});
    ++counters_.policies;
    if (Job* job = jobs_.Find(job_id)) job->hosts.insert(host);
    hosts_.at(host).held.insert(job_id);
    // What is late stays late until it is taken up: another push does not begin the wait anew.
    Awaited& awaited = awaited_[{job_id, host}];
    if (awaited.epoch == 0) awaited.since_s = now_s_;
    awaited.epoch = jobs_.EpochOf(job_id);
  }
}

v1::JobPolicy Core::PolicyOf(const std::string& job_id, const std::string& host, const InnerClasses& inner) const {
  v1::JobPolicy policy;
  policy.set_job_id(job_id);
  policy.set_epoch(jobs_.EpochOf(job_id));
  for (const uint64_t id : PolicyFlows(job_id, host)) {
    const SendFlow& flow = table_.flows().at(id);
    const int32_t dscp = DscpOf(job_id, ClassStep(inner.known, flow.identity.comm(), inner.later, inner.earlier));
    const bool leased = dscp > 0 || flow.window.period_s > 0;
    v1::FlowPolicy* entry = policy.add_flows();
    entry->set_flow(id);
    const auto add = [&](int32_t port, int32_t weight) {
      v1::LanePolicy* lane = entry->add_lanes();
      lane->set_source_port(port);
      lane->set_weight(weight);
    };
    if (leased) {
      entry->set_traffic_class(dscp << 2);
      entry->set_lease_s(options_.joint.lease.count());
      entry->set_window_period_s(flow.window.period_s);
      entry->set_window_offset_s(flow.window.offset_s);
      entry->set_window_length_s(flow.window.length_s);
    }
    if (flow.decided.empty()) continue;  // no lanes: the plugin keeps those that it has
    for (const auto& [port, weight] : flow.decided) add(port, weight);
    // Open lanes that no path needs stay open and idle: what is in flight on them arrives in its own time.
    for (const auto& [port, lane] : flow.lanes) {
      if (lane.active && !flow.decided.contains(port) && entry->lanes_size() < kMaxLanes) add(port, 0);
    }
  }
  return policy;
}

void Core::Announce(const FlowDecision& decision, const std::vector<std::string>& triggers) {
  struct Group {
    std::vector<std::string> texts;
    std::set<std::string> jobs;
    size_t moves = 0;
  };
  Group moved;
  Group placed;
  for (const FlowMove& move : decision.moves) {
    const bool live_move = move.live && move.shares_changed;
    if (!live_move && !move.first && !move.shares_changed) continue;  // only spare lanes changed
    Group& group = live_move ? moved : placed;
    ++group.moves;
    group.jobs.insert(table_.Find(move.flow)->identity.job_id());
    if (group.texts.size() < kMovesNamed) group.texts.push_back(move.text);
  }
  const auto decide = [&](const char* kind, const Group& group) {
    const std::string more =
        group.moves > group.texts.size() ? fmt::format("; and {} more", group.moves - group.texts.size()) : "";
    Decide(kind, group.jobs.size() == 1 ? *group.jobs.begin() : "",
           fmt::format("{}: {}{}; {}", triggers.empty() ? "the flows changed" : fmt::format("{}", fmt::join(triggers, "; ")),
                       fmt::join(group.texts, "; "), more, decision.outcome));
  };
  if (placed.moves > 0) decide("place", placed);
  if (moved.moves > 0) {
    ++counters_.replans;
    decide("replan", moved);
  }
}

}  // namespace weft::controller
