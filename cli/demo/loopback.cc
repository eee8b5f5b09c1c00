#include "cli/demo/loopback.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "cli/demo/at_end.h"
#include "cli/demo/free_port.h"
#include "cli/demo/phases.h"
#include "cli/demo/training_job.h"
#include "common/clock.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

// Of --duration; the first is there once per job.
constexpr double kAloneShare = 0.28, kTogetherShare = 0.4;
constexpr Seconds kAtEnd{8};  // longer together, so that the command of --at-end sees both train

Seconds Now() { return SystemClock().Now(); }

class LoopbackPhases {
 public:
  LoopbackPhases(DemoCluster& cluster, const LoopbackOptions& options, const std::stop_token& stop,
                 DemoReport& report)
      : cluster_(cluster), options_(options), stop_(stop), report_(report) {}

  Status Run();

 private:
  using Jobs = std::vector<std::unique_ptr<TrainingJob>>;

  Status RunAlone(size_t job);
  Status RunTogether();
  Status Submit(size_t job);
  Status AskController();
  Result<std::unique_ptr<TrainingJob>> Launch(size_t job, const std::string& suffix, Seconds duration);
  Status Pause(Seconds time);
  void Progress(const std::string& text) {
    fmt::print(stderr, "demo {:6.1f} s  {}\n", (Now() - start_).count(), text);
  }

  DemoCluster& cluster_;
  const LoopbackOptions& options_;
  const std::stop_token& stop_;
  DemoReport& report_;
  std::vector<DemoJob> jobs_;
  const Seconds start_ = Now();
};

Result<std::unique_ptr<TrainingJob>> LoopbackPhases::Launch(size_t index, const std::string& suffix,
                                                            Seconds duration) {
  const DemoJob& job = jobs_[index];
  WEFT_ASSIGN_OR_RETURN(const int port, FreePort(cluster_.host(job.hosts[0]).mgmt_address));
  TrainingJobOptions options = TrainOptionsOf(job, options_.data, duration);
  options.name += suffix;
  options.rendezvous_port = port;
  return TrainingJob::Start(cluster_, options, options_.log_dir);
}

Status LoopbackPhases::Pause(Seconds time) {
  std::mutex mutex;
  std::condition_variable_any condition;
  std::unique_lock lock(mutex);
  condition.wait_for(lock, stop_, time, [] { return false; });
  if (stop_.stop_requested()) return Fail(Code::kCancelled, "interrupted");
  return Ok();
}

Status LoopbackPhases::Run() {
  WEFT_ASSIGN_OR_RETURN(jobs_, MakeDemoJobs(options_.program, options_.hosts_per_leaf, cluster_.installation().examples, options_.log_dir));
  // On a machine with one core the jobs share it, and say so by their times.
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (DemoJob& job : jobs_) job.core %= cores;
  for (const DemoJob& job : jobs_) {
    JobReport entry;
    entry.name = job.name;
    entry.ranks = static_cast<int>(job.hosts.size());
    report_.jobs.push_back(std::move(entry));
  }
  for (size_t i = 0; i < jobs_.size(); ++i) WEFT_RETURN_IF_ERROR(RunAlone(i));
  return RunTogether();
}

Status LoopbackPhases::RunAlone(size_t index) {
  Progress(fmt::format("{}: alone", jobs_[index].name));
  WEFT_ASSIGN_OR_RETURN(auto job, Launch(index, "-alone", options_.duration * kAloneShare));
  WEFT_ASSIGN_OR_RETURN(const auto summary, job->Finish(options_.duration + Seconds(60), stop_));
  const auto steps = job->steps();
  const auto blocks = CutBlocks(steps, steps[1].time, Now());
  if (!blocks.empty()) report_.jobs[index].compute = MedianBlock(blocks).compute();
  report_.jobs[index].model = summary.model;
  report_.jobs[index].scaling = jobs_[index].training.scaling;
  report_.jobs[index].alone = MedianIteration(steps, steps[1].time, Now()).value_or(Seconds(0));
  return Ok();
}

Status LoopbackPhases::Submit(size_t index) {
  WEFT_ASSIGN_OR_RETURN(const auto submitted,
                        cluster_.client().SubmitJob(SpecOf(jobs_[index], report_.jobs[index].compute)));
  const auto& hosts = submitted.plan().rank_hosts();
  if (static_cast<size_t>(hosts.size()) == jobs_[index].hosts.size()) {
    jobs_[index].hosts.assign(hosts.begin(), hosts.end());
  }
  return Ok();
}

Status LoopbackPhases::RunTogether() {
  Progress("both jobs together, submitted to the controller");
  for (size_t i = 0; i < jobs_.size(); ++i) WEFT_RETURN_IF_ERROR(Submit(i));
  WEFT_RETURN_IF_ERROR(cluster_.client().SetMode(v1::MODE_ENFORCE));
  Jobs running;
  Seconds together = options_.duration * kTogetherShare;
  if (!options_.at_end.empty()) together += kAtEnd;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(auto started, Launch(i, "", together));
    running.push_back(std::move(started));
  }
  const Seconds begin = Now();
  for (const auto& job : running) {
    while (job->steps().size() < 2) {
      if (Now() - begin > Seconds(60)) return Fail(Code::kDeadlineExceeded, job->name() + " does not train");
      WEFT_RETURN_IF_ERROR(Pause(Seconds(0.1)));
    }
  }
  // Late enough for the agents to have found the iteration period, and while both still train.
  WEFT_RETURN_IF_ERROR(Pause(options_.duration * (kTogetherShare * 0.6)));
  WEFT_RETURN_IF_ERROR(AskController());
  const Status at_end = options_.at_end.empty() ? Ok() : RunAtEnd(cluster_, options_.at_end, stop_);
  Seconds from{0}, to{1e18};  // while both trained
  for (size_t i = 0; i < running.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const auto summary, running[i]->Finish(options_.duration + Seconds(60), stop_));
    const auto steps = running[i]->steps();
    from = std::max(from, steps[1].time);
    to = std::min(to, steps.back().time + Seconds(1e-6));
    JobReport& job = report_.jobs[i];
    job.steps = summary.steps;
    job.bytes_sent = summary.bytes_sent;
    job.first_loss = summary.first_loss;
    job.final_loss = summary.final_loss;
  }
  for (size_t i = 0; i < running.size(); ++i) {
    const auto median = MedianIteration(running[i]->steps(), from, to);
    if (median) report_.jobs[i].default_draws.push_back(*median);
    WEFT_RETURN_IF_ERROR(cluster_.client().ReleaseJob(jobs_[i].name));
  }
  return at_end;
}

Status LoopbackPhases::AskController() {
  WEFT_ASSIGN_OR_RETURN(const auto listed, cluster_.client().ListJobs());
  for (const auto& job : listed.jobs()) {
    const auto ours = [&](const DemoJob& known) { return known.name == job.spec().job_id(); };
    if (std::none_of(jobs_.begin(), jobs_.end(), ours)) continue;  // an earlier phase's
    report_.events.push_back(fmt::format(
        "{}: {} flows, sending {}, iteration {}", job.spec().job_id(), job.flows(),
        FormatRate(BitsPerSecond(job.send_rate_bps())),
        job.iteration_s() > 0 ? FormatDuration(Seconds(job.iteration_s())) : std::string("not found yet")));
    Progress("the controller sees " + report_.events.back());
  }
  WEFT_ASSIGN_OR_RETURN(report_.metrics_scraped, cluster_.CountMetrics());
  WEFT_ASSIGN_OR_RETURN(const auto decisions, cluster_.client().ListDecisions());
  report_.policy_epochs = decisions.policy_epochs();
  report_.page = "http://" + cluster_.http() + "/";
  for (const auto& decision : decisions.decisions()) {
    report_.decisions.push_back({decision.time_s(), decision.job_id(), decision.kind(), decision.reason()});
  }
  return Ok();
}

}  // namespace

Status RunLoopback(DemoCluster& cluster, const LoopbackOptions& options, const std::stop_token& stop,
                   DemoReport& report) {
  report.not_shown.push_back(
      "default ECMP, collisions, re-plans, link use, faults and bounds: all hosts share lo, which has no switch and no "
      "second path, so these columns are empty");
  return LoopbackPhases(cluster, options, stop, report).Run();
}

}  // namespace weft::cli
