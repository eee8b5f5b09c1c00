#include "cli/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "cli/scenario_models.h"
#include "cli/simulate_plot.h"
#include "cli/simulate_report.h"
#include "cli/simulate_trace.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/parse_units.h"
#include "formats/scenario_yaml.h"
#include "formats/write_file.h"
#include "planner/fabric/path_catalog.h"

namespace weft::cli {
namespace {

using planner::SimulationPolicy;

constexpr SimulationPolicy kAll[] = {SimulationPolicy::kEcmp, SimulationPolicy::kCassini,
                                     SimulationPolicy::kCrux, SimulationPolicy::kSincronia,
                                     SimulationPolicy::kWeft, SimulationPolicy::kOptimal};
/// Beside these where jobs have several ways to be run.
constexpr SimulationPolicy kAllLayers[] = {SimulationPolicy::kLayersApart, SimulationPolicy::kVertical, SimulationPolicy::kHorizontal};

/// Rates of links over time: 24 bytes each in memory, about 100 as text.
constexpr double kMostSamples = 1e7;

/// Which policies to run, and whether they were named: one of "all" that is too expensive is left out.
struct Choice {
  std::vector<SimulationPolicy> policies;
  bool all = false;
};

Status AddPolicy(std::string_view word, Choice* choice) {
  if (word == "all") {
    choice->all = true;
    return Ok();
  }
  const auto policy = planner::ParsePolicy(word);
  if (!policy) {
    return Fail(Code::kInvalidArgument,
                fmt::format("--policy \"{}\": expected {} or all", word, planner::PolicyNames()));
  }
  if (std::ranges::find(choice->policies, *policy) == choice->policies.end()) choice->policies.push_back(*policy);
  return Ok();
}

Result<Choice> ChoosePolicies(const std::vector<std::string>& given, const std::vector<SimulationPolicy>& in_file, bool models) {
  Choice choice;
  for (const std::string& list : given) {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t comma = std::min(list.find(',', begin), list.size());
      WEFT_RETURN_IF_ERROR(AddPolicy(std::string_view(list).substr(begin, comma - begin), &choice));
      begin = comma + 1;
    }
  }
  if (choice.all && models) choice.policies.assign(std::begin(kAllLayers), std::end(kAllLayers));
  else if (choice.all) choice.policies.clear();
  if (choice.all) choice.policies.insert(choice.policies.end(), std::begin(kAll), std::end(kAll));
  if (choice.policies.empty()) choice.policies = in_file;
  return choice;
}

struct Window {
  Seconds begin{0}, end{0};
};

/// Of the duration: below it, times that doubles hold differ by too much of the window.
constexpr double kNarrowestWindow = 1e-9;

Result<Window> ParseWindow(const std::string& text, Seconds duration) {
  if (text.empty()) return Window{Seconds(0), duration};
  const size_t colon = text.find(':');
  const Result<Seconds> begin = ParseDuration(text.substr(0, colon));
  const Result<Seconds> end = ParseDuration(colon == text.npos ? "" : text.substr(colon + 1));
  if (!begin || !end || *begin >= *end || *end > duration) {
    return Fail(Code::kInvalidArgument, fmt::format("--plot-window \"{}\": expected BEGIN:END within {}, such as 1s:2s",
                                                    text, FormatDuration(duration)));
  }
  if (!(*end - *begin >= kNarrowestWindow * duration)) {
    return Fail(Code::kInvalidArgument, fmt::format("--plot-window \"{}\": {:.3g} s wide, expected at least {:g} of {}",
                                                    text, (*end - *begin).count(), kNarrowestWindow,
                                                    FormatDuration(duration)));
  }
  return Window{*begin, *end};
}

/// `path`, with the policy before its extension where there are several.
std::string PathFor(const std::string& path, SimulationPolicy policy, bool several) {
  if (!several) return path;
  const size_t slash = path.rfind('/'), dot = path.rfind('.');
  const bool extension = dot != path.npos && (slash == path.npos || dot > slash);
  const std::string stem = extension ? path.substr(0, dot) : path;
  return fmt::format("{}.{}{}", stem, planner::PolicyName(policy), extension ? path.substr(dot) : "");
}

/// Links that the job's flows cross, flows with several paths spread over them as hashing does. At most `most`.
size_t LinksCrossed(const planner::ScenarioJob& job, size_t most, planner::PathCatalog* catalog) {
  std::set<LinkId> links;
  for (size_t f = 0; f < job.flows.size() && links.size() < most; ++f) {
    const std::vector<planner::PathCatalog::Path> paths = catalog->Paths(job.flows[f].from, job.flows[f].to);
    if (!paths.empty()) links.insert(paths[f % paths.size()].begin(), paths[f % paths.size()].end());
  }
  return std::min(links.size(), most);
}

/// Iterations of the job in one draw, if no flow is faster than the fastest link: in the fastest of its ways.
double MostIterations(const planner::ScenarioJob& job, Seconds duration, BitsPerSecond fastest) {
  const auto least = [&](Seconds compute, Seconds release, const std::vector<planner::ScenarioFlow>& flows) {
    Seconds iteration = compute;
    for (const planner::ScenarioFlow& flow : flows) iteration = std::max(iteration, release + flow.bytes / fastest);
    return iteration;
  };
  Seconds iteration = job.sizes.empty() ? least(job.compute, job.release, job.flows) : duration;
  for (const planner::ScenarioSize& size : job.sizes) {
    for (const planner::ScenarioWay& way : size.ways) iteration = std::min(iteration, least(way.compute, way.release, way.flows));
  }
  for (const planner::ScenarioWay& way : job.others) iteration = std::min(iteration, least(way.compute, way.release, way.flows));
  const double count = (duration - job.arrival) / iteration;
  return job.iterations > 0 ? std::min(count, static_cast<double>(job.iterations)) : count;
}

/// Refuses more iterations than a simulation of one policy gets through in minutes; and for a trace, which has two
/// samples per iteration of every link that the job crosses, more of these than fit into some gigabytes with their
/// text. Both are estimates from the jobs alone, without contention: a job whose rate changes while it sends has more
/// samples than that, and what the policy itself takes to decide is not counted.
Status CheckSize(const planner::Scenario& scenario, const std::string& source, bool traced) {
  const double most = traced ? 2e6 : 2e7;
  const size_t links = scenario.topology.links().size();
  BitsPerSecond fastest(1);
  for (const planner::Link& link : scenario.topology.links()) fastest = std::max(fastest, link.line_rate);
  planner::PathCatalog catalog(scenario.topology);
  double sum = 0, samples = 0;
  for (const planner::ScenarioJob& job : scenario.jobs) {
    const double count = MostIterations(job, scenario.duration, fastest);
    sum += count * scenario.draws;
    if (sum > most) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: more than {:.3g} iterations with job \"{}\" ({:.3g} in each of {} draws), expected "
                              "at most {:.3g}{}: simulate a shorter duration",
                              source, sum, job.name, count, scenario.draws, most,
                              traced ? " with a trace or plot" : ""));
    }
    if (!traced) continue;
    const size_t crossed = LinksCrossed(job, links, &catalog);
    samples += 2 * count * static_cast<double>(crossed);  // of the first draw only
    if (samples <= kMostSamples) continue;
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: more than {:.3g} changes of link rates with job \"{}\" ({:.3g} iterations over {} "
                            "links), expected at most {:.3g} with a trace or plot: simulate a shorter duration, or "
                            "without --trace and --plot",
                            source, samples, job.name, count, crossed, kMostSamples));
  }
  return Ok();
}

class Runner {
 public:
  Runner(const SimulateOptions& options, const planner::Scenario& scenario, const planner::Scenario* truth, const Choice& choice,
         Window window)
      : options_(options), scenario_(scenario), truth_(truth), choice_(choice), window_(window) {}

  Result<std::vector<PolicyRun>> RunAll() const {
    std::vector<PolicyRun> runs;
    const bool traced = !options_.trace.empty() || !options_.plot.empty();
    for (const SimulationPolicy policy : choice_.policies) {
      const SystemClock clock;
      const Seconds begin = clock.Now();
      const auto objective =
          options_.objective == "gpu-use" ? planner::SimulationObjective::kGpuUse : planner::SimulationObjective::kBalanced;
      Result<planner::SimulationReport> report = planner::Simulate(
          scenario_, policy, {.trace = traced, .evaluations = options_.evaluations, .objective = objective, .truth = truth_});
      if (!report && choice_.all && report.error().code() == Code::kResourceExhausted) {
        fmt::print(stderr, "weft simulate: {} left out: {}\n", planner::PolicyName(policy), report.error().message());
        continue;
      }
      if (!report) return Fail(report.error().WithContext(options_.scenario));
      PolicyRun run{.policy = policy, .report = std::move(*report), .time = clock.Now() - begin};
      WEFT_RETURN_IF_ERROR(Write(run));
      // The traces of many policies at once need not stay in memory.
      run.report.link_samples = {};
      run.report.phases = {};
      runs.push_back(std::move(run));
    }
    return runs;
  }

 private:
  Status Write(const PolicyRun& run) const {
    const bool several = choice_.policies.size() > 1;
    if (!options_.trace.empty()) {
      WEFT_RETURN_IF_ERROR(
          formats::WriteFile(PathFor(options_.trace, run.policy, several), ChromeTraceText(scenario_, run.report)));
    }
    if (options_.plot.empty()) return Ok();
    const PlotOptions plot{
        .title = fmt::format("{}: link use under {}", scenario_.name, planner::PolicyName(run.policy)),
        .begin = window_.begin,
        .end = window_.end};
    return formats::WriteFile(PathFor(options_.plot, run.policy, several), LinkUsePlot(scenario_, run.report, plot));
  }

  const SimulateOptions& options_;
  const planner::Scenario& scenario_;
  const planner::Scenario* truth_;
  const Choice& choice_;
  Window window_;
};

Result<int> Run(const SimulateOptions& options) {
  if (options.output != "table" && options.output != "json") {
    return Fail(Code::kInvalidArgument, fmt::format("--output \"{}\": expected table or json", options.output));
  }
  if (options.evaluations < 0 || options.evaluations > 1'000'000'000) {
    return Fail(Code::kInvalidArgument, fmt::format("--evaluations {}: expected 0 to 1000000000", options.evaluations));
  }
  if (options.objective != "balanced" && options.objective != "gpu-use") {
    return Fail(Code::kInvalidArgument, fmt::format("--objective \"{}\": expected balanced or gpu-use", options.objective));
  }
  if (options.seed && *options.seed < 0) {
    return Fail(Code::kInvalidArgument, fmt::format("--seed {}: expected 0 or more", *options.seed));
  }
  WEFT_RETURN_IF_ERROR(ChoosePolicies(options.policies, {}, false));  // a wrong word is said before a file is read
  std::optional<uint64_t> seed;
  if (options.seed) seed = static_cast<uint64_t>(*options.seed);
  WEFT_ASSIGN_OR_RETURN(formats::ScenarioFile file, formats::ReadScenarioYaml(options.scenario, seed));
  WEFT_ASSIGN_OR_RETURN(const Choice choice, ChoosePolicies(options.policies, file.policies, !file.models.empty()));
  WEFT_ASSIGN_OR_RETURN(const Window window, ParseWindow(options.plot_window, file.scenario.duration));
  std::vector<ModelPlan> plans;
  std::optional<planner::Scenario> truth;
  if (file.profile_error > 0) truth = file.scenario;
  WEFT_ASSIGN_OR_RETURN(const bool feasible, PlanModels(&file, truth ? &*truth : nullptr, &plans));
  if (!feasible) return kExitInfeasible;
  if (truth) truth = planner::WithProfileError(*std::move(truth), file.profile_error, file.scenario.seed);
  WEFT_RETURN_IF_ERROR(CheckSize(truth ? *truth : file.scenario, options.scenario, !options.trace.empty() || !options.plot.empty()));
  WEFT_ASSIGN_OR_RETURN(std::vector<PolicyRun> runs, Runner(options, file.scenario, truth ? &*truth : nullptr, choice, window).RunAll());
  const SimulateReport report{.scenario = file.scenario, .runs = std::move(runs), .plans = std::move(plans)};
  for (const ModelPlan& plan : report.plans) {
    fmt::print(stderr, "weft simulate: {}: planned {}, predicted {} alone{}\n", plan.job, plan.ways.front().strategy,
               FormatDuration(plan.ways.front().predicted),
               plan.ways.size() > 1 ? fmt::format("; {} further ways", plan.ways.size() - 1) : "");
  }
  fmt::print("{}", options.output == "json" ? SimulateJsonText(report) : SimulateTableText(report));
  return kExitDone;
}

}  // namespace

int RunSimulate(const SimulateOptions& options) {
  const auto status = Run(options);
  if (status) return *status;
  fmt::print(stderr, "weft simulate: {}\n", status.error().message());
  return ExitCodeOf(status.error());
}

}  // namespace weft::cli
