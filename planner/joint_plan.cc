#include "planner/joint_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "planner/flows/priority.h"
#include "planner/flows/time_shift.h"
#include "planner/joint_bound.h"
#include "planner/joint_reasons.h"
#include "planner/joint_world.h"

namespace weft::planner {
namespace {

constexpr double kNotWorse = 1e-3;        // relative: less is rounding of a finite simulation
constexpr double kWindowSlack = 0.05;     // of the period, that a window is open longer than its bursts take
constexpr double kGuard = 0.04;           // of the period, that is kept between the bursts of two jobs
constexpr double kMostStretch = 0.05;     // of a period, that a window may delay an iteration by
/// So that an answer comes within seconds: bursts of periods in no small ratio average out, and need no window.
constexpr CircleOptions kCircles{.evaluations = 20'000, .edges = 256};
constexpr double kCycleSlack = 0.03;      // of the cycle: a job that is slower than its windows come would miss them

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

/// The pattern with bursts that seem to begin earlier, so that they do not follow each other without a pause.
ShiftJob Guarded(ShiftJob job) {
  for (LinkUse& use : job.uses) {
    for (Burst& burst : use.bursts) burst.begin = std::max(Seconds(0), burst.begin - kGuard * job.period);
  }
  return job;
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
    if (!FindCycle(&choice)) choice.shifted.assign(choice.shifted.size(), false);
    return choice;
  }

  /// The same order in the lowest classes, so that nothing is raised above foreign traffic without need; jobs that meet nobody
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
  bool FindCycle(JointChoice* choice) const {
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
      const double stretch = (1 + kCycleSlack) * cycle / std::round(longest / alone[i]) - alone[i];
      if (stretch > kMostStretch * alone[i]) return false;
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
    Take(std::move(trial), options_.class_gain, "classes by corrected intensity");
  }

  void TryShifts() {
    std::vector<ShiftJob> jobs;
    std::vector<size_t> members;
    std::vector<bool> stable(world_.members().size());
    for (size_t i = 0; i < stable.size(); ++i) {
      stable[i] = problem_.jobs[world_.members()[i]].stable;
      if (!stable[i]) continue;
      jobs.push_back(Guarded(PatternOf(world_.capacity(), world_.jobs()[i])));
      members.push_back(i);
    }
    if (jobs.size() < 2) {
      report_.rejected.push_back(fmt::format("time shifts: {} of {} jobs have a measured, stable period, two are needed",
                                             jobs.size(), stable.size()));
      return;
    }
    const ShiftPlan found = PlanTimeShifts(world_.capacity(), jobs, kCircles);
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
    JointChoice trial = choice_;
    for (size_t i = 0; i < members.size(); ++i) {
      trial.shifted[members[i]] = true;
      trial.shift[members[i]] = found.shift[i];
    }
    if (!FindCycle(&trial)) {
      report_.rejected.push_back(fmt::format("time shifts: the periods have no common cycle within {:.0f} %",
                                             100 * kMostStretch));
      return;
    }
    report_.shift_links = found.links;
    Take(std::move(trial), options_.shift_gain, "time shifts");
  }

  /// The trial becomes the choice if it is worth the change.
  void Take(JointChoice trial, double gain, const char* what) {
    const double use = world_.Run(trial).gpu_use;
    if (use > report_.use * (1 + gain)) {
      report_.taken.push_back(fmt::format("{}: simulated GPU use {:.1f} % in place of {:.1f} %", what, 100 * use,
                                          100 * report_.use));
      report_.use = use;
      choice_ = std::move(trial);
      return;
    }
    report_.rejected.push_back(fmt::format("{}: simulated GPU use {:.1f} % against {:.1f} % now, expected {:.0f} % more "
                                           "to be worth the change", what, 100 * use, 100 * report_.use, 100 * gain));
  }

  /// How far the choice leads plain ECMP where it leads least; relative. A job whose period is not what its window was made
  /// for is set free by whoever measures it, so with wrong times nothing is shifted.
  double Margin(const JointChoice& choice, const std::vector<std::vector<double>>& errors,
                const std::vector<double>& ecmp) const {
    JointChoice unshifted = choice;
    unshifted.shifted.assign(choice.shifted.size(), false);
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
    JointChoice plain{std::vector<int32_t>(choice_.classes.size(), Default()),
                      std::vector<bool>(choice_.classes.size(), false),
                      std::vector<Seconds>(choice_.classes.size(), Seconds(0)),
                      std::vector<Seconds>(choice_.classes.size(), Seconds(0))};
    JointChoice unshifted = plain;
    unshifted.classes = choice_.classes;
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
        job.window = std::min(job.period, job.communication + kWindowSlack * job.period);
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
};

class Digest {
 public:
  void Add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash_ ^= value >> shift & 0xFF;
      hash_ *= 0x100000001B3;
    }
  }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  void Add(const std::string& text) {
    Add(static_cast<uint64_t>(text.size()));
    for (const char c : text) Add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  void Add(const JointJob& job) {
    Add(job.name);
    for (const int64_t value : {job.gpus, int64_t{job.stable}, int64_t{job.present_class}, int64_t{job.shifted}}) {
      Add(static_cast<uint64_t>(value));
    }
    for (const Seconds time : {job.compute, job.release, job.present_shift}) Add(time.count());
    for (const JointFlow& flow : job.flows) {
      Add(static_cast<uint64_t>(flow.bytes.count()));
      Add(static_cast<uint64_t>(flow.from.value()) << 32 | static_cast<uint32_t>(flow.to.value()));
      for (const CandidatePath& path : flow.paths) {
        Add(static_cast<uint64_t>(path.links.size()));
        for (const LinkId link : path.links) Add(static_cast<uint64_t>(link.value()));
      }
      for (const double share : flow.shares) Add(share);
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325;
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

uint64_t DigestOf(const JointProblem& problem) {
  Digest digest;
  for (const Node& node : problem.topology.nodes()) digest.Add(node.name);
  for (const Link& link : problem.topology.links()) {
    digest.Add(static_cast<uint64_t>(link.from.value()) << 32 | static_cast<uint32_t>(link.to.value()));
    digest.Add(link.capacity.value());
  }
  for (const JointJob& job : problem.jobs) digest.Add(job);
  const JointOptions& options = problem.options;
  digest.Add(static_cast<uint64_t>(options.classes) << 32 | static_cast<uint32_t>(options.hash_seeds));
  for (const double value : {options.class_gain, options.shift_gain, options.profile_error}) digest.Add(value);
  return digest.value();
}

}  // namespace weft::planner
