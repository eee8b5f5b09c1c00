// The phase in which Weft decides: both jobs managed, then the fabric broken under them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "cli/demo/at_end.h"
#include "cli/demo/phases.h"
#include "common/clock.h"
#include "common/parse_units.h"
#include "proto/plan_codec.h"

namespace weft::cli {
namespace {

using testbed::Output;

constexpr double kCableFactor = 0.5;   // of the rate that the slowed cable keeps
constexpr double kBackgroundShare = 0.3;  // of a link that the background flow asks for
constexpr double kCalmShare = 0.38;    // of the duration, before the faults; twice that on a slow machine
constexpr double kBrokenShare = 0.45;  // and after them
constexpr double kStepsWanted = 43;    // of which nine blocks can be made, whatever job they are of
constexpr double kSlowerWhenBroken = 1.3;
constexpr int kBackgroundPort = 41999;
constexpr Seconds kSettle{6};          // after a start: connections, probes, first plan
constexpr Seconds kRecover{10};        // after the faults: measured, decided, moved

Seconds Now() { return SystemClock().Now(); }

}  // namespace

v1::JobSpec SpecOf(const DemoJob& job, Seconds compute) {
  const planner::JobSpec& trained = job.training.job;
  v1::JobSpec spec;
  spec.set_job_id(job.name);
  spec.set_name(job.name);
  spec.set_model_config_json(job.training.config);
  spec.set_global_batch(trained.global_batch);
  spec.set_sequence(trained.sequence);
  spec.set_precision("fp32");
  spec.set_gpus(trained.gpus);
  for (const auto& host : job.hosts) spec.add_hosts(host);
  spec.set_framework("weft-train");
  spec.set_measured_compute_s(compute.count());
  *spec.mutable_given_strategy() = proto::ToGivenProto(job.training.strategy, "weft demo");
  return spec;
}

Status DemoPhases::BreakFabric() {
  const BitsPerSecond slow = options_.link_rate * kCableFactor, background = report_->goodput * kBackgroundShare;
  WEFT_RETURN_IF_ERROR(cluster_.fabric().SetCableRate("leaf1", "spine1", slow));
  cables_.push_back({.leaf = 1, .spine = 1, .factor = kCableFactor});

  const std::string from = fmt::format("h{}", options_.hosts_per_leaf);
  const std::string to = fmt::format("h{}", 2 * options_.hosts_per_leaf);
  WEFT_ASSIGN_OR_RETURN(auto server,
                        testbed::Spawn({.argv = {"iperf3", "-s", "-1", "-p", "5201", "--forceflush"},
                                        .netns = cluster_.host(to).netns,
                                        .out = Output::Pipe(),
                                        .err = Output::SameAsOut()}));
  WEFT_RETURN_IF_ERROR(server.out_lines()->Next(Seconds(5), stop_));  // it listens once it has said something
  WEFT_ASSIGN_OR_RETURN(auto client,
                        testbed::Spawn({.argv = {"iperf3", "-c", cluster_.host(to).data_address, "-p", "5201",
                                                 "--cport", std::to_string(kBackgroundPort), "-t", "600", "-u",
                                                 "-b", fmt::format("{:.0f}", background.value())},
                                        .netns = cluster_.host(from).netns,
                                        .out = Output::Null(),
                                        .err = Output::File(options_.log_dir + "/iperf3.log")}));
  WEFT_ASSIGN_OR_RETURN(const auto path, cluster_.fabric().PathOf({.source = from,
                                                                   .destination = to,
                                                                   .source_port = kBackgroundPort,
                                                                   .destination_port = 5201,
                                                                   .protocol = "udp"}));
  background_processes_.push_back(std::move(server));
  background_processes_.push_back(std::move(client));
  background_.push_back({.from = from, .to = to, .spine = std::stoi(path[2].substr(5)), .rate = background});
  report_->events.push_back(fmt::format("cable leaf1-spine1 slowed from {} to {}, both directions",
                                        FormatRate(options_.link_rate), FormatRate(slow)));
  report_->events.push_back(fmt::format("unmanaged iperf3 flow of {} from {} to {}, over {} (UDP)",
                                        FormatRate(background), from, to, path[2]));
  for (const auto& event : report_->events) Progress(event);
  return Ok();
}

Status DemoPhases::SubmitJobs() {
  // Nobody says what an NCCL job computes: the controller manages it by what it sees.
  if (options_.program == JobProgram::kNccl) return Ok();
  for (size_t i = 0; i < jobs_.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const auto submitted,
                          cluster_.client().SubmitJob(SpecOf(jobs_[i], MedianBlock(timed_blocks_[i]).compute())));
    const auto& hosts = submitted.plan().rank_hosts();
    if (static_cast<size_t>(hosts.size()) == jobs_[i].hosts.size()) {
      jobs_[i].hosts.assign(hosts.begin(), hosts.end());
      bound_jobs_[i].hosts = jobs_[i].hosts;
    }
  }
  return Ok();
}

Seconds DemoPhases::PhaseLength(double share, Seconds lead, double slower) const {
  Seconds iteration{0};
  for (const JobReport& job : report_->jobs) iteration = std::max(iteration, job.alone);
  const Seconds wanted = lead + iteration * (slower * kStepsWanted);
  return std::clamp(wanted, std::max(options_.duration * share, lead + Seconds(5)),
                    std::max(options_.duration * share * 2, lead + Seconds(5)));
}

Status DemoPhases::RunWeft() {
  Progress("both jobs, Weft decides");
  WEFT_RETURN_IF_ERROR(SubmitJobs());
  WEFT_RETURN_IF_ERROR(cluster_.client().SetMode(v1::MODE_ENFORCE));
  WEFT_ASSIGN_OR_RETURN(const LinkBytes before, cluster_.ReadLinks());
  const Seconds calm = PhaseLength(kCalmShare, kSettle, 1);
  const Seconds broken = PhaseLength(kBrokenShare, kRecover, kSlowerWhenBroken);
  Jobs running;
  const Seconds begin = Now();
  for (size_t i = 0; i < jobs_.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(auto started, Launch(i, "", calm + broken + Seconds(2)));
    running.push_back(std::move(started));
  }
  // The clock of the phase starts when both jobs train.
  for (const auto& job : running) {
    while (job->steps().size() < 2) {
      if (Now() - begin > Seconds(60)) return Fail(Code::kDeadlineExceeded, job->name() + " does not train");
      WEFT_RETURN_IF_ERROR(WaitUntil(Now() + Seconds(0.1)));
    }
  }
  const Seconds training = Now();
  WEFT_RETURN_IF_ERROR(WaitUntil(training + calm));
  WEFT_RETURN_IF_ERROR(AddLinks("Weft", before, Now() - begin, nullptr));
  WEFT_ASSIGN_OR_RETURN(const LinkBytes calm_links, cluster_.ReadLinks());
  WEFT_ASSIGN_OR_RETURN(const auto decisions, cluster_.client().ListDecisions());
  const Seconds fault = Now();
  WEFT_RETURN_IF_ERROR(BreakFabric());
  WEFT_RETURN_IF_ERROR(WaitUntil(fault + broken));
  const Seconds end = Now();
  JudgeWeft(running, training, training + calm, fault, end);
  WEFT_RETURN_IF_ERROR(FillDecisions(static_cast<double>(decisions.replans())));
  WEFT_ASSIGN_OR_RETURN(report_->metrics_scraped, cluster_.CountMetrics());
  Status at_end = Ok();
  if (!options_.at_end.empty()) {
    Progress("running the command of --at-end");
    at_end = RunAtEnd(cluster_, options_.at_end, stop_);
  }
  WEFT_ASSIGN_OR_RETURN(const auto summaries, FinishAll(running));
  background_processes_.clear();
  for (size_t i = 0; i < summaries.size(); ++i) {
    JobReport& report = report_->jobs[i];
    report.steps = summaries[i].steps;
    report.bytes_sent = summaries[i].bytes_sent;
    report.first_loss = summaries[i].first_loss;
    report.final_loss = summaries[i].final_loss;
    if (options_.program == JobProgram::kNccl) {
      report_->events.push_back(fmt::format("{}: NCCL {}, {} elements on rank 0 checked, none wrong", jobs_[i].name,
                                            summaries[i].nccl, summaries[i].elements_checked));
    } else {
      WEFT_RETURN_IF_ERROR(cluster_.client().ReleaseJob(jobs_[i].name));
    }
  }
  WEFT_RETURN_IF_ERROR(AddLinks("Weft, faults", calm_links, Now() - fault, &before));
  return at_end;
}

void DemoPhases::JudgeWeft(const Jobs& running, Seconds training, Seconds calm, Seconds fault, Seconds end) {
  std::vector<PhaseJob> jobs;
  for (size_t i = 0; i < running.size(); ++i) jobs.push_back({bound_jobs_[i], running[i]->steps()});
  const auto before = EstimatePhase(FabricOfBound(), jobs, training + kSettle, calm, {}, {});
  const auto after = EstimatePhase(FabricOfBound(), jobs, fault + kRecover, end, cables_, background_);
  for (size_t i = 0; i < running.size(); ++i) {
    JobReport& job = report_->jobs[i];
    job.compute = before[i].compute;
    job.weft = before[i].iteration;
    job.bound = before[i].bound;
    job.weft_ratio = before[i].ratio;
    job.bound_formula = before[i].formula;
    job.weft_faulted = after[i].iteration;
    job.bound_faulted = after[i].bound;
    job.faulted_ratio = after[i].ratio;
    job.bound_formula_faulted = after[i].formula;
  }
}

Status DemoPhases::FillDecisions(double replans_before_fault) {
  WEFT_ASSIGN_OR_RETURN(const auto decisions, cluster_.client().ListDecisions());
  report_->replans = decisions.replans();
  report_->replans_after_fault = decisions.replans() - static_cast<int64_t>(replans_before_fault);
  report_->policy_epochs = decisions.policy_epochs();
  report_->page = "http://" + cluster_.http() + "/";
  for (const auto& decision : decisions.decisions()) {
    report_->decisions.push_back(
        {decision.time_s(), decision.job_id(), decision.kind(), decision.reason()});
  }
  return Ok();
}

}  // namespace weft::cli
