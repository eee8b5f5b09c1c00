#include "cli/demo/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "cli/demo/bound_ports.h"
#include "common/check.h"
#include "common/parse_units.h"
#include "planner/tasks/program_schedule.h"

namespace weft::cli {
namespace {

using planner::PortUse;
using planner::TaskGraph;
using planner::TaskSpan;

constexpr int kPaces = 12, kPhases = 10;  // of the grid
constexpr int kWarmUp = 3;                // iterations that do not count
constexpr int kCounted = 6, kCountedFree = 24;  // the second without a pace, where jobs may drift past each other

/// A job as tasks, whose communications are priced once.
class JobTasks {
 public:
  JobTasks(const BoundPorts& ports, const BoundJob& job, size_t number) : ports_(ports), job_(job), number_(number) {
    if (job.program == nullptr) return;
    WEFT_CHECK(job.computations.size() == job.program->ranks.size(), "computations of each rank");
    for (size_t rank = 0; rank < job.computations.size(); ++rank) {
      WEFT_CHECK(job.computations[rank].size() == ListOf(rank).instructions.size(), "computations of each instruction");
    }
  }

  /// By iteration: the tasks that end it. `gates`: of the first iterations.
  std::vector<std::vector<int32_t>> Add(int iterations, std::span<const int32_t> gates, TaskGraph* graph,
                                        std::vector<PortUse>* uses) {
    return job_.program == nullptr ? AddBuckets(iterations, gates, graph, uses) : AddProgram(iterations, gates, graph, uses);
  }

 private:
  const planner::RankClass& ListOf(size_t rank) const {
    return job_.program->classes[static_cast<size_t>(job_.program->ranks[rank].rank_class)];
  }

  std::vector<std::vector<int32_t>> AddProgram(int iterations, std::span<const int32_t> gates, TaskGraph* graph,
                                               std::vector<PortUse>* uses) {
    const planner::ProgramCosts costs = {
        .compute =
            [this](int32_t rank, int32_t instruction) {
              return ports_.OnCore(number_, job_.computations[static_cast<size_t>(rank)][static_cast<size_t>(instruction)]);
            },
        .communicate = [this](const planner::GroupCall& call) { return CostOf(call); }};
    const auto ranks = planner::AddProgram(*job_.program, costs, {.steps = iterations, .gates = gates}, graph, uses);
    WEFT_CHECK(ranks.has_value(), "a program that does not run");
    std::vector<std::vector<int32_t>> ends(static_cast<size_t>(iterations));
    for (const planner::RankTasks& rank : *ranks) {
      for (size_t k = 0; k < ends.size(); ++k) ends[k].push_back(rank.ends[k]);
    }
    return ends;
  }

  planner::TaskCost CostOf(const planner::GroupCall& call) {
    const auto [known, added] = costs_.try_emplace(call.members.front());
    if (!added) return known->second;
    const auto flows = planner::FlowsOf(*job_.program, call);
    WEFT_CHECK(flows.has_value(), "a communication without a schedule");
    std::vector<HostFlow> between;
    for (const planner::RankFlow& flow : *flows) {
      between.push_back({job_.hosts[static_cast<size_t>(flow.from)], job_.hosts[static_cast<size_t>(flow.to)], flow.bytes});
    }
    return known->second = ports_.CostOf(between);
  }

  std::vector<std::vector<int32_t>> AddBuckets(int iterations, std::span<const int32_t> gates, TaskGraph* graph,
                                               std::vector<PortUse>* uses) const {
    const BucketIteration& it = job_.iteration;
    const Seconds backward = it.compute - it.after_backward;
    const auto add = [&](const planner::TaskCost& cost, std::vector<int32_t> after) {
      std::erase(after, planner::kNoTask);
      const int32_t task = graph->Add(cost.duration, after);
      if (cost.use.empty()) return task;
      uses->resize(static_cast<size_t>(task));
      uses->push_back(cost.use);
      return task;
    };
    std::vector<std::vector<int32_t>> ends;
    int32_t last = planner::kNoTask;
    for (size_t k = 0; k < static_cast<size_t>(iterations); ++k) {
      int32_t computed = add({}, {last, k < gates.size() ? gates[k] : planner::kNoTask}), sent = planner::kNoTask;
      Seconds at{0};
      for (const Bucket& bucket : it.buckets) {
        const Seconds ready = std::clamp(bucket.ready, at, std::max(at, backward));
        computed = add({.duration = ready - at}, {computed});
        at = ready;
        sent = add(RingCost(bucket.bytes), {computed, sent});
      }
      computed = add({.duration = std::max(Seconds(0), backward - at)}, {computed});
      last = add({.duration = it.after_backward}, {computed, sent});
      ends.push_back({last});
    }
    return ends;
  }

  /// Source: Patarasuk and Yuan 2009, section 3.
  planner::TaskCost RingCost(Bytes bytes) const {
    const size_t n = job_.hosts.size();
    const double sent = 2.0 * static_cast<double>(n - 1) / static_cast<double>(n) * static_cast<double>(bytes.count());
    std::vector<HostFlow> flows;
    for (size_t rank = 0; rank < n; ++rank) flows.push_back({job_.hosts[rank], job_.hosts[(rank + 1) % n], sent});
    return ports_.CostOf(flows);
  }

  const BoundPorts& ports_;
  const BoundJob& job_;
  const size_t number_;
  std::map<std::pair<int32_t, const planner::Instruction*>, planner::TaskCost> costs_;  // by a call's first member
};

/// The jobs against each other.
class Machine {
 public:
  Machine(const BoundPorts& ports, const std::vector<BoundJob>& jobs) : ports_(ports) {
    for (size_t j = 0; j < jobs.size(); ++j) jobs_.emplace_back(ports, jobs[j], j);
    for (size_t j = 0; j < jobs.size(); ++j) alone_.push_back(Alone(j));
    if (jobs.size() > 1) free_ = Run(0, 0);
  }

  const std::vector<double>& alone() const { return alone_; }
  const std::vector<double>& free() const { return free_; }

  /// Whether no job is held up by the others, as soon as all begin at once.
  bool Undisturbed() const {
    if (free_.empty()) return true;
    for (size_t j = 0; j < free_.size(); ++j) {
      if (free_[j] > alone_[j] * kSame) return false;
    }
    return true;
  }
  /// Whether a common pace could be kept that is shorter than where nobody waits for a pace.
  bool HasPaces() const { return std::ranges::max(free_) > std::ranges::max(alone_) * kSame; }

  /// Mean iterations, what jobs wait for their turn included. Paces go from that of the slowest job alone to that of the slowest where
  /// nobody waits: jobs of different compute that run freely drift past each other and meet in every phase, at one pace they keep the best.
  std::vector<double> Run(int pace, int phase) {
    const double least = std::ranges::max(alone_);
    const double paced = pace == 0 ? 0 : least + (std::ranges::max(free_) - least) * (pace - 1) / (kPaces - 1);
    TaskGraph graph;
    std::vector<PortUse> uses;
    std::vector<std::vector<std::vector<int32_t>>> ends;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      // All for about as long, where they do not keep one pace.
      const double share = least / alone_[j];
      const int iterations = kWarmUp + (pace > 0 ? kCounted : static_cast<int>(std::ceil(kCountedFree * share)));
      const double cycle = pace > 0 ? paced : alone_[j];
      std::vector<int32_t> gates;
      if (j > 0 || pace > 0) gates.push_back(graph.Add(Seconds(cycle * phase / kPhases * static_cast<double>(j)), {}));
      for (int k = 1; pace > 0 && k < iterations; ++k) gates.push_back(graph.Add(Seconds(paced), std::vector{gates.back()}));
      ends.push_back(jobs_[j].Add(iterations, gates, &graph, &uses));
    }
    const std::vector<TaskSpan> spans = planner::RunTasks(graph, uses, ports_.count());
    std::vector<double> means;
    for (const auto& of_job : ends) means.push_back(Mean(of_job, spans));
    return means;
  }

 private:
  static constexpr double kSame = 1.001;

  double Alone(size_t j) {
    TaskGraph graph;
    std::vector<PortUse> uses;
    const auto ends = jobs_[j].Add(kWarmUp + kCounted, {}, &graph, &uses);
    return Mean(ends, planner::RunTasks(graph, uses, ports_.count()));
  }

  static double Mean(const std::vector<std::vector<int32_t>>& ends, const std::vector<TaskSpan>& spans) {
    const auto end = [&](size_t iteration) {
      double last = 0;
      for (const int32_t task : ends[iteration]) last = std::max(last, spans[static_cast<size_t>(task)].end.count());
      return last;
    };
    return (end(ends.size() - 1) - end(kWarmUp - 1)) / static_cast<double>(ends.size() - kWarmUp);
  }

  const BoundPorts& ports_;
  std::vector<JobTasks> jobs_;
  std::vector<double> alone_, free_;
};

/// The points of the grid to try.
std::vector<BoundSchedule> Candidates(const Machine& machine, const Bound* near) {
  std::vector<BoundSchedule> points;
  if (machine.Undisturbed()) return {{}};
  const int last = machine.HasPaces() ? kPaces : 0;
  const auto add_phases = [&](int pace, int from, int count) {
    for (int k = 0; k < count; ++k) points.push_back({pace, (from + k + kPhases) % kPhases});
  };
  if (near == nullptr) {
    for (int pace = 0; pace <= last; ++pace) add_phases(pace, 0, kPhases);
    return points;
  }
  const BoundSchedule& known = near->schedule;
  add_phases(0, known.phase - 1, 3);
  for (int pace = std::max(1, known.pace - 1); pace <= std::min(last, known.pace + 1); ++pace) add_phases(pace, 0, kPhases);
  return points;
}

}  // namespace

Bound ComputeBound(const BoundFabric& fabric, const std::vector<BoundJob>& jobs, const std::vector<CableFactor>& cables,
                   const std::vector<BackgroundFlow>& background, const Bound* near) {
  WEFT_CHECK(jobs.size() == 1 || jobs.size() == 2, "a bound of more than two jobs");
  const BoundPorts ports(fabric, cables, background);
  Machine machine(ports, jobs);
  Bound bound;
  for (const double alone : machine.alone()) bound.alone.emplace_back(alone);
  if (machine.free().empty()) {
    bound.iterations = bound.alone;
    return bound;
  }
  std::vector<double> best = machine.free();
  for (const BoundSchedule& point : Candidates(machine, near)) {
    if (point.pace == 0 && point.phase == 0) continue;  // known
    const std::vector<double> means = machine.Run(point.pace, point.phase);
    if (std::reduce(means.begin(), means.end()) >= std::reduce(best.begin(), best.end())) continue;
    best = means;
    bound.schedule = point;
  }
  for (const double mean : best) bound.iterations.emplace_back(mean);
  return bound;
}

Seconds CommunicationOf(const BoundFabric& fabric, const BoundJob& job) {
  const BoundPorts ports(fabric, {}, {});
  TaskGraph graph;
  std::vector<PortUse> uses;
  JobTasks(ports, job, 0).Add(1, {}, &graph, &uses);
  std::map<int32_t, double> busy;
  for (size_t task = 0; task < uses.size(); ++task) {
    for (const auto& [port, share, flow] : uses[task]) busy[port] += share * graph.duration(static_cast<int32_t>(task)).count();
  }
  double most = 0;
  for (const auto& [port, seconds] : busy) {
    if (ports.IsLink(port)) most = std::max(most, seconds);
  }
  return Seconds(most);
}

std::string ExplainBound(const BoundJob& job, Seconds alone, Seconds iteration) {
  const std::string sharing =
      fmt::format("{} alone on the fabric as it is, {} beside the other job at the best phase and pace", FormatDuration(alone),
                  FormatDuration(iteration));
  if (job.program != nullptr) {
    Seconds computed{0};
    for (const std::vector<Seconds>& rank : job.computations) computed = std::reduce(rank.begin(), rank.end(), computed);
    return fmt::format("{}: list of operations {:016x} of {} ranks on one core, {} of computations; {}", job.name,
                       planner::DigestOf(*job.program), job.computations.size(), FormatDuration(computed), sharing);
  }
  Bytes total;
  for (const Bucket& bucket : job.iteration.buckets) total += bucket.bytes;
  return fmt::format("{}: bucket i starts at max(ready_i, end of i-1) and takes 2(n-1)/n S_i / rate; optimizer after the last; compute "
                     "{} (of it {} after backward), {} in {} buckets, n = {}; {}",
                     job.name, FormatDuration(job.iteration.compute), FormatDuration(job.iteration.after_backward),
                     FormatBytes(total), job.iteration.buckets.size(), job.hosts.size(), sharing);
}

}  // namespace weft::cli
