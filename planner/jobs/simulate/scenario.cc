#include "planner/jobs/simulate/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <tuple>
#include <utility>

#include "planner/jobs/simulate/scenario_cuts.h"
#include "planner/jobs/simulate/prepare.h"
#include "planner/jobs/simulate/run.h"
#include "planner/jobs/starts/start_plan.h"

namespace weft::planner::inline jobs {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kShouldHaveFinished = 2;   // times alone, after which a job without an iteration counts as stuck

constexpr std::array<std::pair<SimulationPolicy, std::string_view>, 9> kPolicies = {{
    {SimulationPolicy::kEcmp, "ecmp"}, {SimulationPolicy::kWeft, "weft"}, {SimulationPolicy::kCrux, "crux"},
    {SimulationPolicy::kCassini, "cassini"}, {SimulationPolicy::kSincronia, "sincronia"},
    {SimulationPolicy::kOptimal, "optimal"}, {SimulationPolicy::kLayersApart, "layers-apart"},
    {SimulationPolicy::kVertical, "vertical"}, {SimulationPolicy::kHorizontal, "horizontal"}}};

/// The value that 99 % do not pass. Requires: not empty.
double Percentile99(std::vector<double> values) {
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

class Reporter {
 public:
  Reporter(const Scenario& scenario, const PreparedScenario& prepared, const ScenarioCuts& cuts)
      : scenario_(scenario), prepared_(prepared), cuts_(cuts) {}

  /// `asked`: the jobs as they arrived.
  Result<SimulationReport> Make(RunRecord run, const std::vector<ScenarioJob>& asked) const {
    SimulationReport report;
    AddJobs(run, &report);
    AddStarts(asked, &report);
    AddLinks(run, &report);
    std::vector<BoundEpoch> epochs;
    for (const Epoch& epoch : run.epochs) epochs.push_back({epoch.length, cuts_.Capacities(epoch.capacity), epoch.present});
    WEFT_ASSIGN_OR_RETURN(const JobsBound bounds, BoundJobs(cuts_.jobs(), epochs, SlowdownBound::kWanted));
    report.bound_gpu_utilisation = bounds.gpu_utilisation;
    report.bound_goodput = bounds.goodput;
    report.bound_mean_slowdown = bounds.mean_slowdown;
    report.events = run.events;
    report.evaluations = run.evaluations;
    report.complete = run.complete;
    report.decisions = std::move(run.decisions);
    report.advice = std::move(run.advice);
    report.link_samples = std::move(run.trace.samples);
    report.phases = std::move(run.trace.phases);
    return report;
  }

 private:
  void AddJobs(const RunRecord& run, SimulationReport* report) const {
    std::vector<double> all;
    double slowdowns = 0, computing = 0, working = 0, present = 0;
    int64_t counted = 0;
    const std::vector<BitsPerSecond> best = cuts_.Capacities(prepared_.best_capacity);
    for (size_t j = 0; j < run.jobs.size(); ++j) {
      const FluidProgress& progress = run.jobs[j];
      if (prepared_.jobs[j].ways.empty()) {
        AddWaiting(j, report);
        continue;
      }
      const double alone = prepared_.jobs[j].alone().count();
      const RoutableJob& ran = prepared_.jobs[j].ways[run.ways[j]].routable;
      const double there = (progress.left < 0 ? scenario_.duration.count() : progress.left) - progress.begin;
      SimulatedJob job{.name = scenario_.jobs[j].name, .alone = Seconds(alone),
                       .bound = LeastIteration(cuts_.jobs()[j], best),
                       .iterations_done = static_cast<int64_t>(progress.durations.size())};
      const auto done = static_cast<double>(job.iterations_done);
      const ScenarioJob& spec = scenario_.jobs[j];
      if (!spec.others.empty()) job.way = run.ways[j] == 0 ? spec.way : spec.others[run.ways[j] - 1].name;
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
      const double computed = ran.gpus * ran.compute.count() * done;
      computing += computed;
      working += spec.work > 0 ? spec.work * done : computed;
      present += scenario_.jobs[j].gpus * there;
      job.traffic_class = run.classes[j];
      job.gate_period = run.gate_periods[j];
      for (size_t f = 0; f < run.paths[j].size(); ++f) job.paths.push_back(ran.flows[f].paths[run.paths[j][f]].links);
      job.begin = Seconds(progress.begin);
      AddEarlier(run, j, &job, &computing, &working, &present, report);
      if (progress.left >= 0) job.end = Seconds(progress.left);
      job.hosts = run.hosts[j];
      job.late = IsLate(spec, job.end);
      report->throughput += spec.work > 0 ? spec.work * done : computed;
      report->jobs.push_back(std::move(job));
    }
    if (counted > 0) report->mean_slowdown = slowdowns / static_cast<double>(counted);
    if (!all.empty()) report->p99_slowdown = Percentile99(std::move(all));
    else if (counted > 0) report->p99_slowdown = kInfinity;
    if (present > 0) report->gpu_utilisation = computing / present;
    if (present > 0) report->goodput = working / present;
  }

  /// What the job did in ways that it ran before. The time between two of them is time that it was there.
  void AddEarlier(const RunRecord& run, size_t j, SimulatedJob* job, double* computing, double* working, double* present,
                  SimulationReport* report) const {
    double until = run.jobs[j].begin;
    for (auto earlier = run.earlier.rbegin(); earlier != run.earlier.rend(); ++earlier) {
      if (earlier->job != j) continue;
      const auto done = static_cast<double>(earlier->progress.durations.size());
      const RoutableJob& ran = prepared_.jobs[j].ways[earlier->way].routable;
      const double computed = ran.gpus * ran.compute.count() * done;
      const double worked = scenario_.jobs[j].work > 0 ? scenario_.jobs[j].work * done : computed;
      *computing += computed;
      *working += worked;
      *present += scenario_.jobs[j].gpus * (until - earlier->progress.begin);
      report->throughput += worked;
      job->iterations_done += static_cast<int64_t>(earlier->progress.durations.size());
      until = earlier->progress.begin;
      job->begin = Seconds(until);
    }
  }

  /// A job that nobody gave hosts.
  void AddWaiting(size_t j, SimulationReport* report) const {
    const std::vector<Seconds>& alone = prepared_.jobs[j].size_alone;
    SimulatedJob job{.name = scenario_.jobs[j].name, .iteration = Seconds(kInfinity), .alone = *std::min_element(alone.begin(), alone.end()),
                     .p99_iteration = Seconds(kInfinity), .slowdown = kInfinity};
    job.late = IsLate(scenario_.jobs[j], std::nullopt);
    report->jobs.push_back(std::move(job));
  }

  /// A deadline after the end of the scenario is not missed yet.
  bool IsLate(const ScenarioJob& job, std::optional<Seconds> end) const {
    if (job.deadline.count() == 0) return false;
    return end.value_or(scenario_.duration) > job.arrival + job.deadline;
  }

  /// Who waited, and for how long.
  void AddStarts(const std::vector<ScenarioJob>& asked, SimulationReport* report) const {
    double gpus = 0, wait = 0;
    std::vector<BoundedJob> bounded;
    Seconds first = scenario_.duration;
    for (const ScenarioJob& job : asked) first = std::min(first, job.arrival);
    for (size_t j = 0; j < asked.size(); ++j) {
      const SimulatedJob& done = report->jobs[j];
      wait += (done.begin.value_or(scenario_.duration) - asked[j].arrival).count();
      report->never_began += done.begin ? 0 : 1;
      report->late += done.late ? 1 : 0;
      if (asked[j].deadline.count() == 0 || asked[j].arrival + asked[j].deadline >= scenario_.duration) continue;
      bounded.push_back(Bounded(asked[j]));
      bounded.back().arrival -= first;
      *bounded.back().deadline -= first;
    }
    report->mean_wait = Seconds(wait / static_cast<double>(asked.size()));
    report->bound_late = BoundLate(bounded, static_cast<int32_t>(std::max<size_t>(1, scenario_.places.size())));
    for (const ScenarioJob& job : asked) {
      for (const ScenarioSize& size : job.sizes) gpus = std::max(gpus, size.gpus / size.hosts * static_cast<double>(scenario_.places.size()));
    }
    report->throughput = gpus > 0 ? report->throughput / (gpus * scenario_.duration.count()) : 0;
  }

  /// The least that a job with a deadline needs: its computation, in whichever size and way.
  static BoundedJob Bounded(const ScenarioJob& job) {
    BoundedJob bounded{.arrival = job.arrival, .deadline = job.arrival + job.deadline, .fastest = Seconds(kInfinity), .least = kInfinity};
    const auto add = [&](Seconds compute, size_t hosts) {
      const Seconds runtime = compute * static_cast<double>(job.iterations);
      bounded.fastest = std::min(bounded.fastest, runtime);
      bounded.least = std::min(bounded.least, runtime.count() * static_cast<double>(hosts));
    };
    for (const ScenarioSize& size : job.sizes) {
      for (const ScenarioWay& way : size.ways) add(way.compute, static_cast<size_t>(size.hosts));
    }
    if (!job.sizes.empty()) return bounded;
    add(job.compute, job.places.size());
    for (const ScenarioWay& way : job.others) add(way.compute, job.places.size());
    return bounded;
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
  const ScenarioCuts& cuts_;
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
    mean.goodput += run.goodput;
    mean.bound_goodput += run.bound_goodput;
    mean.bound_gpu_utilisation += run.bound_gpu_utilisation;
    mean.bound_mean_slowdown += run.bound_mean_slowdown;
    mean.events += run.events;
    mean.throughput += run.throughput;
    for (size_t j = 0; j < mean.jobs.size(); ++j) {
      mean.jobs[j].iteration += run.jobs[j].iteration;
      mean.jobs[j].p99_iteration += run.jobs[j].p99_iteration;
      mean.jobs[j].iterations_done += run.jobs[j].iterations_done;
      mean.jobs[j].slowdown += run.jobs[j].slowdown;
    }
  }
  for (double* value : {&mean.mean_slowdown, &mean.p99_slowdown, &mean.gpu_utilisation, &mean.goodput, &mean.bound_goodput,
                        &mean.bound_gpu_utilisation, &mean.bound_mean_slowdown, &mean.throughput}) {
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

std::string PolicyNames() {
  std::string names;
  for (const auto& [policy, name] : kPolicies) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

Scenario WithProfileError(Scenario scenario, double spread, uint64_t seed) {
  // A stream of its own: the policies' imagined worlds are drawn by small seeds.
  std::mt19937_64 random(seed ^ 0x7472757468);
  for (ScenarioJob& job : scenario.jobs) {
    // The same on every platform, which uniform_real_distribution is not.
    const double factor = 1 + spread * (static_cast<double>(random() >> 11) * 0x1p-52 - 1);
    const auto scale = [&](Seconds* compute, Seconds* release, std::vector<BurstTimes>* bursts) {
      *compute *= factor;
      *release = std::min(*release * factor, *compute);
      for (BurstTimes& burst : *bursts) {
        burst.needed = std::min(burst.needed * factor, *compute);
        burst.release = std::min(burst.release * factor, burst.needed);
      }
    };
    scale(&job.compute, &job.release, &job.bursts);
    for (ScenarioWay& way : job.others) scale(&way.compute, &way.release, &way.bursts);
    for (ScenarioSize& size : job.sizes) {
      for (ScenarioWay& way : size.ways) {
        scale(&way.compute, &way.release, &way.bursts);
        job.work = std::min(job.work, size.gpus * way.compute.count());
      }
    }
    if (!job.sizes.empty()) continue;
    // Faster hardware than its data sheet says: what it does in that time is still as much work.
    job.work = std::min(job.work, job.gpus * job.compute.count());
    for (const ScenarioWay& way : job.others) job.work = std::min(job.work, job.gpus * way.compute.count());
  }
  return scenario;
}

namespace {

/// Whether what a policy decides for the jobs of `known` can be done to those of `truth`.
Status CheckTruth(const Scenario& known, const Scenario& truth) {
  const auto wrong = [](std::string what) { return Fail(Code::kInvalidArgument, fmt::format("what is true has other {} than the scenario: expected the same", what)); };
  const auto links = [](const Scenario& s) {
    std::vector<std::tuple<NodeId, NodeId, double>> all;
    for (const Link& link : s.topology.links()) all.emplace_back(link.from, link.to, link.capacity.value());
    return all;
  };
  const auto faults = [](const Scenario& s) {
    std::vector<std::tuple<double, LinkId, double>> all;
    for (const ScenarioFault& fault : s.faults) all.emplace_back(fault.at.count(), fault.link, fault.capacity.value());
    return all;
  };
  if (links(known) != links(truth) || faults(known) != faults(truth)) return wrong("links or faults");
  if (known.duration != truth.duration || known.jobs.size() != truth.jobs.size()) return wrong("jobs or another duration");
  const auto ends = [](const std::vector<ScenarioFlow>& flows) {
    std::vector<std::pair<NodeId, NodeId>> all;
    for (const ScenarioFlow& flow : flows) all.emplace_back(flow.from, flow.to);
    return all;
  };
  for (size_t j = 0; j < known.jobs.size(); ++j) {
    const ScenarioJob &a = known.jobs[j], &b = truth.jobs[j];
    bool same = a.name == b.name && a.gpus == b.gpus && a.arrival == b.arrival && a.iterations == b.iterations &&
                a.others.size() == b.others.size() && ends(a.flows) == ends(b.flows) && a.sizes.size() == b.sizes.size() &&
                a.deadline == b.deadline && a.places == b.places;
    for (size_t w = 0; same && w < a.others.size(); ++w) same = ends(a.others[w].flows) == ends(b.others[w].flows);
    for (size_t s = 0; same && s < a.sizes.size(); ++s) {
      same = a.sizes[s].hosts == b.sizes[s].hosts && a.sizes[s].ways.size() == b.sizes[s].ways.size();
      for (size_t w = 0; same && w < a.sizes[s].ways.size(); ++w) same = ends(a.sizes[s].ways[w].flows) == ends(b.sizes[s].ways[w].flows);
    }
    if (!same) return wrong(fmt::format("ways, flows, GPUs or times of job \"{}\"", a.name));
  }
  return Ok();
}

}  // namespace

Result<SimulationReport> Simulate(const Scenario& scenario, SimulationPolicy policy, const SimulationOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const PreparedScenario prepared, Prepare(scenario));
  std::optional<PreparedScenario> other;
  if (options.truth != nullptr) {
    WEFT_RETURN_IF_ERROR(CheckTruth(scenario, *options.truth));
    WEFT_ASSIGN_OR_RETURN(other, Prepare(*options.truth));
  }
  const Scenario& true_scenario = options.truth != nullptr ? *options.truth : scenario;
  const PreparedScenario& truth = other ? *other : prepared;
  const ScenarioCuts cuts(true_scenario, truth);
  const bool hashed = policy == SimulationPolicy::kEcmp || policy == SimulationPolicy::kLayersApart;
  const int32_t draws = hashed ? scenario.draws : 1;
  std::vector<SimulationReport> runs;
  for (int32_t draw = 0; draw < draws; ++draw) {
    SimulationOptions once = options;
    once.trace = options.trace && draw == 0;
    WEFT_ASSIGN_OR_RETURN(RunRecord run, RunScenario(scenario, prepared, truth, policy, once, scenario.seed + static_cast<uint64_t>(draw)));
    const std::shared_ptr<const OpenedScenario> opened = run.opened;
    if (!opened) {
      WEFT_ASSIGN_OR_RETURN(SimulationReport report, Reporter(true_scenario, truth, cuts).Make(std::move(run), true_scenario.jobs));
      runs.push_back(std::move(report));
      continue;
    }
    const Scenario& became = opened->apart ? opened->truth : opened->scenario;
    const PreparedScenario& prepared_now = opened->apart ? opened->prepared_truth : opened->prepared;
    const ScenarioCuts cuts_now(became, prepared_now);
    WEFT_ASSIGN_OR_RETURN(SimulationReport report, Reporter(became, prepared_now, cuts_now).Make(std::move(run), true_scenario.jobs));
    runs.push_back(std::move(report));
  }
  SimulationReport report = Average(std::move(runs));
  if (report.bound_gpu_utilisation > 0) {
    report.bound_gap = (report.bound_gpu_utilisation - report.gpu_utilisation) / report.bound_gpu_utilisation;
  }
  return report;
}

}  // namespace weft::planner::jobs
