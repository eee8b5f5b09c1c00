#include "planner/jobs/decide/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace weft::planner::inline jobs {
namespace {

/// Pauses between the bursts of two jobs, of the period: the longest that lets all bursts fit beside each other is kept. A
/// burst that comes later than that runs into the next one, which makes both later still: it had better wait for its next turn.
constexpr double kGuards[] = {0.2, 0.12, 0.08, kLeastGuard};
constexpr double kFits = 0.999;           // score of a link from which on bursts fit
constexpr double kMostStretch = 0.05;     // of a period, that a window may delay an iteration by
/// Of the period, that a job has to pause between its bursts. The gate (netplugin/policy/gate.h) tells this pause from those inside an
/// iteration by its length: it is more than (period - window) / 2, which is half of a period while windows are short.
constexpr double kLeastPause = 0.5;
/// So that an answer comes within seconds: bursts of periods in no small ratio average out, and need no window.
constexpr CircleOptions kCircles{.evaluations = 20'000, .edges = 256};
/// Of the cycle, since a job that is slower than its windows come would miss them. Iterations that vary by a share s are then
/// late by s² / (2 · slack) in the mean, a random walk with a drift; where pauses are short it has to be stronger.
constexpr double kCycleSlack = 0.015, kShortPauseSlack = 0.03;

/// The patterns with bursts that seem to begin earlier, so that they do not follow each other without a pause.
std::vector<ShiftJob> Guarded(std::vector<ShiftJob> jobs, double guard) {
  for (ShiftJob& job : jobs) {
    for (LinkUse& use : job.uses) {
      for (Burst& burst : use.bursts) burst.begin = std::max(Seconds(0), burst.begin - guard * job.period);
    }
  }
  return jobs;
}

bool Fits(const ShiftPlan& plan) {
  return std::all_of(plan.links.begin(), plan.links.end(), [](const ShiftedLink& link) { return link.score >= kFits; });
}

class WindowPlanner {
 public:
  WindowPlanner(const Situation& situation, const std::vector<PeriodicJob>& jobs) : situation_(situation), jobs_(jobs) {}

  WindowPlan Run() {
    const std::vector<bool>& steady = situation_.measured->steady;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      if (!steady[j]) continue;
      patterns_.push_back(PatternOf(situation_.capacity, jobs_[j]));
      members_.push_back(j);
    }
    if (members_.size() < 2) {
      Reject(fmt::format("{} of {} jobs have a measured, stable period, two are needed", members_.size(), jobs_.size()));
      return std::move(plan_);
    }
    const ShiftPlan found = WithPauses();
    plan_.complete = found.complete;
    if (found.links_left_out > 0) {
      Reject(fmt::format("{} links left out, the periods of their jobs have too many bursts in common", found.links_left_out));
    }
    if (found.links.empty()) {
      if (found.links_left_out == 0) Reject("no two jobs with a stable period overfill a link");
    } else if (!Fits(found)) {
      Reject(fmt::format("bursts do not fit beside each other with pauses of {:.0f} % of a period", 100 * plan_.pause));
    } else {
      Give(found);
    }
    return std::move(plan_);
  }

 private:
  void Reject(const std::string& why) { plan_.rejected.push_back("time shifts: " + why); }

  /// Shifts with the longest pauses that fit, which plan_.pause then says.
  ShiftPlan WithPauses() {
    ShiftPlan found;
    for (const double guard : kGuards) {
      plan_.pause = guard;
      found = PlanTimeShifts(situation_.capacity, Guarded(patterns_, guard), kCircles);
      if (Fits(found)) break;
    }
    return found;
  }

  void Give(const ShiftPlan& found) {
    std::set<LinkId> colliding;
    for (const ShiftedLink& link : found.links) colliding.insert(link.link);
    if (const std::string in_the_way = InTheWay(colliding); !in_the_way.empty()) {
      return Reject(in_the_way + " loads the same links and has no steady period");
    }
    std::vector<std::optional<Seconds>> shift(jobs_.size());
    for (size_t i = 0; i < members_.size(); ++i) {
      const bool concerned = std::any_of(patterns_[i].uses.begin(), patterns_[i].uses.end(),
                                         [&](const LinkUse& use) { return colliding.contains(use.link); });
      if (concerned) shift[members_[i]] = found.shift[i];
    }
    std::optional<std::vector<Gate>> gates = CommonCycle(situation_.capacity, jobs_, shift, kMostStretch, plan_.pause);
    if (!gates) {
      return Reject(fmt::format("the periods have no common cycle within {:.0f} %", 100 * kMostStretch));
    }
    if (const std::string never_held = WithoutPause(*gates); !never_held.empty()) {
      return Reject(fmt::format("{} pauses for less than {:.0f} % of its period, by which windows tell where its bursts begin",
                                never_held, 100 * kLeastPause));
    }
    for (Gate& gate : *gates) gate.first += situation_.state->now();
    plan_.gates = *std::move(gates);
    plan_.links = found.links;
  }

  /// A shifted job that no window would hold; empty: none.
  std::string WithoutPause(const std::vector<Gate>& gates) const {
    for (size_t j = 0; j < jobs_.size(); ++j) {
      if (!(gates[j].period.count() > 0)) continue;
      const Seconds pause = IterationAlone(situation_.capacity, jobs_[j]) - CommunicationAlone(situation_.capacity, jobs_[j]);
      if (pause <= kLeastPause * gates[j].period) return situation_.names[j];
    }
    return "";
  }

  /// A job without a steady period whose bursts on one of these links are longer than pauses are; empty: none.
  std::string InTheWay(const std::set<LinkId>& links) const {
    for (size_t j = 0; j < jobs_.size(); ++j) {
      if (situation_.measured->steady[j]) continue;
      for (const LinkLoad& load : jobs_[j].loads) {
        if (!links.contains(load.link)) continue;
        const double burst_s = static_cast<double>(load.bytes.count()) / situation_.capacity[load.link.index()].bytes_per_second();
        if (burst_s > kLeastGuard * IterationAlone(situation_.capacity, jobs_[j]).count()) return situation_.names[j];
      }
    }
    return "";
  }

  const Situation& situation_;
  const std::vector<PeriodicJob>& jobs_;
  std::vector<ShiftJob> patterns_;      // of members_
  std::vector<size_t> members_;         // jobs of steady periods
  WindowPlan plan_;
};

}  // namespace

std::optional<std::vector<Gate>> CommonCycle(std::span<const BitsPerSecond> capacity, const std::vector<PeriodicJob>& jobs,
                                             const std::vector<std::optional<Seconds>>& shift, double most_stretch, double pause) {
  std::vector<double> alone(jobs.size(), 0);
  double longest = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (!shift[j]) continue;
    alone[j] = IterationAlone(capacity, jobs[j]).count();
    longest = std::max(longest, alone[j]);
  }
  double cycle = longest;
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (shift[j]) cycle = std::max(cycle, std::round(longest / alone[j]) * alone[j]);
  }
  const double slack = pause > kLeastGuard ? kCycleSlack : kShortPauseSlack;
  std::vector<Gate> gates(jobs.size());
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (!shift[j]) continue;
    const double period = (1 + slack) * cycle / std::round(longest / alone[j]);
    if (period - alone[j] > most_stretch * alone[j]) return std::nullopt;
    gates[j] = {Seconds(period), *shift[j], Seconds(period - alone[j])};
  }
  return gates;
}

WindowPlan PlanWindows(const Situation& situation, const std::vector<PeriodicJob>& jobs) { return WindowPlanner(situation, jobs).Run(); }

}  // namespace weft::planner::jobs
