#include "planner/parallelism/data_parallel.h"

#include <algorithm>
#include <array>

#include "planner/collectives/ring.h"

namespace weft::planner {
namespace {

using namespace literals;

constexpr int64_t kGradientBytes = 4;
// Read and written per parameter by Adam: gradient 4, master and moments 12 each way, parameter 2.
constexpr double kOptimizerTraffic = 30;
// Kernels of one transformer layer, forward: four matrices, attention, two norms, activation, two residual sums, masks.
constexpr double kKernelsPerLayer = 12;

constexpr std::array kBuckets = {400_MiB, 200_MiB, 100_MiB, 50_MiB, 25_MiB, 10_MiB, 5_MiB, 2_MiB, 1_MiB};

int ElementBytes(Precision precision) { return precision == Precision::kFp32 ? 4 : 2; }

FlopsPerSecond LayerRate(const JobSpec& job, const DeviceSpec& device) {
  return PeakRate(device, job.precision) * device.gemm_efficiency;
}

Flops Forward(const JobSpec& job, int64_t micro_batch) {
  Flops forward;
  for (const LayerCost& layer :
       LayerCosts(job.model, job.sequence, micro_batch, ElementBytes(job.precision), Recompute::kNone)) {
    forward += layer.forward;
  }
  return forward;
}

/// Forward time of one micro-batch: work, or the launch of its kernels where that takes longer.
Seconds ForwardTime(const JobSpec& job, const DeviceSpec& device, int64_t micro_batch) {
  Seconds time{0};
  for (const LayerCost& layer :
       LayerCosts(job.model, job.sequence, micro_batch, ElementBytes(job.precision), Recompute::kNone)) {
    const Seconds work = layer.forward / LayerRate(job, device);
    time += layer.forward.count() > 0 ? std::max(work, device.kernel_launch * kKernelsPerLayer) : Seconds(0);
  }
  return time;
}

Seconds OptimizerTime(const JobSpec& job, const DeviceSpec& device) {
  const double traffic = kOptimizerTraffic * static_cast<double>(ParameterCount(job.model));
  return Seconds(traffic / device.memory_rate.bytes_per_second());
}

double RecomputeForwards(Recompute recompute) { return recompute == Recompute::kFull ? 1 : 0; }

/// The parts of an iteration without communication.
struct ComputeParts {
  Seconds before_last_backward{0};
  Seconds last_backward{0};  // of the last micro-batch, in which gradients become final
  Seconds optimizer{0};
  Seconds total() const { return before_last_backward + last_backward + optimizer; }
};

ComputeParts Compute(const JobSpec& job, const DeviceSpec& device, const Strategy& strategy) {
  const double micro_batches =
      static_cast<double>(job.global_batch) / static_cast<double>(strategy.dp * strategy.micro_batch);
  const Seconds forward = ForwardTime(job, device, strategy.micro_batch);
  const Seconds backward = forward * (2 + RecomputeForwards(strategy.recompute));
  ComputeParts parts{(micro_batches - 1) * (forward + backward) + forward, backward, OptimizerTime(job, device)};
  if (job.measured_compute) {
    // Measured with all GPUs of the job; fewer ranks have more of the batch each. Proportions stay as modelled.
    const double more = static_cast<double>(job.gpus) / static_cast<double>(strategy.dp);
    const double scale = *job.measured_compute * more / parts.total();
    parts = {parts.before_last_backward * scale, parts.last_backward * scale, parts.optimizer * scale};
  }
  return parts;
}

Seconds RingCost(const AllReduceCost& cost, int64_t ranks, Bytes bytes) {
  return RingTime(Collective::kAllReduce, static_cast<int32_t>(ranks), bytes, cost.rate, cost.step_latency);
}

/// Reduce-scatter and all-gather inside nodes of g, all-reduce between m nodes: latencies and wire times add; both are
/// then written as the flat ring of n = g·m ranks that takes as long.
AllReduceCost Hierarchical(const ClusterSpec& cluster, int64_t ranks) {
  const double n = static_cast<double>(ranks), g = static_cast<double>(cluster.gpus_per_node), m = n / g;
  const double intra = cluster.intra_node_rate.value() * cluster.network_efficiency;
  const double nic = cluster.nic_rate.value() * cluster.network_efficiency;
  const double latency =
      2 * (g - 1) * cluster.intra_latency.count() + 2 * (m - 1) * cluster.nic_latency.count();
  // Per bit of S: (g-1)/g twice over NVLink; each GPU's 1/g share over its g-th of the NICs.
  const double wire = 2 * (g - 1) / g / intra + 2 * (m - 1) / m / nic;
  return {Seconds(latency / (2 * (n - 1))), BitsPerSecond(2 * (n - 1) / n / wire), true};
}

}  // namespace

std::vector<int64_t> Divisors(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

MemoryUse DataParallelMemory(const JobSpec& job, int64_t micro_batch, Recompute recompute) {
  const int element = ElementBytes(job.precision);
  const Bytes parameters(ParameterCount(job.model));
  MemoryUse memory{.parameters = parameters * element,
                   .gradients = parameters * kGradientBytes,
                   .optimizer = parameters * (job.precision == Precision::kFp32 ? 8 : 12)};
  for (const LayerCost& layer : LayerCosts(job.model, job.sequence, micro_batch, element, recompute)) {
    memory.activations += layer.activations;
  }
  if (recompute == Recompute::kFull) {
    memory.activations += LayerCosts(job.model, job.sequence, micro_batch, element)[1].activations;
  }
  return memory;
}

Bytes UsableMemory(const DeviceSpec& device) { return device.memory - device.reserved; }

Bytes GradientBytes(const JobSpec& job) { return Bytes(ParameterCount(job.model)) * kGradientBytes; }

AllReduceCost ChooseAllReduce(const ClusterSpec& cluster, int64_t ranks, Bytes bytes) {
  const int64_t g = std::min(cluster.gpus_per_node, ranks);
  const double efficiency = cluster.network_efficiency;
  if (ranks <= g) return {cluster.intra_latency, cluster.intra_node_rate * efficiency, false};
  // Each node's ring has g-1 hops inside and one out.
  const Seconds latency = (cluster.intra_latency * static_cast<double>(g - 1) + cluster.nic_latency) / static_cast<double>(g);
  const BitsPerSecond slowest = g > 1 ? std::min(cluster.intra_node_rate, cluster.nic_rate) : cluster.nic_rate;
  const AllReduceCost flat{latency, slowest * efficiency, false};
  if (g == 1 || ranks % g != 0) return flat;
  const AllReduceCost two_levels = Hierarchical(cluster, ranks);
  return RingCost(two_levels, ranks, bytes) < RingCost(flat, ranks, bytes) ? two_levels : flat;
}

DataParallelTime PredictDataParallel(const JobSpec& job, const ClusterSpec& cluster, const Strategy& strategy,
                                     bool fix_bucket) {
  const ComputeParts parts = Compute(job, cluster.device, strategy);
  DataParallelTime best{.compute = parts.total(), .after_backward = parts.optimizer};
  DataParallelIteration iteration{.compute = parts.total(), .after_backward = parts.optimizer,
                                  .ranks = static_cast<int>(strategy.dp)};
  const Bytes gradients = GradientBytes(job);
  bool first = true;
  const auto consider = [&](Bytes bucket) {
    const AllReduceCost cost = strategy.dp > 1 ? ChooseAllReduce(cluster, strategy.dp, std::min(bucket, gradients))
                                               : AllReduceCost{Seconds(0), cluster.intra_node_rate, false};
    iteration.step_latency = cost.step_latency;
    iteration.buckets = MakeBuckets(gradients, bucket, parts.before_last_backward, parts.last_backward);
    const IterationPrediction predicted = PredictIteration(iteration, cost.rate);
    if (!first && predicted.iteration >= best.predicted.iteration) return;
    first = false;
    best.predicted = predicted;
    best.bucket = bucket;
    best.all_reduce = cost;
  };
  if (fix_bucket || strategy.dp == 1) {
    consider(strategy.bucket_bytes);
  } else {
    // A bucket is never larger than what there is to exchange.
    for (const Bytes bucket : kBuckets) consider(std::min(bucket, gradients));
  }
  return best;
}

int64_t BucketChoices() { return static_cast<int64_t>(kBuckets.size()); }

Seconds DataParallelBound(const JobSpec& job, const ClusterSpec& cluster, int64_t dp, Recompute recompute) {
  const double share = static_cast<double>(job.global_batch) / static_cast<double>(dp);
  const Seconds sequence = Forward(job, 1) / LayerRate(job, cluster.device);
  Seconds compute = sequence * share * (3 + RecomputeForwards(recompute)) + OptimizerTime(job, cluster.device);
  if (job.measured_compute) {
    compute = *job.measured_compute * (static_cast<double>(job.gpus) / static_cast<double>(dp));
  }
  if (dp == 1) return compute;
  const double n = static_cast<double>(dp);
  const double nodes = std::max(1.0, std::ceil(n / static_cast<double>(cluster.gpus_per_node)));
  // One node: each rank sends 2(n-1)/n S to its neighbours. More: each node sends 2(m-1)/m S, in the mean.
  const double volume = nodes > 1 ? 2 * (nodes - 1) / nodes : 2 * (n - 1) / n;
  const BitsPerSecond rate = (nodes > 1 ? cluster.nic_rate : cluster.intra_node_rate) * cluster.network_efficiency;
  return std::max(compute, volume * (GradientBytes(job) / rate));
}

Flops ModelFlops(const JobSpec& job) { return Forward(job, 1) * (3 * static_cast<double>(job.global_batch)); }

FlopsPerSecond PeakRate(const DeviceSpec& device, Precision precision) {
  return device.Peak(precision);
}

}  // namespace weft::planner
