#include "planner/jobs/joint_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "planner/flows/priority.h"
#include "planner/flows/time_shift.h"
#include "planner/jobs/joint_bound.h"
#include "planner/jobs/joint_reasons.h"
#include "planner/jobs/joint_world.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kNotWorse = 1e-3;        // relative: less is rounding of a finite simulation
/// Pauses between the bursts of two jobs, of the period: the longest that lets all bursts fit beside each other is kept. A
/// burst that comes later than that runs into the next one, which makes both later still: it had better wait for its next turn.
constexpr double kGuards[] = {0.2, 0.12, 0.08, 0.04};
constexpr double kLeastGuard = kGuards[std::size(kGuards) - 1];
constexpr double kFits = 0.999;           // score of a link from which on bursts fit
constexpr double kWindowSlack = 0.02;     // of the period, that a window is open longer than that pause
constexpr double kMostStretch = 0.05;     // of a period, that a window may delay an iteration by,
constexpr double kKeptStretch = 0.1;      // and one that is in force: models of jobs that have windows move a little
/// Of the period, that a job has to pause between its bursts. The gate (netplugin/gate.h) tells this pause from those inside an
/// iteration by its length: it is more than (period - window) / 2, which is half of a period while windows are short.
constexpr double kLeastPause = 0.5;
/// So that an answer comes within seconds: bursts of periods in no small ratio average out, and need no window.
constexpr CircleOptions kCircles{.evaluations = 20'000, .edges = 256};
/// Of the cycle, since a job that is slower than its windows come would miss them. Iterations that vary by a share s are then
/// late by s² / (2 · slack) in the mean, a random walk with a drift; where pauses are short it has to be stronger.
constexpr double kCycleSlack = 0.015, kShortPauseSlack = 0.03;

/// Patterns of wrong compute times that an answer must stand: all slow, all fast, and neighbours wrong in opposite ways.
std::vector<std::vector<double>> Errors(size_t jobs, double error) {
  std::vector<std::vector<double>> patterns;
  if (!(error > 0)) return patterns;
  for (const auto& [even, odd] : {std::pair(1 + error, 1 + error), std::pair(1 - error, 1 - error),
                                  std::pair(1 + error, 1 - error), std::pair(1 - error, 1 + error)}) {
    std::vector<double>& factor = patterns.emplace_back(jobs, even);
    for (size_t i = 1; i < jobs; i += 2) factor[i] = odd;
    if (jobs == 1 && patterns.size() == 2) break;
  }
  return patterns;
}

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

class GroupPlanner {
 public:
  GroupPlanner(const JointProblem& problem, std::vector<size_t> members, JointPlan* plan)
      : problem_(problem), options_(problem.options), world_(problem, std::move(members)), plan_(plan) {}

  void Run() {
    const JointChoice present = Present();
    report_.use_present = report_.use = world_.Run(present).gpu_use;
    report_.use_default = world_.Ecmp();
    choice_ = present;
    if (world_.members().size() > 1) {
      TryClasses();
      DropShifts();
      TryShifts();
    }
    KeepSafe();
    Write();
  }

 private:
  int32_t Default() const { return options_.classes - 1; }

  /// What is in force, in as few raised classes as say the same.
  JointChoice Present() const {
    JointChoice choice;
    for (const size_t j : world_.members()) {
      const JointJob& job = problem_.jobs[j];
      const bool known = job.present_class >= 0 && job.present_class < options_.classes;
      choice.classes.push_back(known ? job.present_class : Default());
      choice.shifted.push_back(job.shifted);
      choice.shift.push_back(choice.shifted.back() ? job.present_shift : Seconds(0));
    }
    Lower(&choice.classes);
    // One alone has nobody to keep out of the way of.
    const bool several = std::count(choice.shifted.begin(), choice.shifted.end(), true) > 1;
    if (!several || !FindCycle(&choice, kKeptStretch, kCycleSlack)) choice = Unshifted(std::move(choice));
    return choice;
  }

  static JointChoice Unshifted(JointChoice choice) {
    const size_t n = choice.classes.size();
    choice.shifted.assign(n, false);
    choice.shift = choice.stretch = std::vector<Seconds>(n, Seconds(0));
    return choice;
  }

  static bool HasShifts(const JointChoice& choice) {
    return std::find(choice.shifted.begin(), choice.shifted.end(), true) != choice.shifted.end();
  }

  /// The same order in the lowest classes, so that nothing is raised above background traffic without need; jobs that meet nobody
  /// get the default.
  void Lower(std::vector<int32_t>* classes) const {
    std::vector<size_t> order(world_.jobs().size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::set<size_t> meeting;
    for (const Contention& pair : Contentions(world_.jobs(), order)) meeting.insert({pair.first, pair.second});
    std::set<int32_t> used;
    for (const size_t i : meeting) used.insert((*classes)[i]);
    for (size_t i = 0; i < classes->size(); ++i) {
      const auto above = static_cast<int32_t>(std::distance(used.upper_bound((*classes)[i]), used.end()));
      (*classes)[i] = meeting.contains(i) ? Default() - above : Default();
    }
  }

  /// Stretches the shifted jobs to periods with a common cycle; false if some period would grow too much.
  bool FindCycle(JointChoice* choice, double most_stretch, double slack) const {
    const size_t n = world_.jobs().size();
    choice->stretch.assign(n, Seconds(0));
    std::vector<double> alone(n, 0);
    double longest = 0;
    for (size_t i = 0; i < n; ++i) {
      if (!choice->shifted[i]) continue;
      alone[i] = IterationAlone(world_.capacity(), world_.jobs()[i]).count();
      longest = std::max(longest, alone[i]);
    }
    double cycle = longest;
    for (size_t i = 0; i < n; ++i) {
      if (choice->shifted[i]) cycle = std::max(cycle, std::round(longest / alone[i]) * alone[i]);
    }
    for (size_t i = 0; i < n; ++i) {
      if (!choice->shifted[i]) continue;
      const double stretch = (1 + slack) * cycle / std::round(longest / alone[i]) - alone[i];
      if (stretch > most_stretch * alone[i]) return false;
      choice->stretch[i] = Seconds(stretch);
    }
    return true;
  }

  void TryClasses() {
    report_.intensity = CorrectedIntensity(world_.capacity(), world_.jobs());
    if (options_.classes < 2) {
      report_.rejected.push_back("classes: the fabric has one class");
      return;
    }
    const size_t n = world_.members().size();
    PriorityOptions priorities{.classes = options_.classes, .simulation = world_.simulation()};
    priorities.evaluations = n <= 12 ? 400 : n <= 48 ? 100 : 0;
    const PriorityPlan found = PlanPriorities(world_.capacity(), world_.jobs(), priorities);
    plan_->complete &= found.complete;
    JointChoice trial = choice_;
    trial.classes = found.classes;
    Lower(&trial.classes);
    if (trial.classes == choice_.classes) return;
    Take(std::move(trial), options_.class_gain, "priorities by what going first is worth", report_.use);
  }

  /// Windows cost each job their slack: where much would be gained without them, they go.
  void DropShifts() {
    if (!HasShifts(choice_)) return;
    JointChoice free = Unshifted(choice_);
    const double use = world_.Run(free).gpu_use;
    if (use <= report_.use * (1 + std::max(0.0, options_.shift_gain))) return;
    report_.taken.push_back(fmt::format("no time shifts any more: simulated GPU use {:.1f} %, with them {:.1f} %", 100 * use,
                                        100 * report_.use));
    report_.use = use;
    choice_ = std::move(free);
  }

  void TryShifts() {
    std::vector<ShiftJob> jobs;
    std::vector<size_t> members;
    std::vector<bool> stable(world_.members().size());
    for (size_t i = 0; i < stable.size(); ++i) {
      stable[i] = problem_.jobs[world_.members()[i]].stable;
      if (!stable[i]) continue;
      jobs.push_back(PatternOf(world_.capacity(), world_.jobs()[i]));
      members.push_back(i);
    }
    if (jobs.size() < 2) {
      report_.rejected.push_back(fmt::format("time shifts: {} of {} jobs have a measured, stable period, two are needed",
                                             jobs.size(), stable.size()));
      return;
    }
    const ShiftPlan found = WithPauses(jobs);
    plan_->complete &= found.complete;
    if (found.links_left_out > 0) {
      report_.rejected.push_back(fmt::format("time shifts: {} links left out, the periods of their jobs have "
                                             "too many bursts in common", found.links_left_out));
    }
    if (found.links.empty() && found.links_left_out > 0) return;
    if (found.links.empty()) {
      report_.rejected.push_back("time shifts: no two jobs with a stable period overfill a link");
      return;
    }
    if (!Fits(found)) {
      report_.rejected.push_back(fmt::format("time shifts: bursts do not fit beside each other with pauses of {:.0f} % of a "
                                             "period", 100 * guard_));
      return;
    }
    TakeShifts(jobs, members, found);
  }

  /// Shifts with the longest pauses that fit, which guard_ then says.
  ShiftPlan WithPauses(const std::vector<ShiftJob>& jobs) {
    ShiftPlan found;
    for (const double guard : kGuards) {
      guard_ = guard;
      found = PlanTimeShifts(world_.capacity(), Guarded(jobs, guard), kCircles);
      if (Fits(found)) break;
    }
    return found;
  }

  void TakeShifts(const std::vector<ShiftJob>& jobs, const std::vector<size_t>& members, const ShiftPlan& found) {
    std::set<LinkId> colliding;
    for (const ShiftedLink& link : found.links) colliding.insert(link.link);
    if (const std::string in_the_way = InTheWay(colliding); !in_the_way.empty()) {
      report_.rejected.push_back("time shifts: " + in_the_way + " loads the same links and has no steady period");
      return;
    }
    JointChoice trial = Unshifted(choice_);
    for (size_t i = 0; i < members.size(); ++i) {
      const bool concerned = std::any_of(jobs[i].uses.begin(), jobs[i].uses.end(),
                                         [&](const LinkUse& use) { return colliding.contains(use.link); });
      trial.shifted[members[i]] = concerned;
      if (concerned) trial.shift[members[i]] = found.shift[i];
    }
    if (!FindCycle(&trial, kMostStretch, guard_ > kLeastGuard ? kCycleSlack : kShortPauseSlack)) {
      report_.rejected.push_back(fmt::format("time shifts: the periods have no common cycle within {:.0f} %",
                                             100 * kMostStretch));
      return;
    }
    if (const std::string held_never = WithoutPause(trial); !held_never.empty()) {
      report_.rejected.push_back(fmt::format("time shifts: {} pauses for less than {:.0f} % of its period, by which windows tell "
                                             "where its bursts begin", held_never, 100 * kLeastPause));
      return;
    }
    report_.shift_links = found.links;
    const double measured = HasShifts(choice_) ? 0 : world_.MeasuredUse();
    Take(std::move(trial), options_.shift_gain, "time shifts", measured > 0 ? measured : report_.use,
         measured > 0 ? " as measured" : "");
  }

  /// A shifted job that no window would hold; empty: none.
  std::string WithoutPause(const JointChoice& choice) const {
    for (size_t i = 0; i < world_.members().size(); ++i) {
      if (!choice.shifted[i]) continue;
      const Seconds alone = IterationAlone(world_.capacity(), world_.jobs()[i]);
      const Seconds pause = alone - CommunicationAlone(world_.capacity(), world_.jobs()[i]);
      if (pause <= kLeastPause * (alone + choice.stretch[i])) return problem_.jobs[world_.members()[i]].name;
    }
    return "";
  }

  /// A job without a steady period whose bursts on one of these links are longer than pauses are; empty: none.
  std::string InTheWay(const std::set<LinkId>& links) const {
    for (size_t i = 0; i < world_.members().size(); ++i) {
      const JointJob& job = problem_.jobs[world_.members()[i]];
      if (job.stable) continue;
      for (const LinkLoad& load : world_.jobs()[i].loads) {
        if (!links.contains(load.link)) continue;
        const double burst_s = static_cast<double>(load.bytes.count()) / world_.capacity()[load.link.index()].bytes_per_second();
        if (burst_s > kLeastGuard * IterationAlone(world_.capacity(), world_.jobs()[i]).count()) return job.name;
      }
    }
    return "";
  }

  /// The trial becomes the choice if it is worth the change from the present GPU use `now`.
  void Take(JointChoice trial, double gain, const char* what, double now, const char* how_known = "") {
    const double use = world_.Run(trial).gpu_use;
    if (use > now * (1 + gain)) {
      report_.taken.push_back(fmt::format("{}: simulated GPU use {:.1f} % in place of {:.1f} %{}", what, 100 * use, 100 * now,
                                          how_known));
      report_.use = use;
      choice_ = std::move(trial);
      return;
    }
    report_.rejected.push_back(fmt::format("{}: simulated GPU use {:.1f} % against {:.1f} % now{}, expected {:.0f} % more "
                                           "to be worth the change", what, 100 * use, 100 * now, how_known, 100 * gain));
  }

  /// How far the choice leads plain ECMP where it leads least; relative. A job whose period is not what its window was made
  /// for is set free by whoever measures it, so with wrong times nothing is shifted.
  double Margin(const JointChoice& choice, const std::vector<std::vector<double>>& errors,
                const std::vector<double>& ecmp) const {
    const JointChoice unshifted = Unshifted(choice);
    double worst = report_.use_default > 0 ? world_.Run(choice).gpu_use / report_.use_default - 1 : 0;
    for (size_t e = 0; e < errors.size(); ++e) {
      if (ecmp[e] > 0) worst = std::min(worst, world_.Run(unshifted, errors[e]).gpu_use / ecmp[e] - 1);
    }
    return worst;
  }

  /// Takes back, in turn, shifts and classes if plain ECMP might do better.
  void KeepSafe() {
    const std::vector<std::vector<double>> errors = Errors(world_.members().size(), options_.profile_error);
    std::vector<double> ecmp;
    for (const std::vector<double>& factor : errors) ecmp.push_back(world_.Ecmp(factor));
    const JointChoice unshifted = Unshifted(choice_);
    JointChoice plain = unshifted;
    plain.classes.assign(choice_.classes.size(), Default());
    const std::pair<JointChoice, const char*> steps[] = {
        {choice_, "classes and shifts"}, {unshifted, "classes"}, {plain, "paths"}};
    for (const auto& [choice, what] : steps) {
      report_.margin = Margin(choice, errors, ecmp);
      choice_ = choice;
      if (report_.margin >= -kNotWorse) break;
      report_.rejected.push_back(
          fmt::format("{}: with compute times {:.0f} % wrong, {:.1f} % less GPU use than plain ECMP", what,
                      100 * options_.profile_error, -100 * report_.margin));
    }
    report_.state = world_.Run(choice_);
    report_.use = report_.state.gpu_use;
  }

  void Write() {
    plan_->worst_margin = plan_->modelled == 0 ? report_.margin : std::min(plan_->worst_margin, report_.margin);
    const double gpus = world_.gpus();
    plan_->modelled += static_cast<int64_t>(world_.members().size());
    plan_->gpu_use += report_.use * gpus;
    plan_->gpu_use_present += report_.use_present * gpus;
    plan_->gpu_use_default += report_.use_default * gpus;
    if (report_.intensity.empty()) report_.intensity = CorrectedIntensity(world_.capacity(), world_.jobs());
    for (size_t i = 0; i < world_.members().size(); ++i) {
      JointJobPlan& job = plan_->jobs[world_.members()[i]];
      job.modelled = true;
      job.group = world_.members().front();
      job.traffic_class = choice_.classes[i];
      job.shifted = choice_.shifted[i];
      job.shift = choice_.shift[i];
      job.intensity = report_.intensity[i];
      const double raw = GpuIntensity(world_.capacity(), world_.jobs()[i]);
      job.correction = std::isfinite(raw) && raw > 0 ? report_.intensity[i] / raw : 1;
      job.communication = CommunicationAlone(world_.capacity(), world_.jobs()[i]);
      job.predicted = report_.state.iteration[i];
      if (job.shifted) {
        const PeriodicJob& model = world_.jobs()[i];
        job.period = IterationAlone(world_.capacity(), model) + choice_.stretch[i];
        job.window = (guard_ + kWindowSlack) * job.period;
        job.burst = job.shift + model.release + choice_.stretch[i];
      }
    }
    FindContenders(world_, plan_);
    WriteReasons(problem_, world_, report_, plan_);
  }

  const JointProblem& problem_;
  const JointOptions& options_;
  JointWorld world_;
  JointPlan* plan_;
  JointChoice choice_;
  GroupReport report_;
  double guard_ = kLeastGuard;   ///< pause between bursts, of the period
};

}  // namespace

JointPlan PlanJointly(const JointProblem& problem) {
  JointPlan plan;
  plan.jobs.resize(problem.jobs.size());
  for (JointJobPlan& job : plan.jobs) job.traffic_class = problem.options.classes - 1;
  double gpus = 0;
  for (std::vector<size_t>& members : JointGroups(problem)) {
    for (const size_t j : members) gpus += static_cast<double>(std::max<int64_t>(1, problem.jobs[j].gpus));
    GroupPlanner(problem, std::move(members), &plan).Run();
  }
  if (gpus > 0) {
    for (double* use : {&plan.gpu_use, &plan.gpu_use_present, &plan.gpu_use_default}) *use /= gpus;
  }
  std::vector<bool> modelled;
  for (const JointJobPlan& job : plan.jobs) modelled.push_back(job.modelled);
  if (const Result<JointBound> bound = BoundJointly(problem, modelled); bound) {
    plan.gpu_use_bound = bound->gpu_use;
    if (bound->gpu_use > 0) plan.gap = std::max(0.0, 1 - plan.gpu_use / bound->gpu_use);
    for (size_t j = 0; j < plan.jobs.size(); ++j) plan.jobs[j].bound = bound->alone[j];
    if (!bound->tight.empty()) plan.notes.push_back(TightText(*bound));
  } else {
    plan.notes.push_back("no bound: " + bound.error().message());
  }
  AddBoundReasons(problem, &plan);
  return plan;
}

}  // namespace weft::planner::jobs
