#include "planner/flows/job_paths.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <utility>

#include "common/check.h"
#include "planner/flows/priority.h"

namespace weft::planner::inline flows {
namespace {

constexpr double kGain = 1e-6;
constexpr uint32_t kDraws = 24;  // starts from drawn paths
constexpr int64_t kAloneEvaluations = 200;
constexpr double kJustAsFast = 1 + 1e-9;
constexpr size_t kMostFlowsMoved = 32;   // of a job whose paths alone are improved by simulation

std::vector<BitsPerSecond> Capacities(const Topology& topology) {
  std::vector<BitsPerSecond> capacity;
  for (const Link& link : topology.links()) capacity.push_back(link.capacity);
  return capacity;
}

/// Simulations, counted, and the moves that they judge.
class PathSearch {
 public:
  PathSearch(const Topology& topology, const std::vector<RoutableJob>& jobs, const JobPathOptions& options)
      : topology_(topology), jobs_(jobs), simulation_(options.simulation), left_(options.evaluations) {}

  int64_t left() const { return left_; }

  double Use(const JobPaths& paths) {
    --left_;
    return GpuUse(topology_, jobs_, paths, simulation_);
  }

  /// Moves one flow at a time while that helps.
  void MoveSingly(JobPathPlan* plan) {
    for (bool improved = left_ > 0; improved;) {
      improved = false;
      for (const Move& move : Moves(*plan)) improved |= Try({&move, 1}, plan);
    }
  }

  /// One move of two flows that helps. A job in lock step is no faster before the last of its flows is out of the way.
  bool MovePair(JobPathPlan* plan) {
    const std::vector<Move> moves = Moves(*plan);
    for (size_t a = 0; a < moves.size(); ++a) {
      for (size_t b = a + 1; b < moves.size() && left_ > 0; ++b) {
        const Move both[2] = {moves[a], moves[b]};
        const bool same_flow = both[0].job == both[1].job && both[0].flow == both[1].flow;
        if (!same_flow && Try(both, plan)) return true;
      }
    }
    return false;
  }

  /// Single moves from paths that are drawn at random, the same in every run.
  void StartAnew(uint32_t draw, JobPathPlan* plan) {
    std::mt19937 random(draw);
    JobPathPlan trial = *plan;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      for (size_t f = 0; f < jobs_[j].flows.size(); ++f) trial.paths[j][f] = random() % jobs_[j].flows[f].paths.size();
    }
    trial.gpu_use = Use(trial.paths);
    MoveSingly(&trial);
    if (trial.gpu_use > plan->gpu_use + kGain) *plan = std::move(trial);
  }

  /// All flows of one job on their n-th paths, for every job and n, and single moves from there.
  bool TurnJob(JobPathPlan* plan) {
    for (size_t j = 0; j < jobs_.size(); ++j) {
      size_t most = 0;
      for (const RoutableFlow& flow : jobs_[j].flows) most = std::max(most, flow.paths.size());
      for (size_t n = 0; n < most && left_ > 0; ++n) {
        JobPathPlan trial = *plan;
        for (size_t f = 0; f < jobs_[j].flows.size(); ++f) trial.paths[j][f] = n % jobs_[j].flows[f].paths.size();
        if (trial.paths == plan->paths) continue;
        trial.gpu_use = Use(trial.paths);
        MoveSingly(&trial);
        if (trial.gpu_use <= plan->gpu_use + kGain) continue;
        *plan = std::move(trial);
        return true;
      }
    }
    return false;
  }

 private:
  struct Move {
    size_t job, flow, path;
  };

  /// Every other path of every flow.
  std::vector<Move> Moves(const JobPathPlan& plan) const {
    std::vector<Move> moves;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      for (size_t f = 0; f < jobs_[j].flows.size(); ++f) {
        for (size_t p = 0; p < jobs_[j].flows[f].paths.size(); ++p) {
          if (plan.paths[j][f] != p) moves.push_back({j, f, p});
        }
      }
    }
    return moves;
  }

  bool Try(std::span<const Move> moves, JobPathPlan* plan) {
    if (left_ <= 0) return false;
    JobPaths paths = plan->paths;
    for (const Move& move : moves) paths[move.job][move.flow] = move.path;
    const double value = Use(paths);
    if (value <= plan->gpu_use + kGain) return false;
    plan->gpu_use = value;
    plan->paths = std::move(paths);
    return true;
  }

  const Topology& topology_;
  const std::vector<RoutableJob>& jobs_;
  const PeriodicOptions simulation_;
  int64_t left_;
};

/// What the flows put on links, those of one burst only if it is given.
std::vector<LinkLoad> LoadsOnPaths(const RoutableJob& job, const std::vector<size_t>& paths, const size_t* burst) {
  std::map<int32_t, LinkLoad> by_link;
  for (size_t f = 0; f < job.flows.size(); ++f) {
    const Bytes bytes = burst != nullptr ? job.flows[f].per_burst[*burst] : job.flows[f].bytes;
    if (burst != nullptr && bytes.count() == 0) continue;
    const std::vector<LinkId>& links = job.flows[f].paths[paths[f]].links;
    for (size_t i = 0; i < links.size(); ++i) {
      const double share = job.flows[f].ShareOn(paths[f], i);
      LinkLoad& load = by_link.try_emplace(links[i].value(), LinkLoad{links[i], Bytes(0), 0}).first->second;
      load.bytes += share == 1 ? bytes : Bytes(static_cast<int64_t>(std::ceil(share * static_cast<double>(bytes.count()))));
      load.flows += 1;
    }
  }
  std::vector<LinkLoad> loads;
  for (const auto& [link, load] : by_link) loads.push_back(load);
  return loads;
}

/// The job with the bytes of every flow on the links that all of its whole paths have, and on no others.
PeriodicJob OnForcedLinks(RoutableJob job) {
  for (RoutableFlow& flow : job.flows) {
    const size_t whole = flow.WholePaths();
    std::erase_if(flow.paths[0].links, [&](LinkId link) {
      return !std::all_of(flow.paths.begin() + 1, flow.paths.begin() + static_cast<std::ptrdiff_t>(whole), [&](const CandidatePath& path) {
        return std::find(path.links.begin(), path.links.end(), link) != path.links.end();
      });
    });
    flow.paths.resize(1), flow.shares.clear();
  }
  return OnPaths(job, std::vector<size_t>(job.flows.size(), 0));
}

/// What each of these paths gets of a flow that is divided between them, sum 1. A link that some of them share counts in equal parts.
std::vector<double> LaneWeights(const RoutableFlow& flow, const std::vector<size_t>& lanes, const std::vector<BitsPerSecond>& capacity) {
  std::map<LinkId, size_t> users;
  for (const size_t p : lanes) {
    for (const LinkId link : flow.paths[p].links) ++users[link];
  }
  std::vector<double> weights;
  double sum = 0;
  for (const size_t p : lanes) {
    double least = std::numeric_limits<double>::infinity();
    for (const LinkId link : flow.paths[p].links) {
      const size_t shared = users[link];
      if (shared < lanes.size()) least = std::min(least, capacity[link.index()].value() / static_cast<double>(shared));
    }
    sum += weights.emplace_back(least);
  }
  const bool even = !(sum > 0) || !std::isfinite(sum);
  for (double& weight : weights) weight = even ? 1 / static_cast<double>(lanes.size()) : weight / sum;
  return weights;
}

}  // namespace

size_t RoutableFlow::WholePaths() const {
  size_t whole = 0;
  while (whole < paths.size() && (whole >= shares.size() || shares[whole].empty())) ++whole;
  return whole;
}

void AddSplits(RoutableFlow* flow, const std::vector<BitsPerSecond>& capacity) {
  const size_t whole = flow->paths.size();
  if (whole < 2) return;
  flow->shares.resize(whole);
  const size_t sets = (whole + kMostLanes - 1) / kMostLanes;
  for (size_t first = 0; first < sets; ++first) {
    std::vector<size_t> lanes;
    for (size_t p = first; p < whole; p += sets) lanes.push_back(p);
    const std::vector<double> weights = LaneWeights(*flow, lanes, capacity);
    if (std::ranges::count_if(weights, [](double weight) { return weight > 0; }) < 2) continue;
    std::vector<double>& divided = flow->divided.emplace_back(whole, 0);
    std::map<LinkId, double> there;
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (!(weights[i] > 0)) continue;
      divided[lanes[i]] = weights[i];
      for (const LinkId link : flow->paths[lanes[i]].links) there[link] += weights[i];
    }
    CandidatePath& path = flow->paths.emplace_back();
    std::vector<double>& shares = flow->shares.emplace_back();
    for (const auto& [link, share] : there) {
      path.links.push_back(link);
      shares.push_back(std::min(1.0, share));
    }
  }
}

std::vector<double> SharesOf(const RoutableFlow& flow, size_t p) {
  const size_t whole = flow.WholePaths();
  if (p >= whole) {
    WEFT_CHECK(p - whole < flow.divided.size(), "a path that AddSplits() has made");
    return flow.divided[p - whole];
  }
  std::vector<double> shares(whole, 0);
  shares[p] = 1;
  return shares;
}

PeriodicJob BestAlone(const Topology& topology, const RoutableJob& job) {
  const std::vector<BitsPerSecond> capacity = Capacities(topology);
  const double least = kJustAsFast * CommunicationAlone(capacity, OnForcedLinks(job)).count();
  std::vector<size_t> divided;
  for (const RoutableFlow& flow : job.flows) {
    const size_t splits = flow.divided.size();
    divided.push_back(splits == 0 ? 0 : flow.WholePaths() + divided.size() % splits);
  }
  PeriodicJob split = OnPaths(job, divided);
  if (CommunicationAlone(capacity, split).count() <= least) return split;
  PeriodicJob best = OnPaths(job, BalancedJobPaths(topology, {job})[0]);
  if (CommunicationAlone(capacity, best).count() > least && job.flows.size() <= kMostFlowsMoved) {
    best = OnPaths(job, PlanJobPaths(topology, {job}, {.evaluations = kAloneEvaluations}).paths[0]);
  }
  return IterationAlone(capacity, split) < IterationAlone(capacity, best) ? split : best;
}

PeriodicJob OnPaths(const RoutableJob& job, const std::vector<size_t>& paths) {
  PeriodicJob made{.gpus = job.gpus, .compute = job.compute, .release = job.release};
  made.loads = LoadsOnPaths(job, paths, nullptr);
  for (size_t b = 0; b < job.bursts.size(); ++b) made.bursts.push_back({job.bursts[b], LoadsOnPaths(job, paths, &b)});
  return made;
}

double GpuUse(const Topology& topology, const std::vector<RoutableJob>& jobs, const JobPaths& paths,
              const PeriodicOptions& simulation) {
  std::vector<PeriodicJob> made;
  for (size_t j = 0; j < jobs.size(); ++j) made.push_back(OnPaths(jobs[j], paths[j]));
  return PeriodicSimulator(Capacities(topology), made, simulation).Run(std::vector<int32_t>(jobs.size(), 0)).gpu_use;
}

// A flow's demand is its bytes per iteration of its job alone.
JobPaths BalancedJobPaths(const Topology& topology, const std::vector<RoutableJob>& jobs) {
  FlowProblem problem{.topology = topology, .whole_only = true};
  const std::vector<BitsPerSecond> capacity = Capacities(topology);
  for (size_t j = 0; j < jobs.size(); ++j) {
    const PeriodicJob alone = OnPaths(jobs[j], std::vector<size_t>(jobs[j].flows.size(), 0));
    const Seconds time = IterationAlone(capacity, alone);
    const double intensity = GpuIntensity(capacity, alone);
    for (const RoutableFlow& flow : jobs[j].flows) {
      const double rate = static_cast<double>(flow.bytes.count()) * 8 / time.count();
      problem.flows.push_back({.key = problem.flows.size(), .demand = BitsPerSecond(std::max(1.0, rate)),
                               .intensity = intensity,
                               .paths = {flow.paths.begin(), flow.paths.begin() + static_cast<std::ptrdiff_t>(flow.WholePaths())}});
    }
  }
  JobPaths paths;
  if (problem.flows.empty()) return JobPaths(jobs.size());
  const FlowPlan plan = ChoosePaths(problem);
  size_t next = 0;
  for (const RoutableJob& job : jobs) {
    paths.emplace_back();
    for (size_t f = 0; f < job.flows.size(); ++f, ++next) {
      const std::vector<double>& shares = plan.flows[next].shares;
      paths.back().push_back(static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin()));
    }
  }
  return paths;
}

JobPathPlan PlanJobPaths(const Topology& topology, const std::vector<RoutableJob>& jobs,
                         const JobPathOptions& options) {
  PathSearch search(topology, jobs, options);
  JobPathPlan plan{.paths = BalancedJobPaths(topology, jobs)};
  plan.gpu_use = plan.gpu_use_balanced = search.Use(plan.paths);
  do {
    search.MoveSingly(&plan);
  } while (search.left() > 0 && (search.TurnJob(&plan) || search.MovePair(&plan)));
  for (uint32_t draw = 0; draw < kDraws && search.left() > 0; ++draw) search.StartAnew(draw, &plan);
  plan.complete = search.left() > 0;
  return plan;
}

}  // namespace weft::planner::flows
