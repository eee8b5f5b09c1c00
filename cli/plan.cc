#include "cli/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "cli/plan_report.h"
#include "cli/plan_trace.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/parse_units.h"
#include "formats/calibration_yaml.h"
#include "formats/cluster_yaml.h"
#include "formats/emit/emit.h"
#include "formats/hf_config.h"
#include "formats/job_yaml.h"
#include "formats/program_json.h"
#include "formats/write_file.h"
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
  const bool person = isatty(STDERR_FILENO) != 0;  // in a pipe, progress would cut into what is read
  while (!changed.wait_for(lock, kReportEvery, [&] { return running == 0; })) {
    if (!person) continue;
    const planner::PlanProgress progress = search.Progress();
    fmt::print(stderr, "weft plan: {} strategies priced, the best takes no less than {}\n", progress.evaluated,
               progress.best ? FormatDuration(*progress.best) : "what is not known yet: none fits");
  }
}

/// The framework asked for, or the one whose files are to be written; nullopt: whichever known one is fastest.
Result<std::optional<planner::Framework>> ChooseFramework(const PlanCommandOptions& options,
                                                          const std::vector<formats::EmitTarget>& targets) {
  if (!options.framework.empty()) {
    const auto framework = planner::ParseFramework(options.framework);
    const bool does = framework && (*framework == planner::Framework::kAny || planner::Describe(*framework).changes_training);
    if (framework && !options.allow.empty() && !does) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("--allow with --framework {}: it does not do these exchanges, expected any, weft-train or no "
                              "--framework",
                              options.framework));
    }
    if (framework) return framework;
    return Fail(Code::kInvalidArgument, fmt::format("--framework \"{}\": expected one of {}", options.framework,
                                                    planner::FrameworkNames()));
  }
  for (const formats::EmitTarget target : targets) {
    if (const auto framework = planner::ParseFramework(formats::EmitTargetName(target))) return framework;
  }
  if (!options.allow.empty()) return planner::Framework::kAny;  // no program's file says what is allowed
  return std::nullopt;
}

Status WriteEmitted(const std::filesystem::path& path, const formats::EmittedFile& file) {
  const Status written = formats::WriteFile(path.string(), file.content);
  if (!written) return Fail(written.error().WithContext("--emit-dir"));
  std::error_code ignored;
  if (file.executable) {
    using std::filesystem::perms;
    std::filesystem::permissions(path, perms::owner_exec | perms::group_exec | perms::others_exec,
                                 std::filesystem::perm_options::add, ignored);
  }
  return Ok();
}

/// The files in `folder` that an earlier --emit-dir wrote, by its plan.json.
std::set<std::string> WrittenBefore(const std::filesystem::path& folder) {
  std::ifstream in(folder / "plan.json", std::ios::binary);
  const auto plan = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  std::set<std::string> names;
  if (!plan.is_object() || !plan.contains("emitted_files") || !plan["emitted_files"].is_array()) return names;
  for (const auto& name : plan["emitted_files"]) {
    // Only names that this program writes: a plan.json from elsewhere deletes nothing else.
    if (name.is_string() && std::ranges::find(formats::FolderFiles(), name.get<std::string>()) != formats::FolderFiles().end()) {
      names.insert(name.get<std::string>());
    }
  }
  names.insert("plan.json");
  return names;
}

/// The best plan as a folder: its files and, as plan.json, what `--output json` prints and the names of the files. Files of
/// an earlier plan go; a file of the user's own is an error, before anything is written.
Status WriteFolder(const std::string& folder, const formats::EmitRequest& request, PlanReport report) {
  WEFT_ASSIGN_OR_RETURN(std::vector<formats::EmittedFile> files, formats::EmitFolder(request));
  for (const formats::EmittedFile& file : files) report.emitted_files.push_back(file.name);
  files.push_back({.name = "plan.json", .content = PlanJsonText(report)});
  const std::filesystem::path root(folder);
  std::error_code error;
  std::filesystem::create_directories(root, error);
  if (error) return Fail(Code::kUnavailable, fmt::format("--emit-dir: {}: {}", folder, error.message()));
  const std::set<std::string> before = WrittenBefore(root);
  for (const formats::EmittedFile& file : files) {
    if (before.contains(file.name) || !std::filesystem::exists(root / file.name, error)) continue;
    return Fail(Code::kInvalidArgument, fmt::format("--emit-dir: {} was not written by an earlier plan: move it, or give an empty "
                                                    "folder", (root / file.name).string()));
  }
  for (const std::string& old : before) std::filesystem::remove(root / old, error);
  std::string names;
  for (const formats::EmittedFile& file : files) {
    WEFT_RETURN_IF_ERROR(WriteEmitted(root / file.name, file));
    names += fmt::format("{}{}", names.empty() ? "" : ", ", file.name);
  }
  fmt::print(stderr, "weft plan: {}: {}\n", folder, names);
  return Ok();
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

/// The machines, with what was measured of them.
Result<planner::ClusterSpec> MakeCluster(const PlanCommandOptions& options) {
  WEFT_ASSIGN_OR_RETURN(planner::ClusterSpec cluster, formats::ResolveCluster(options.cluster));
  if (options.calibration.empty()) return cluster;
  if (cluster.heterogeneous()) {
    return Fail(Code::kInvalidArgument,
                fmt::format("--calibration {}: of one kind of machine, expected a cluster without groups", options.calibration));
  }
  WEFT_ASSIGN_OR_RETURN(const auto measured, formats::ReadMeasuredConstants(options.calibration));
  cluster.measured.insert(cluster.measured.end(), measured.begin(), measured.end());
  return cluster;
}

/// Fills report.emitted and writes the folder, of the best plan.
Status EmitBest(const PlanCommandOptions& options, const std::vector<formats::EmitTarget>& targets, PlanReport& report) {
  const bool wanted = !targets.empty() || !options.emit_dir.empty();
  if (report.answer.plans.empty() || !wanted) return Ok();
  const planner::JobPlan& best = report.answer.plans.front();
  if (best.framework == planner::Framework::kAny && options.framework.empty() && options.allow.empty()) {
    return Fail(Code::kInvalidArgument, "--emit: no known program trains this model, so there are no files; the reasons stand "
                                        "first among those of the plan");
  }
  if (!best.groups.empty()) {
    return Fail(Code::kInvalidArgument,
                "--emit: groups of machines that do different things cannot be written as one program's files: give "
                "--framework, for one plan that all machines run at the slowest one's pace");
  }
  planner::JobSpec whole = report.job;
  if (whole.gpus == 0) whole.gpus = report.cluster.TotalGpus();
  const planner::ProgramChoices choices =
      planner::ChoicesOf(best.strategy, best.operators, best.operations, report.cluster.gpus_per_node);
  const formats::EmitRequest request{.job = whole, .cluster = report.cluster, .strategy = best.strategy,
                                     .framework = best.framework, .operators = best.operators, .sums = choices.sums};
  for (const formats::EmitTarget target : targets) {
    WEFT_ASSIGN_OR_RETURN(std::string text, formats::Emit(target, request));
    report.emitted.emplace_back(formats::EmitTargetName(target), std::move(text));
  }
  if (options.emit_dir.empty()) return Ok();
  return WriteFolder(options.emit_dir, request, report);
}

/// The best plan's iteration into options.trace.
Status WriteTrace(const PlanCommandOptions& options, const PlanReport& report) {
  if (options.trace.empty() || report.answer.plans.empty()) return Ok();
  planner::JobSpec whole = report.job;
  if (whole.gpus == 0) whole.gpus = report.cluster.TotalGpus();
  Result<std::string> text = PlanTraceText(whole, report.cluster, report.answer.plans.front(), options.risk);
  if (!text) return Fail(text.error().WithContext("--trace"));
  const Status written = formats::WriteFile(options.trace, *text);
  return written ? Ok() : Status(Fail(written.error().WithContext("--trace")));
}

/// The best plan's step program into options.program.
Status WriteProgram(const PlanCommandOptions& options, const PlanReport& report) {
  if (options.program.empty() || report.answer.plans.empty()) return Ok();
  if (options.program_type != "fp32" && options.program_type != "fp64") {
    return Fail(Code::kInvalidArgument, fmt::format("--program-type \"{}\": expected fp32 or fp64", options.program_type));
  }
  const auto type = options.program_type == "fp64" ? planner::ElementType::kFloat64 : planner::ElementType::kFloat32;
  Result<planner::StepProgram> program = planner::ProgramOf(report.job, report.cluster, report.answer.plans.front(), type);
  if (!program) return Fail(program.error().WithContext("--program"));
  const std::string text = formats::WriteProgramJson(*program);
  if (text.size() > formats::kMostProgramBytes) {
    return Fail(Code::kInvalidArgument, fmt::format("--program: {} bytes, expected at most {}: fewer micro-batches, or layers",
                                                    text.size(), formats::kMostProgramBytes));
  }
  const Status written = formats::WriteFile(options.program, text);
  return written ? Ok() : Status(Fail(written.error().WithContext("--program")));
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
  WEFT_ASSIGN_OR_RETURN(const planner::ClusterSpec cluster, MakeCluster(options));
  for (const planner::NodeGroup& group : cluster.Groups()) {
    const bool half = group.device.Supports(planner::Precision::kFp16) && !group.device.Supports(planner::Precision::kBf16);
    if (!half || job.precision != planner::Precision::kBf16) continue;
    return Fail(Code::kInvalidArgument,
                fmt::format("--precision bf16: {} has no units for it, expected fp16 or fp32", group.device.name));
  }
  std::vector<formats::EmitTarget> targets;
  if (!options.emit.empty()) {
    WEFT_ASSIGN_OR_RETURN(targets, formats::ParseEmitTargets(options.emit));
  }
  planner::PlanOptions plan_options{.top = options.top, .risk = options.risk, .exhaustive = options.exhaustive,
                                    .front_slack = options.front};
  WEFT_ASSIGN_OR_RETURN(const std::optional<planner::Framework> framework, ChooseFramework(options, targets));
  plan_options.known_programs = !framework;
  plan_options.framework = framework.value_or(planner::Framework::kAny);
  plan_options.advise = options.fix.empty() && !options.exhaustive;
  WEFT_ASSIGN_OR_RETURN(plan_options.fix, planner::ParseFixed(options.fix));
  WEFT_ASSIGN_OR_RETURN(plan_options.allow, planner::ParseTrainingChanges(options.allow));
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
  const Status emitted = EmitBest(options, targets, report);
  if (!emitted) report.emitted.clear();  // not some of the files: the plan itself, and the error
  // What is emitted as text takes the place of the table: it can go straight into a file.
  if (options.output == "json") {
    fmt::print("{}", PlanJsonText(report));
  } else if (report.emitted.empty()) {
    fmt::print("{}", PlanTableText(report));
  } else {
    fmt::print("{}", EmittedText(report));
  }
  if (options.output == "table") fmt::print(stderr, "{}", SearchLine(report));
  WEFT_RETURN_IF_ERROR(emitted);
  WEFT_RETURN_IF_ERROR(WriteTrace(options, report));
  WEFT_RETURN_IF_ERROR(WriteProgram(options, report));
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
