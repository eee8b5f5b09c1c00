#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/plan_report.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/parse_units.h"
#include "formats/cluster_yaml.h"
#include "formats/emit/emit.h"
#include "formats/hf_config.h"
#include "formats/job_yaml.h"
#include "planner/planner.h"

namespace weft::cli {
namespace {

constexpr int kMostThreads = 256;
constexpr std::chrono::seconds kReportEvery{1};

/// Drives the search with `threads` threads; says on stderr how far it is whenever another second has gone.
void Drive(planner::PlanSearch& search, int threads) {
  std::mutex mutex;
  std::condition_variable changed;
  int running = threads;
  std::vector<std::jthread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      search.Work();
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kReportEvery, [&] { return running == 0; })) {
    const planner::PlanProgress progress = search.Progress();
    fmt::print(stderr, "weft plan: {} strategies priced, best until now {}\n", progress.evaluated,
               progress.best ? FormatDuration(*progress.best) : "none that fits");
  }
}

/// The framework asked for, or the one whose files are to be written.
Result<planner::Framework> ChooseFramework(const PlanCommandOptions& options,
                                           const std::vector<formats::EmitTarget>& targets) {
  if (!options.framework.empty()) {
    if (const auto framework = planner::ParseFramework(options.framework)) return *framework;
    return Fail(Code::kInvalidArgument,
                fmt::format("--framework \"{}\": expected any, megatron, torchtitan, deepspeed or "
                            "weft-train",
                            options.framework));
  }
  for (const formats::EmitTarget target : targets) {
    const auto framework = planner::ParseFramework(formats::EmitTargetName(target));
    if (framework) return *framework;
  }
  return planner::Framework::kAny;
}

/// The search keeps to one framework; files for another are written only where that can run the same plan.
Status CheckRuns(formats::EmitTarget target, const planner::JobPlan& plan) {
  const auto framework = planner::ParseFramework(formats::EmitTargetName(target));
  if (!framework || planner::Runs(*framework, plan.strategy)) return Ok();
  return Fail(Code::kInvalidArgument, fmt::format("--emit {}: the best plan that the first target or --framework can run is "
                                                  "not one that {} can: ask for each alone",
                                                  formats::EmitTargetName(target), formats::EmitTargetName(target)));
}

Result<planner::JobSpec> MakeJob(const PlanCommandOptions& options) {
  planner::JobSpec job;
  WEFT_ASSIGN_OR_RETURN(formats::HfModel read, formats::ResolveHfModel(options.model));
  job.model = std::move(read.model);
  WEFT_ASSIGN_OR_RETURN(job.precision, formats::ParsePrecision(options.precision));
  job.name = job.model.name;
  job.global_batch = options.global_batch;
  job.sequence = options.sequence;
  job.gpus = options.gpus;
  if (auto warning = formats::PositionsWarning(job.model, job.sequence)) read.warnings.push_back(std::move(*warning));
  for (const std::string& warning : read.warnings) fmt::print(stderr, "warning: {}\n", warning);
  return job;
}

Result<int> Run(const PlanCommandOptions& options) {
  if (options.output != "table" && options.output != "json") {
    return Fail(Code::kInvalidArgument, fmt::format("--output \"{}\": expected table or json", options.output));
  }
  if (options.threads < 0 || options.threads > kMostThreads) {
    return Fail(Code::kInvalidArgument, fmt::format("--threads {}: expected 0 (all cores) to {}", options.threads,
                                                    kMostThreads));
  }
  if (!(options.front >= 0 && options.front <= 100)) {
    return Fail(Code::kInvalidArgument, fmt::format("--front {}: expected 0 to 100", options.front));
  }
  WEFT_ASSIGN_OR_RETURN(const planner::JobSpec job, MakeJob(options));
  WEFT_ASSIGN_OR_RETURN(const planner::ClusterSpec cluster, formats::ResolveCluster(options.cluster));
  std::vector<formats::EmitTarget> targets;
  if (!options.emit.empty()) {
    WEFT_ASSIGN_OR_RETURN(targets, formats::ParseEmitTargets(options.emit));
  }
  planner::PlanOptions plan_options{.top = options.top, .exhaustive = options.exhaustive, .front_slack = options.front};
  WEFT_ASSIGN_OR_RETURN(plan_options.framework, ChooseFramework(options, targets));
  WEFT_ASSIGN_OR_RETURN(plan_options.fix, planner::ParseFixed(options.fix));
  plan_options.node_budget = std::numeric_limits<int64_t>::max();
  const int threads = options.threads > 0
                          ? options.threads
                          : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  const SystemClock clock;
  const Seconds begin = clock.Now();
  WEFT_ASSIGN_OR_RETURN(planner::PlanSearch search, planner::PlanSearch::Make(job, cluster, plan_options));
  Drive(search, threads);
  const planner::PlanAnswer answer = search.Finish();
  PlanReport report{.job = job, .cluster = cluster, .answer = answer,
                    .time = std::max(clock.Now() - begin, Seconds(1e-9)), .threads = threads, .emitted = {}};
  if (!answer.plans.empty()) {
    for (const formats::EmitTarget target : targets) {
      WEFT_RETURN_IF_ERROR(CheckRuns(target, answer.plans.front()));
      planner::JobSpec whole = job;
      if (whole.gpus == 0) whole.gpus = cluster.TotalGpus();
      WEFT_ASSIGN_OR_RETURN(std::string text, formats::Emit(target, whole, cluster, answer.plans.front().strategy,
                                                                     answer.plans.front().operators));
      report.emitted.emplace_back(formats::EmitTargetName(target), std::move(text));
    }
  }
  fmt::print("{}", options.output == "json" ? PlanJsonText(report) : PlanTableText(report));
  if (options.output == "table") fmt::print(stderr, "{}", SearchLine(report));
  if (!answer.plans.empty()) return kExitDone;
  for (const auto& reason : answer.infeasible) fmt::print(stderr, "weft plan: no feasible plan: {}\n", reason);
  return kExitInfeasible;
}

}  // namespace

int RunPlan(const PlanCommandOptions& options) {
  const auto status = Run(options);
  if (status) return *status;
  fmt::print(stderr, "weft plan: {}\n", status.error().message());
  return ExitCodeOf(status.error());
}

}  // namespace weft::cli
