// A whole re-plan of layer 4 for 1,000 jobs, 16,384 GPUs and some 50,000 flows, stage by stage: what docs/flows.md promises.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <optional>

#include "bench/replan_instances.h"
#include "planner/fabric/fabric_cuts.h"
#include "planner/fabric/path_catalog.h"
#include "planner/flows/path_choice.h"
#include "planner/flows/periodic.h"
#include "planner/flows/time_shift.h"
#include "planner/jobs/multi_job_plan.h"
#include "planner/jobs/master.h"
#include "planner/network/max_min.h"

namespace weft::planner::bench {
namespace {

/// Groups of 32 hosts: 64 is what docs/flows.md promises, 4 only shows that all of it runs.
const ReplanInstance& Instance(benchmark::State& state) {
  static const ReplanInstance large = MakeReplanInstance();
  static const ReplanInstance small =
      MakeReplanInstance({.groups = 4, .sizes = {{64, 4}, {24, 8}, {16, 10}, {4, 60}, {2, 88}}});
  return state.range(0) == 64 ? large : small;
}

std::vector<BitsPerSecond> Capacity(const Topology& topology) {
  std::vector<BitsPerSecond> capacity;
  for (const Link& link : topology.links()) capacity.push_back(link.capacity);
  return capacity;
}

/// Candidate paths of every flow, and what each would send.
FlowProblem Candidates(const ReplanInstance& instance) {
  FlowProblem problem{.topology = instance.topology, .split_gain = 1e9, .node_budget = 2'000'000};
  PathCatalog catalog(instance.topology);
  uint64_t key = 0;
  for (const ReplanJob& job : instance.jobs) {
    for (const ReplanFlow& flow : job.flows) {
      const double rate = static_cast<double>(flow.bytes) * 8 / job.compute_s;
      FlowDemand demand{.key = key++, .job = "j", .demand = BitsPerSecond(rate),
                        .intensity = static_cast<double>(job.gpus)};
      for (std::vector<LinkId>& path : catalog.Paths(flow.from, flow.to)) demand.paths.push_back({std::move(path)});
      problem.flows.push_back(std::move(demand));
    }
  }
  return problem;
}

size_t Largest(const std::vector<double>& shares) {
  return static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
}

/// Jobs with the loads of their flows on the chosen paths.
std::vector<PeriodicJob> Periodic(const ReplanInstance& instance, const FlowProblem& problem, const FlowPlan& plan) {
  std::vector<PeriodicJob> jobs;
  std::vector<int32_t> place(instance.topology.links().size(), -1);
  size_t next = 0;
  for (const ReplanJob& job : instance.jobs) {
    PeriodicJob made{.gpus = static_cast<double>(job.gpus), .compute = Seconds(job.compute_s),
                     .release = Seconds(job.release_s)};
    for (const ReplanFlow& flow : job.flows) {
      for (const LinkId link : problem.flows[next].paths[Largest(plan.flows[next].shares)].links) {
        int32_t& at = place[link.index()];
        if (at < 0) {
          at = static_cast<int32_t>(made.loads.size());
          made.loads.push_back({link, Bytes(0), 0});
        }
        LinkLoad& load = made.loads[static_cast<size_t>(at)];
        load.bytes += Bytes(flow.bytes);
        load.flows += 1;
      }
      ++next;
    }
    for (const LinkLoad& load : made.loads) place[load.link.index()] = -1;
    jobs.push_back(std::move(made));
  }
  return jobs;
}

/// The bound over what must cross each cut, whatever the paths.
double Bound(const ReplanInstance& instance) {
  const FabricCuts cuts(instance.topology);
  MasterProblem problem{.cuts = cuts.Capacities()};
  std::vector<std::vector<Configuration>> pools;
  for (const ReplanJob& job : instance.jobs) {
    std::vector<CutTransfer> transfers;
    for (const ReplanFlow& flow : job.flows) transfers.push_back({flow.from, flow.to, static_cast<double>(flow.bytes)});
    Configuration c{.name = "only", .gpus = job.gpus, .compute = Seconds(job.compute_s),
                    .iteration = Seconds(job.compute_s), .loads = cuts.Loads(transfers)};
    double send = 0;
    for (const CutLoad& load : c.loads) send = std::max(send, load.bytes / problem.cuts[load.cut].bytes_per_second());
    c.iteration = std::max(c.iteration, Seconds(job.release_s + send));
    pools.push_back({std::move(c)});
    problem.jobs.push_back({.name = "j"});
  }
  problem.source = FromPools(std::move(pools));
  const auto answer = SolveMaster(problem);
  return answer ? answer->bound : -1;
}

/// The jobs as the controller would have measured them, on the chosen paths.
MultiJobProblem Measured(const ReplanInstance& instance, const FlowProblem& problem, const FlowPlan& plan) {
  MultiJobProblem measured{.topology = instance.topology, .jobs = {}, .options = {.classes = 8}};
  size_t next = 0;
  for (const ReplanJob& job : instance.jobs) {
    MultiJobJob made{.name = fmt::format("job{}", measured.jobs.size()), .gpus = job.gpus, .compute = Seconds(job.compute_s),
                  .release = Seconds(job.release_s), .flows = {}};
    for (const ReplanFlow& flow : job.flows) {
      made.flows.push_back({flow.from, flow.to, Bytes(flow.bytes), problem.flows[next].paths, plan.flows[next].shares});
      ++next;
    }
    measured.jobs.push_back(std::move(made));
  }
  return measured;
}

/// The worst links of each job; exact circles only where that is cheap.
CircleOptions Shifts() {
  return {.most_repeats = 3, .exact_up_to = 2, .evaluations = 100'000, .links_per_job = 2, .edges = 48};
}

std::vector<ShiftJob> Patterns(const std::vector<BitsPerSecond>& capacity, const std::vector<PeriodicJob>& jobs) {
  std::vector<ShiftJob> patterns;
  for (const PeriodicJob& job : jobs) patterns.push_back(PatternOf(capacity, job));
  return patterns;
}

void BM_Replan_Candidates(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Candidates(Instance(state)));
  state.counters["flows"] = static_cast<double>(Instance(state).flows);
}
BENCHMARK(BM_Replan_Candidates)->ArgName("groups")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond)->Iterations(1);

void BM_Replan_Paths(benchmark::State& state) {
  const FlowProblem problem = Candidates(Instance(state));
  std::optional<FlowPlan> plan;
  for (auto _ : state) plan = ChoosePaths(problem);
  state.counters["bottleneck"] = plan->bottleneck_after;
  state.counters["bound"] = plan->bottleneck_bound;
  state.counters["complete"] = plan->complete;
}
BENCHMARK(BM_Replan_Paths)->ArgName("groups")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond)->Iterations(1);

/// After a change: a link between switches gives half of what it had, one flow in a hundred is new.
FlowProblem Changed(FlowProblem problem, const FlowPlan& plan) {
  for (size_t f = 0; f < problem.flows.size(); ++f) {
    if (f % 100 != 0) problem.flows[f].present_shares = plan.flows[f].shares;
  }
  const Topology& topology = problem.topology;
  for (size_t l = 0; l < topology.links().size(); ++l) {
    const Link& link = topology.links()[l];
    if (topology.node(link.from).kind != NodeKind::kSwitch || topology.node(link.to).kind != NodeKind::kSwitch) continue;
    problem.topology.SetCapacity(LinkId(static_cast<int32_t>(l)), link.capacity * 0.5);
    return problem;
  }
  return problem;
}

void ReplanChange(benchmark::State& state, bool quick) {
  FlowProblem problem = Candidates(Instance(state));
  problem = Changed(problem, ChoosePaths(problem));
  problem.quick = quick;
  std::optional<FlowPlan> plan;
  for (auto _ : state) plan = ChoosePaths(problem);
  state.counters["before"] = plan->bottleneck_before;
  state.counters["bottleneck"] = plan->bottleneck_after;
  state.counters["bound"] = plan->bottleneck_bound;
}
void BM_Replan_ChangeQuick(benchmark::State& state) { ReplanChange(state, true); }
void BM_Replan_ChangeWhole(benchmark::State& state) { ReplanChange(state, false); }
BENCHMARK(BM_Replan_ChangeQuick)->ArgName("groups")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond)->Iterations(1);
BENCHMARK(BM_Replan_ChangeWhole)->ArgName("groups")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond)->Iterations(1);

/// Classes of all jobs, and the bound: what the controller asks for beside its paths.
void BM_Replan_Jobs(benchmark::State& state) {
  const FlowProblem problem = Candidates(Instance(state));
  const MultiJobProblem measured = Measured(Instance(state), problem, ChoosePaths(problem));
  MultiJobPlan plan;
  for (auto _ : state) plan = PlanMultiJob(measured);
  state.counters["gpu_use"] = plan.gpu_use;
  state.counters["present"] = plan.gpu_use_present;
  state.counters["ecmp"] = plan.gpu_use_default;
  state.counters["bound"] = plan.gpu_use_bound;
}
BENCHMARK(BM_Replan_Jobs)->ArgName("groups")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond)->Iterations(1);

void BM_Replan_Shifts(benchmark::State& state) {
  const FlowProblem problem = Candidates(Instance(state));
  const std::vector<PeriodicJob> jobs = Periodic(Instance(state), problem, ChoosePaths(problem));
  const std::vector<BitsPerSecond> capacity = Capacity(Instance(state).topology);
  ShiftPlan plan;
  for (auto _ : state) plan = PlanTimeShifts(capacity, Patterns(capacity, jobs), Shifts());
  state.counters["links"] = static_cast<double>(plan.links.size());
  state.counters["left_out"] = static_cast<double>(plan.links_left_out);
  state.counters["excess_before"] = plan.excess_before;
  state.counters["excess"] = plan.excess;
  state.counters["complete"] = plan.complete;
}
BENCHMARK(BM_Replan_Shifts)->ArgName("groups")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond)->Iterations(1);

void BM_Replan_Bound(benchmark::State& state) {
  for (auto _ : state) state.counters["bound_gpus"] = Bound(Instance(state));
}
BENCHMARK(BM_Replan_Bound)->ArgName("groups")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond)->Iterations(1);

/// One after the other on one core, as the controller plans so many flows: candidates, quick paths, classes, bound.
void BM_Replan_All(benchmark::State& state) {
  for (auto _ : state) {
    FlowProblem problem = Candidates(Instance(state));
    problem.quick = true;
    const FlowPlan plan = ChoosePaths(problem);
    benchmark::DoNotOptimize(PlanMultiJob(Measured(Instance(state), problem, plan)));
  }
}
BENCHMARK(BM_Replan_All)->ArgName("groups")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace weft::planner::bench
