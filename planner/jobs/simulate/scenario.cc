#include "planner/jobs/simulate/scenario.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "planner/jobs/simulate/bounds.h"
#include "planner/jobs/simulate/prepare.h"
#include "planner/jobs/simulate/run.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kShouldHaveFinished = 2;   // times alone, after which a job without an iteration counts as stuck

constexpr std::array<std::pair<SimulationPolicy, std::string_view>, 6> kPolicies = {{
    {SimulationPolicy::kEcmp, "ecmp"}, {SimulationPolicy::kWeft, "weft"}, {SimulationPolicy::kCrux, "crux"},
    {SimulationPolicy::kCassini, "cassini"}, {SimulationPolicy::kSincronia, "sincronia"},
    {SimulationPolicy::kOptimal, "optimal"}}};

/// The value that 99 % do not pass. Requires: not empty.
double Percentile99(std::vector<double> values) {
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

class Reporter {
 public:
  Reporter(const Scenario& scenario, const PreparedScenario& prepared, const std::vector<ScenarioCut>& cuts)
      : scenario_(scenario), prepared_(prepared), cuts_(cuts) {}

  Result<SimulationReport> Make(RunRecord run) const {
    SimulationReport report;
    AddJobs(run, &report);
    AddLinks(run, &report);
    WEFT_ASSIGN_OR_RETURN(const ScenarioBounds bounds, BoundAll(cuts_, prepared_, run.epochs));
    report.bound_gpu_utilisation = bounds.gpu_utilisation;
    report.bound_mean_slowdown = bounds.mean_slowdown;
    report.events = run.events;
    report.evaluations = run.evaluations;
    report.complete = run.complete;
    report.decisions = std::move(run.decisions);
    report.link_samples = std::move(run.trace.samples);
    report.phases = std::move(run.trace.phases);
    return report;
  }

 private:
  void AddJobs(const RunRecord& run, SimulationReport* report) const {
    std::vector<double> all;
    double slowdowns = 0, computing = 0, present = 0;
    int64_t counted = 0;
    for (size_t j = 0; j < run.jobs.size(); ++j) {
      const FluidProgress& progress = run.jobs[j];
      const double alone = prepared_.jobs[j].alone.count();
      const double there = (progress.left < 0 ? scenario_.duration.count() : progress.left) - progress.begin;
      SimulatedJob job{.name = scenario_.jobs[j].name, .alone = Seconds(alone),
                       .bound = CutBound(cuts_, prepared_.best_capacity, prepared_.jobs[j].routable, j),
                       .iterations_done = static_cast<int64_t>(progress.durations.size())};
      const auto done = static_cast<double>(job.iterations_done);
      if (job.iterations_done > 0) {
        job.iteration = Seconds((progress.end - progress.begin) / done);
        job.p99_iteration = Seconds(Percentile99(progress.durations));
      } else {
        job.iteration = job.p99_iteration = Seconds(kInfinity);
      }
      job.slowdown = job.iteration.count() / alone;
      for (const double duration : progress.durations) all.push_back(duration / alone);
      if (job.iterations_done > 0 || there > kShouldHaveFinished * alone) {
        slowdowns += job.slowdown;
        ++counted;
      }
      computing += scenario_.jobs[j].gpus * scenario_.jobs[j].compute.count() * done;
      present += scenario_.jobs[j].gpus * there;
      report->jobs.push_back(std::move(job));
    }
    if (counted > 0) report->mean_slowdown = slowdowns / static_cast<double>(counted);
    if (!all.empty()) report->p99_slowdown = Percentile99(std::move(all));
    else if (counted > 0) report->p99_slowdown = kInfinity;
    if (present > 0) report->gpu_utilisation = computing / present;
  }

  static void AddLinks(const RunRecord& run, SimulationReport* report) {
    for (size_t l = 0; l < run.carried.size(); ++l) {
      if (run.carried[l] > 0) {
        report->links.push_back({LinkId(static_cast<int32_t>(l)), run.carried[l] / run.possible[l]});
      }
    }
  }

  const Scenario& scenario_;
  const PreparedScenario& prepared_;
  const std::vector<ScenarioCut>& cuts_;
};

/// The mean of several runs; texts and traces are the first one's.
SimulationReport Average(std::vector<SimulationReport> runs) {
  SimulationReport mean = std::move(runs[0]);
  const double n = static_cast<double>(runs.size());
  std::vector<double> use;
  const auto add_links = [&](const SimulationReport& run) {
    for (const SimulatedLink& link : run.links) {
      if (use.size() <= link.link.index()) use.resize(link.link.index() + 1, 0);
      use[link.link.index()] += link.utilisation;
    }
  };
  add_links(mean);
  for (size_t r = 1; r < runs.size(); ++r) {
    const SimulationReport& run = runs[r];
    add_links(run);
    mean.mean_slowdown += run.mean_slowdown;
    mean.p99_slowdown += run.p99_slowdown;
    mean.gpu_utilisation += run.gpu_utilisation;
    mean.bound_gpu_utilisation += run.bound_gpu_utilisation;
    mean.bound_mean_slowdown += run.bound_mean_slowdown;
    mean.events += run.events;
    for (size_t j = 0; j < mean.jobs.size(); ++j) {
      mean.jobs[j].iteration += run.jobs[j].iteration;
      mean.jobs[j].p99_iteration += run.jobs[j].p99_iteration;
      mean.jobs[j].iterations_done += run.jobs[j].iterations_done;
      mean.jobs[j].slowdown += run.jobs[j].slowdown;
    }
  }
  for (double* value : {&mean.mean_slowdown, &mean.p99_slowdown, &mean.gpu_utilisation, &mean.bound_gpu_utilisation,
                        &mean.bound_mean_slowdown}) {
    *value /= n;
  }
  for (SimulatedJob& job : mean.jobs) {
    job.iteration /= n;
    job.p99_iteration /= n;
    job.iterations_done /= static_cast<int64_t>(runs.size());
    job.slowdown /= n;
  }
  mean.links.clear();
  for (size_t l = 0; l < use.size(); ++l) {
    if (use[l] > 0) mean.links.push_back({LinkId(static_cast<int32_t>(l)), use[l] / n});
  }
  return mean;
}

}  // namespace

std::string_view PolicyName(SimulationPolicy policy) {
  for (const auto& [value, name] : kPolicies) {
    if (value == policy) return name;
  }
  return "unknown";
}

std::optional<SimulationPolicy> ParsePolicy(std::string_view name) {
  for (const auto& [value, known] : kPolicies) {
    if (known == name) return value;
  }
  return std::nullopt;
}

Result<SimulationReport> Simulate(const Scenario& scenario, SimulationPolicy policy, const SimulationOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const PreparedScenario prepared, Prepare(scenario));
  const std::vector<ScenarioCut> cuts = MakeCuts(scenario, prepared);
  const int32_t draws = policy == SimulationPolicy::kEcmp ? scenario.draws : 1;
  std::vector<SimulationReport> runs;
  for (int32_t draw = 0; draw < draws; ++draw) {
    SimulationOptions once = options;
    once.trace = options.trace && draw == 0;
    WEFT_ASSIGN_OR_RETURN(RunRecord run, RunScenario(scenario, prepared, policy, once,
                                                     scenario.seed + static_cast<uint64_t>(draw)));
    WEFT_ASSIGN_OR_RETURN(SimulationReport report, Reporter(scenario, prepared, cuts).Make(std::move(run)));
    runs.push_back(std::move(report));
  }
  SimulationReport report = Average(std::move(runs));
  if (report.bound_gpu_utilisation > 0) {
    report.bound_gap = (report.bound_gpu_utilisation - report.gpu_utilisation) / report.bound_gpu_utilisation;
  }
  return report;
}

}  // namespace weft::planner::jobs
