#include "cli/demo/phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/clock.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

using testbed::Output;

constexpr double kUnattributed = 0.005;  // of what links carried, by flows on ways that are not known: more and links are not compared
constexpr double kDefaultSlice = 0.1;   // of the duration: each job alone, each draw
constexpr Seconds kLeastDefault{8};
constexpr int kDrawTries = 3;
constexpr Seconds kLinger{2};            // for the last counters to reach the controller

Seconds Now() { return SystemClock().Now(); }

}  // namespace

DemoPhases::DemoPhases(DemoCluster& cluster, PhaseOptions options, std::stop_token stop)
    : cluster_(cluster),
      options_(std::move(options)),
      stop_(std::move(stop)),
      start_(Now()) {}

void DemoPhases::Progress(const std::string& text) {
  fmt::print(stderr, "demo {:6.1f} s  {}\n", (Now() - start_).count(), text);
}

Status DemoPhases::WaitUntil(Seconds time) {
  std::mutex mutex;
  std::condition_variable_any condition;
  std::unique_lock lock(mutex);
  condition.wait_for(lock, stop_, std::max(Seconds(0), time - Now()), [] { return false; });
  if (stop_.stop_requested()) return Fail(Code::kCancelled, "interrupted");
  return Ok();
}

Status DemoPhases::Run(DemoReport& report) {
  report_ = &report;
  WEFT_ASSIGN_OR_RETURN(jobs_, MakeDemoJobs(options_.program, options_.hosts_per_leaf, cluster_.installation().examples, options_.log_dir));
  for (const DemoJob& job : jobs_) {
    JobReport entry;
    entry.name = job.name;
    entry.ranks = static_cast<int>(job.hosts.size());
    report.jobs.push_back(std::move(entry));
  }
  bound_jobs_.resize(jobs_.size());
  timed_blocks_.resize(jobs_.size());
  default_blocks_.resize(jobs_.size());
  WEFT_RETURN_IF_ERROR(MeasureGoodput());
  WEFT_RETURN_IF_ERROR(RunAlone());
  for (int draw = 0; draw < options_.draws; ++draw) WEFT_RETURN_IF_ERROR(RunDefault(draw));
  JudgeDefault();
  return RunWeft();
}

Result<std::unique_ptr<TrainingJob>> DemoPhases::Launch(size_t index, const std::string& suffix, Seconds duration) {
  const DemoJob& job = jobs_[index];
  TrainingJobOptions options =
      options_.program == JobProgram::kNccl
          ? NcclOptionsOf(job, options_.nccl, duration)
          : TrainOptionsOf(job, options_.data, duration);
  options.name += suffix;
  options.rendezvous_port = next_port_++;
  return TrainingJob::Start(cluster_, options, options_.log_dir);
}

Result<std::vector<TrainingSummary>> DemoPhases::FinishAll(Jobs& jobs) {
  std::vector<TrainingSummary> summaries;
  for (auto& job : jobs) {
    WEFT_ASSIGN_OR_RETURN(auto summary, job->Finish(options_.duration + Seconds(60), stop_));
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

void DemoPhases::Describe(size_t index, const TrainingSummary& summary) {
  JobReport& report = report_->jobs[index];
  report.model = summary.model;
  report.scaling = jobs_[index].training.scaling;
  BoundJob bound{.name = jobs_[index].name,
                 .hosts = jobs_[index].hosts,
                 .program = jobs_[index].training.program,
                 .computations = {},
                 .iteration = {}};
  if (options_.program == JobProgram::kNccl) {
    report.scaling = NcclSteps();
    report.scaling.push_back("NCCL " + summary.nccl);
    bound.program = nullptr;
    for (const int64_t bytes : summary.bucket_bytes) bound.iteration.buckets.push_back({Bytes(bytes), Seconds(0)});
  }
  bound_jobs_[index] = std::move(bound);
}

BoundFabric DemoPhases::FabricOfBound() const {
  return {.spines = 2, .hosts_per_leaf = options_.hosts_per_leaf, .goodput = report_->goodput};
}

Status DemoPhases::MeasureGoodput() {
  Progress("goodput of one uncontended flow");
  const auto& from = cluster_.host(jobs_[0].hosts.front());
  const auto& to = cluster_.host(jobs_[0].hosts.back());
  // A second's worth of the line rate per message.
  const int64_t bytes = static_cast<int64_t>(options_.link_rate.bytes_per_second() / 2) & ~int64_t{4095};
  std::vector<testbed::Process> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    WEFT_ASSIGN_OR_RETURN(
        auto process,
        testbed::Spawn({.argv = {cluster_.installation().bin + "/weft", "perf", "--collective", "sendrecv", "--bytes",
                                 fmt::format("{}B", bytes), "--iterations", "5", "--warmup", "1", "--rank",
                                 std::to_string(rank), "--world", "2", "--rendezvous",
                                 fmt::format("{}:{}", from.mgmt_address, next_port_), "--plugin",
                                 cluster_.installation().plugin, "--output", "json"},
                        .environment = {{"NCCL_SOCKET_IFNAME", "=eth0"}, {"WEFT_RUN_DIR", options_.log_dir}},
                        .netns = rank == 0 ? from.netns : to.netns,
                        .cores = {rank},
                        .out = rank == 0 ? Output::Pipe() : Output::Null(),
                        .err = Output::File(fmt::format("{}/goodput-rank{}.log", options_.log_dir, rank))}));
    ranks.push_back(std::move(process));
  }
  ++next_port_;
  std::string text;
  for (;;) {
    WEFT_ASSIGN_OR_RETURN(const auto line, ranks[0].out_lines()->Next(Seconds(60), stop_));
    if (!line) break;
    text += *line;
  }
  for (auto& rank : ranks) {
    WEFT_ASSIGN_OR_RETURN(const auto status, rank.Wait(Seconds(20), stop_));
    if (!status.ok()) {
      return Fail(Code::kFailedPrecondition,
                  fmt::format("measure goodput: weft perf: {}; see {}/goodput-rank*.log", status.ToString(),
                              options_.log_dir));
    }
  }
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json["results"].empty()) return Fail(Code::kInternal, "measure goodput: no result");
  report_->goodput = BitsPerSecond(json["results"][0].value("algbw_bps", 0.0));
  Progress(fmt::format("goodput {} of {}", FormatRate(report_->goodput), FormatRate(options_.link_rate)));
  return Ok();
}

Status DemoPhases::RunAlone() {
  for (size_t i = 0; i < jobs_.size(); ++i) {
    Progress(fmt::format("{}: alone, default settings", jobs_[i].name));
    WEFT_ASSIGN_OR_RETURN(const LinkBytes before, cluster_.ReadLinks());
    const Seconds begin = Now();
    Jobs running;
    WEFT_ASSIGN_OR_RETURN(auto started, Launch(i, "-alone", std::max(options_.duration * kDefaultSlice, kLeastDefault)));
    running.push_back(std::move(started));
    WEFT_ASSIGN_OR_RETURN(const auto summaries, FinishAll(running));
    Describe(i, summaries[0]);
    const auto steps = running[0]->steps();
    const Seconds wall = Now() - begin;
    // There is a block at least: kLeastSteps of them reach beyond the first timed step.
    timed_blocks_[i] = CutBlocks(steps, steps[1].time, Now());
    const auto alone = EstimatePhase(FabricOfBound(), {PhaseJob{bound_jobs_[i], steps}}, steps[1].time, Now(), {}, {});
    JobReport& report = report_->jobs[i];
    report.alone = alone[0].iteration;
    report.alone_ratio = alone[0].ratio;
    if (report.alone.count() > 0) {
      report.communication_share = CommunicationOf(FabricOfBound(), WithCompute(bound_jobs_[i], timed_blocks_[i].front())) / report.alone;
    }
    WEFT_RETURN_IF_ERROR(AddLinks("alone " + jobs_[i].name, before, wall, &before));
  }
  return Ok();
}

Status DemoPhases::RunDefault(int draw) {
  Progress(fmt::format("both jobs, default settings, ports as the kernel chooses: draw {}", draw + 1));
  Seconds length = std::max(options_.duration * kDefaultSlice, kLeastDefault);
  for (int tries = 0; tries < kDrawTries; ++tries, length = length * 2) {
    WEFT_ASSIGN_OR_RETURN(const bool measured, TryDefault(draw, length));
    if (measured) return Ok();
    if (tries + 1 < kDrawTries) Progress("too few iterations while both jobs trained: the machine is slow; again, for longer");
  }
  return Fail(Code::kInternal, fmt::format("default draw {}: a job has fewer than two iterations while both train; give a "
                                           "longer --duration or a quieter machine", draw + 1));
}

Result<bool> DemoPhases::TryDefault(int draw, Seconds length) {
  WEFT_ASSIGN_OR_RETURN(const LinkBytes before, cluster_.ReadLinks());
  const Seconds begin = Now();
  Jobs running;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(auto started, Launch(i, fmt::format("-default{}", draw + 1), length));
    running.push_back(std::move(started));
  }
  WEFT_RETURN_IF_ERROR(FinishAll(running));
  const Seconds wall = Now() - begin;
  // Only while both were training does an iteration say something about sharing.
  Seconds from{0}, to{1e18};
  for (const auto& job : running) {
    const auto steps = job->steps();
    from = std::max(from, steps[1].time);
    to = std::min(to, steps.back().time + Seconds(1e-6));
  }
  std::vector<Seconds> medians;
  for (const auto& job : running) {
    const auto median = MedianIteration(job->steps(), from, to);
    if (!median) return false;
    medians.push_back(*median);
  }
  for (size_t i = 0; i < running.size(); ++i) {
    report_->jobs[i].default_draws.push_back(medians[i]);
    const auto blocks = CutBlocks(running[i]->steps(), from, to);
    timed_blocks_[i].insert(timed_blocks_[i].end(), blocks.begin(), blocks.end());
    default_blocks_[i].insert(default_blocks_[i].end(), blocks.begin(), blocks.end());
  }
  WEFT_RETURN_IF_ERROR(AddLinks(fmt::format("default {}", draw + 1), before, wall, &before));
  return true;
}

void DemoPhases::JudgeDefault() {
  std::vector<BoundJob> timed;
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (default_blocks_[i].empty()) return;
    timed.push_back(WithCompute(bound_jobs_[i], MedianBlock(default_blocks_[i])));
  }
  const Bound bound = ComputeBound(FabricOfBound(), timed, {}, {});
  for (size_t i = 0; i < jobs_.size(); ++i) {
    report_->jobs[i].default_ratio = {.value = report_->jobs[i].default_mean() / bound.iterations[i],
                                      .blocks = static_cast<int>(default_blocks_[i].size())};
  }
}

/// Whether next to nothing was carried between the two by flows whose way is not known.
static bool IsKnown(const LinkBytes& after, const LinkBytes& before) {
  double carried = 0;
  for (const auto& [key, bytes] : after.measured) {
    const auto known = before.measured.find(key);
    carried += static_cast<double>(bytes - (known == before.measured.end() ? 0 : known->second));
  }
  return std::abs(after.unattributed - before.unattributed) <= kUnattributed * carried;
}

Status DemoPhases::AddLinks(const std::string& phase, const LinkBytes& before, Seconds wall,
                            const LinkBytes* compare_since) {
  // While bytes flow the agents' counts are half a second behind the switches': only quiet links can be compared.
  if (compare_since != nullptr) WEFT_RETURN_IF_ERROR(WaitUntil(Now() + kLinger));
  WEFT_ASSIGN_OR_RETURN(const LinkBytes after, cluster_.ReadLinks());
  const auto difference = [](const auto& now, const auto& then, const std::string& key) {
    const auto a = now.find(key), b = then.find(key);
    return (a == now.end() ? 0 : a->second) - (b == then.end() ? 0 : b->second);
  };
  // What no link was charged with is no wrong count of a link.
  const bool known = compare_since != nullptr && IsKnown(after, *compare_since);
  if (compare_since != nullptr && !known) report_->not_compared.push_back(phase);
  for (const auto& [key, ignored] : after.counted) {
    const size_t arrow = key.find("->");
    LinkReport link{.phase = phase,
                    .from = key.substr(0, arrow),
                    .to = key.substr(arrow + 2),
                    .measured_bytes = difference(after.measured, before.measured, key),
                    .switch_bytes = difference(after.counted, before.counted, key)};
    link.measured_utilisation =
        static_cast<double>(link.measured_bytes) * 8 / (options_.link_rate.value() * wall.count());
    // Where the background flow went the switches have counted bytes that no agent can know of.
    const bool comparable = std::none_of(background_.begin(), background_.end(), [&](const BackgroundFlow& flow) {
      const std::string spine = fmt::format("spine{}", flow.spine);
      return link.from == spine || link.to == spine;
    });
    if (comparable && known) {
      report_->links_compared = true;
      const auto measured = static_cast<double>(difference(after.measured, compare_since->measured, key));
      const auto counted = static_cast<double>(difference(after.counted, compare_since->counted, key));
      const double whole = options_.link_rate.bytes_per_second() * (after.time - compare_since->time).count();
      report_->worst_link_disagreement = std::max(report_->worst_link_disagreement, std::abs(measured - counted) / whole);
    }
    report_->links.push_back(std::move(link));
  }
  return Ok();
}

}  // namespace weft::cli
