#include "planner/plan/group_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "common/parse_units.h"
#include "planner/parallelism/divisors.h"
#include "planner/parallelism/stage_partition.h"
#include "planner/tasks/resharding.h"

namespace weft::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMostMoves = 64;
constexpr double kGradientBytes = 4;

ClusterSpec OneGroup(const ClusterSpec& cluster, const NodeGroup& group) {
  return MakeCluster(cluster.name + "/" + group.name, {group}, cluster.network_efficiency);
}

/// Per node and direction, and the latency, between groups.
BitsPerSecond BetweenRate(const ClusterSpec& cluster) {
  if (cluster.between_groups_rate.value() > 0) return cluster.between_groups_rate * cluster.network_efficiency;
  BitsPerSecond least = cluster.groups.front().nic_rate;
  for (const NodeGroup& group : cluster.groups) least = std::min(least, group.nic_rate);
  return least * cluster.network_efficiency;
}
Seconds BetweenLatency(const ClusterSpec& cluster) {
  Seconds longest = cluster.between_groups_latency;
  for (const NodeGroup& group : cluster.groups) {
    if (cluster.between_groups_latency.count() == 0) longest = std::max(longest, group.nic_latency);
  }
  return longest;
}

/// Ring all-reduce of all gradients between the groups, spread over the nodes of the smallest.
Seconds ExchangeTime(const JobSpec& job, const ClusterSpec& cluster) {
  const auto n = static_cast<double>(cluster.groups.size());
  int64_t nodes = cluster.groups.front().nodes;
  for (const NodeGroup& group : cluster.groups) nodes = std::min(nodes, group.nodes);
  const double bytes = kGradientBytes * static_cast<double>(ParameterCount(job.model)) / static_cast<double>(nodes);
  return Seconds(2 * (n - 1) * (BetweenLatency(cluster).count() + bytes / n / BetweenRate(cluster).bytes_per_second()));
}

/// The best plan of each group for a share of the batch, each found once.
class Shares {
 public:
  Shares(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options)
      : job_(job), cluster_(cluster), options_(options), found_(cluster.groups.size()) {
    options_.top = 1;
    options_.front_slack = 0;
  }

  /// Seconds of one iteration of `group` with `sequences`; infinity if that is not possible.
  double Time(size_t group, int64_t sequences) {
    if (sequences < 1) return kInfinity;
    const auto [at, is_new] = found_[group].try_emplace(sequences);
    if (is_new) {
      JobSpec part = job_;
      part.gpus = 0;
      part.global_batch = sequences;
      const Result<PlanAnswer> answer = Plan(part, OneGroup(cluster_, cluster_.groups[group]), options_);
      if (answer && !answer->plans.empty()) at->second = answer->plans.front();
    }
    return at->second ? at->second->predicted.iteration.count() : kInfinity;
  }
  const JobPlan& PlanOf(size_t group, int64_t sequences) const { return *found_[group].at(sequences); }

 private:
  const JobSpec& job_;
  const ClusterSpec& cluster_;
  PlanOptions options_;
  std::vector<std::map<int64_t, std::optional<JobPlan>>> found_;
};

/// In proportion to throughput, in steps of `unit`; the last group takes what is left.
std::vector<int64_t> Proportional(Shares& shares, const JobSpec& job, size_t groups, int64_t unit) {
  std::vector<double> rate(groups, 0);
  const int64_t even = std::max<int64_t>(1, job.global_batch / static_cast<int64_t>(groups) / unit) * unit;
  for (size_t g = 0; g < groups; ++g) {
    const double time = shares.Time(g, even);
    rate[g] = time < kInfinity ? static_cast<double>(even) / time : 0;
  }
  const double all = std::accumulate(rate.begin(), rate.end(), 0.0);
  if (all == 0) return {};
  std::vector<int64_t> sequences(groups, 0);
  int64_t left = job.global_batch;
  for (size_t g = 0; g + 1 < groups; ++g) {
    const double ideal = static_cast<double>(job.global_batch) * rate[g] / all;
    sequences[g] = std::min(left, static_cast<int64_t>(ideal / static_cast<double>(unit) + 0.5) * unit);
    left -= sequences[g];
  }
  sequences.back() = left;
  return sequences;
}

double Slowest(Shares& shares, const std::vector<int64_t>& sequences, size_t* which = nullptr) {
  double slowest = 0;
  for (size_t g = 0; g < sequences.size(); ++g) {
    const double time = shares.Time(g, sequences[g]);
    if (time <= slowest) continue;
    slowest = time;
    if (which != nullptr) *which = g;
  }
  return slowest;
}

std::optional<GroupPlan> PlanShares(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options) {
  const size_t groups = cluster.groups.size();
  Shares shares(job, cluster, options);
  std::vector<int64_t> best;
  double least = kInfinity;
  // Shares that many replicas divide first; finer steps then.
  for (int64_t unit = std::max<int64_t>(1, job.global_batch / 8); unit >= 1; unit /= 2) {
    if (job.global_batch % unit != 0) continue;
    std::vector<int64_t> start = Proportional(shares, job, groups, unit);
    if (start.empty()) continue;
    for (int move = 0; move < kMostMoves; ++move) {
      size_t slow = 0;
      const double time = Slowest(shares, start, &slow);
      if (time < least) {
        least = time;
        best = start;
      }
      double better = time;
      std::vector<int64_t> next;
      for (size_t to = 0; to < groups; ++to) {
        if (to == slow || start[slow] <= unit) continue;
        std::vector<int64_t> moved = start;
        moved[slow] -= unit;
        moved[to] += unit;
        const double moved_time = Slowest(shares, moved);
        if (moved_time >= better) continue;
        better = moved_time;
        next = std::move(moved);
      }
      if (next.empty()) break;
      start = std::move(next);
    }
    if (unit <= job.global_batch / 64) break;
  }
  if (least == kInfinity) return std::nullopt;
  const Seconds exchange = ExchangeTime(job, cluster);
  GroupPlan plan{.iteration = Seconds(least) + exchange, .groups = {}, .why = {}};
  for (size_t g = 0; g < groups; ++g) {
    const JobPlan& part = shares.PlanOf(g, best[g]);
    plan.groups.push_back({.name = cluster.groups[g].name, .gpus = cluster.groups[g].gpus(), .sequences = best[g],
                           .layers = {}, .strategy = part.strategy, .time = part.predicted.iteration,
                           .memory = part.predicted.memory});
    plan.why.push_back(fmt::format("group {}: {} of {} sequences on {} {}, {}: {}", cluster.groups[g].name, best[g],
                                   job.global_batch, cluster.groups[g].gpus(), cluster.groups[g].device.name,
                                   DescribeStrategy(part.strategy), FormatDuration(part.predicted.iteration)));
  }
  plan.why.push_back(fmt::format("between the groups: gradients in {}, not hidden", FormatDuration(exchange)));
  return plan;
}

/// One layer and the edges of the model on one kind of machine, per micro-batch.
struct GroupCosts {
  double layer = 0, edges = 0;                  // seconds
  double layer_exchange = 0;                    // of gradients, seconds per iteration
  double layer_state = 0, layer_activations = 0, edge_memory = 0;  // bytes
  double usable = 0;
};

/// From two models that differ by their layers alone. nullopt if `s` is not legal there.
std::optional<GroupCosts> MeasureGroup(const JobSpec& job, const ClusterSpec& cluster, const Strategy& s) {
  Estimate estimates[2];
  GroupCosts costs;
  for (int i = 0; i < 2; ++i) {
    JobSpec part = job;
    part.gpus = s.tp * s.dp;
    part.model.layers = i + 1;
    part.global_batch = s.dp * s.micro_batch;
    const Result<CostModel> model = CostModel::Make(part, cluster);
    if (!model || !model->IsLegal(s)) return std::nullopt;
    CostModel::Scratch scratch;
    estimates[i] = model->EvaluateSimulated(s, scratch);
    costs.usable = static_cast<double>(model->usable_memory().count());
  }
  const auto pass = [](const Estimate& e) { return (e.compute + e.tensor).count(); };
  const auto state = [](const MemoryUse& m) {
    return static_cast<double>((m.parameters + m.gradients + m.optimizer).count());
  };
  costs.layer = pass(estimates[1]) - pass(estimates[0]);
  costs.edges = std::max(0.0, pass(estimates[0]) - costs.layer);
  costs.layer_exchange = std::max(0.0, (estimates[1].data - estimates[0].data).count());
  costs.layer_state = state(estimates[1].memory) - state(estimates[0].memory);
  costs.layer_activations =
      static_cast<double>((estimates[1].memory.activations - estimates[0].memory.activations).count());
  costs.edge_memory = std::max(0.0, static_cast<double>(estimates[0].memory.total().count()) - costs.layer_state -
                                        costs.layer_activations);
  return costs;
}

constexpr size_t kExactSlices = 4;  // few, as it is asked for every candidate

/// A stage's GPUs as hosts × devices, and the tokens of its micro-batches cut over all of them.
MeshLayout StageMesh(const NodeGroup& group, const Strategy& s) {
  const int64_t gpus = s.tp * s.dp, devices = std::gcd(gpus, group.gpus_per_node);
  return {.hosts = gpus / devices, .devices = devices, .host_dimension = 0, .device_dimension = 0};
}

/// How long the activations of a micro-batch take from a stage on nodes of `from` to one on nodes of `to`: every rank has its
/// part of the tokens, nodes send and receive all parts of their GPUs, and nodes of two sizes wait for each other as
/// planner/tasks/resharding.h schedules it.
Result<Seconds> StageHop(const JobSpec& job, const ClusterSpec& cluster, const NodeGroup& from, const NodeGroup& to, const Strategy& s) {
  const int64_t gpus = s.tp * s.dp, tokens = s.dp * s.micro_batch * job.sequence;
  ReshardProblem problem{.shape = {(tokens + gpus - 1) / gpus * gpus, job.model.hidden},
                         .element_bytes = static_cast<int64_t>(StorageBytes(job.precision)),
                         .from = StageMesh(from, s), .to = StageMesh(to, s)};
  // What is alike is scheduled once: the hosts that the nodes of both sizes fill together.
  const int64_t alike = std::gcd(problem.from.hosts, problem.to.hosts);
  problem.from.hosts /= alike;
  problem.to.hosts /= alike;
  problem.shape[0] /= alike;
  const bool same = from.name == to.name, node = same && gpus < from.gpus_per_node;  // neighbours share one
  const BitsPerSecond own = (node ? from.intra_node_rate : from.nic_rate) * cluster.network_efficiency;
  const ReshardNetwork network{.nic = same ? own : BetweenRate(cluster),
                               .local = std::min(from.intra_node_rate, to.intra_node_rate),
                               .latency = node ? from.intra_latency : same ? from.nic_latency : BetweenLatency(cluster)};
  WEFT_ASSIGN_OR_RETURN(const std::vector<ReshardSlice> slices, CutSlices(problem));
  std::vector<Seconds> durations;
  for (const ReshardSlice& slice : slices) {
    const auto receivers = static_cast<int64_t>(slice.receivers.size());
    const ReshardMethod method = BestReshardMethod(slice.bytes, receivers, slice.devices, network);
    durations.push_back(SliceTime(method, slice.bytes, receivers, slice.devices, network));
  }
  WEFT_ASSIGN_OR_RETURN(const ReshardSchedule schedule, ScheduleSlices(slices, durations, kExactSlices));
  return schedule.makespan;
}

/// What messages between stages add to plain 1F1B; `group_of` says which group's nodes each stage is on. Source: as
/// planner/tasks/pipeline_bound.h, with the mean of the hops.
double Messages(const JobSpec& job, const ClusterSpec& cluster, const Strategy& s, const std::vector<size_t>& group_of,
                int64_t micro_batches) {
  const auto p = static_cast<double>(group_of.size()), m = static_cast<double>(micro_batches);
  std::map<std::pair<size_t, size_t>, double> known;
  double hops = 0;
  for (size_t stage = 0; stage + 1 < group_of.size(); ++stage) {
    const auto [at, added] = known.try_emplace({group_of[stage], group_of[stage + 1]}, kInfinity);
    if (added) {
      const auto hop = StageHop(job, cluster, cluster.groups[group_of[stage]], cluster.groups[group_of[stage + 1]], s);
      if (hop) at->second = hop->count();
    }
    hops += at->second;
  }
  return group_of.size() == 1 ? 0 : 2 * hops / (p - 1) * (m * (p - 1) / p + std::max(0.0, p - 2));
}

/// One pipeline with these degrees in every group; infinite if it is not possible.
GroupPlan PlanOnePipeline(const JobSpec& job, const ClusterSpec& cluster, const Strategy& s) {
  GroupPlan plan{.iteration = Seconds(kInfinity), .groups = {}, .why = {}};
  std::vector<GroupCosts> costs;
  std::vector<size_t> group_of;
  for (size_t g = 0; g < cluster.groups.size(); ++g) {
    const NodeGroup& group = cluster.groups[g];
    if (group.gpus() % (s.tp * s.dp) != 0 || s.tp > group.gpus_per_node) return plan;
    const auto measured = MeasureGroup(job, OneGroup(cluster, group), s);
    if (!measured) return plan;
    costs.push_back(*measured);
    group_of.insert(group_of.end(), static_cast<size_t>(group.gpus() / (s.tp * s.dp)), g);
  }
  const auto stages = static_cast<int64_t>(group_of.size());
  const int64_t micro_batches = job.global_batch / (s.dp * s.micro_batch);
  const StagePartition cut =
      PartitionStages({job.model.layers, stages, micro_batches}, [&](int64_t stage, int64_t, int64_t count) {
        const GroupCosts& c = costs[group_of[static_cast<size_t>(stage)]];
        const auto layers = static_cast<double>(count);
        const double edge = (stage == 0 || stage == stages - 1) ? 1 : 0;
        const double held = static_cast<double>(std::min(micro_batches, stages - stage));
        const double memory = layers * (c.layer_state + held * c.layer_activations) + edge * c.edge_memory;
        // The head is what the edges cost; the embedding next to nothing.
        return memory > c.usable ? kInfinity : layers * c.layer + (stage == stages - 1 ? c.edges : 0);
      });
  if (!cut.feasible) return plan;
  double exchange = 0;
  for (size_t i = 0; i < group_of.size(); ++i) {
    exchange = std::max(exchange, static_cast<double>(cut.layers[i]) * costs[group_of[i]].layer_exchange);
  }
  plan.iteration = Seconds(cut.iteration + exchange + Messages(job, cluster, s, group_of, micro_batches));
  for (size_t g = 0; g < cluster.groups.size(); ++g) {
    GroupShare share{.name = cluster.groups[g].name, .gpus = cluster.groups[g].gpus(), .sequences = job.global_batch,
                     .layers = {}, .strategy = s, .time = plan.iteration, .memory = {}};
    share.strategy.pp = stages;
    for (size_t i = 0; i < group_of.size(); ++i) {
      if (group_of[i] == g) share.layers.push_back(cut.layers[i]);
    }
    plan.why.push_back(fmt::format("group {}: stages of {} layers on {} {}", share.name, fmt::join(share.layers, ", "),
                                   share.gpus, cluster.groups[g].device.name));
    plan.groups.push_back(std::move(share));
  }
  plan.why.push_back(fmt::format("one pipeline of {} stages through all groups: {}", stages, DescribeStrategy(s)));
  return plan;
}

std::optional<GroupPlan> PlanPipelines(const JobSpec& job, const ClusterSpec& cluster, const PlanOptions& options) {
  std::optional<GroupPlan> best;
  int64_t common = 0;
  for (const NodeGroup& group : cluster.groups) common = std::gcd(common, group.gpus());
  for (const int64_t tp : Divisors(common)) {
    for (const int64_t dp : Divisors(common / tp)) {
      if (job.global_batch % dp != 0) continue;
      for (const int64_t micro_batch : Divisors(job.global_batch / dp)) {
        for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
          Strategy s;
          s.tp = tp;
          s.dp = dp;
          s.micro_batch = micro_batch;
          s.sequence_parallel = tp > 1;
          s.zero_stage = dp > 1 ? 1 : 0;
          s.recompute = recompute;
          Strategy whole = s;
          whole.pp = cluster.TotalGpus() / (tp * dp);
          if (micro_batch > 8 || !Agrees(whole, options.fix) || !Runs(options.framework, {job, cluster, whole})) continue;
          GroupPlan plan = PlanOnePipeline(job, cluster, s);
          if (plan.iteration.count() < kInfinity && (!best || plan.iteration < best->iteration)) best = std::move(plan);
        }
      }
    }
  }
  return best;
}

}  // namespace

Result<std::optional<GroupPlan>> PlanGroups(const JobSpec& job, const ClusterSpec& cluster,
                                            const PlanOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckFixed(options.fix));
  if (job.measured_compute) return std::nullopt;
  std::optional<GroupPlan> shares = PlanShares(job, cluster, options);
  if (job.model.IsMoe() || job.model.IsCnn()) return shares;
  std::optional<GroupPlan> pipeline = PlanPipelines(job, cluster, options);
  if (!shares || (pipeline && pipeline->iteration < shares->iteration)) return pipeline;
  return shares;
}

}  // namespace weft::planner
