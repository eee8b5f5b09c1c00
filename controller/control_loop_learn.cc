// The loop's part in learning the cluster's constants from what iterations of its jobs take: it looks at them every few seconds, has one
// job priced as a run at a time, outside of the lock, and plans with what comes of it.
#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "common/log.h"
#include "controller/control_loop.h"
#include "controller/patience.h"

namespace weft::controller {
namespace {

constexpr char kComponent[] = "controller";
constexpr Seconds kLookInterval{5};

}  // namespace

JobPlannerOptions ControlLoop::PlannerNow() const {
  JobPlannerOptions planner = options_.planner;
  planner.cluster.measured.insert(planner.cluster.measured.end(), learned_.constants.begin(), learned_.constants.end());
  return planner;
}

/// By the configured constants: what was learned before is learned again, from all runs.
ControlLoop::Learned ControlLoop::Learn(const Lesson& lesson, const std::stop_token& stop) const {
  const Patience patience(kLessonPatience, stop);
  Learned learned;
  RunBook book;
  for (const v1::MeasuredRun& run : lesson.runs) book.Add(run);
  if (lesson.question) {
    Result<v1::MeasuredRun> run = RunOf(*lesson.question, options_.planner);
    if (!run) {
      learned.why_not = run.error().message();
      return learned;
    }
    book.Add(*run);
    learned.run = *std::move(run);
  }
  Result<LearnedRuns> what = LearnFromRuns(book.runs(), options_.planner, patience.token());
  if (what) learned.what = *std::move(what);
  else learned.why_not = what.error().message();
  return learned;
}

Status ControlLoop::RecoverRuns() {
  if (!options_.learns) return Ok();
  WEFT_ASSIGN_OR_RETURN(std::vector<v1::MeasuredRun> runs, journal_->Runs());
  if (runs.empty()) return Ok();
  for (v1::MeasuredRun& run : runs) runs_.Add(std::move(run));
  learning_ = true;
  learn_worker_.Ask({.question = std::nullopt, .runs = runs_.runs()});
  return Ok();
}

void ControlLoop::WatchRuns() {
  const Seconds now = Now();
  if (!options_.learns || learning_ || now < next_look_) return;
  next_look_ = now + kLookInterval;
  std::set<RunWatch::Key> known;
  std::optional<std::string> due;
  for (const auto& [job, iteration_s] : core_.MeasuredIterations()) {
    known.insert(job);
    if (!due && run_watch_.See(job, iteration_s, now.count())) due = job.first;
  }
  run_watch_.KeepOnly(known);
  if (!due) return;
  learning_ = true;
  learn_worker_.Ask({.question = core_.RunningJob(*due), .runs = runs_.runs()});
}

void ControlLoop::Take(const Learned& learned) {
  learning_ = false;
  if (learned.run) {
    run_watch_.Taken(learned.run->spec().job_id(), learned.run->iteration_s());
    static_cast<void>(KeepInJournal(KeepRun{*learned.run, runs_.Add(*learned.run)}));
  }
  if (!learned.why_not.empty()) {
    LogInfo(kComponent, "nothing learned", {{"why", learned.why_not}});
    return;
  }
  learned_ = learned.what;
  Handle({.body = RunLearned{learned.run ? learned.run->spec().job_id() : "", learned_.text}});
}

}  // namespace weft::controller
