// Data parallelism: every rank holds the whole model, takes its share of the batch, and all-reduces the gradients in
// buckets behind the last micro-batch's backward. Memory and time by closed forms over the per-layer costs.
//
// Leaves out: input pipeline, evaluation, checkpoints; memory-bound kernels but the optimizer.
#pragma once

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/fabric/cluster_spec.h"
#include "planner/parallelism/strategy.h"
#include "planner/tasks/timeline.h"
#include "planner/workload/job_spec.h"

namespace weft::planner {

/// All divisors of n, ascending. Requires: n ≥ 1. Complexity: O(√n).
std::vector<int64_t> Divisors(int64_t n);

/// Bytes that one rank holds. State per parameter: bf16 18 bytes (parameter 2, gradient 4, fp32 copy and two moments 12),
/// fp32 16 (4, 4, 8). With full recomputation one layer's activations exist while it is recomputed.
/// Source: state, arXiv 2205.05198 figure 1 (Megatron's default); activations, LayerCosts.
MemoryUse DataParallelMemory(const JobSpec& job, int64_t micro_batch, Recompute recompute);

/// What of the device's memory a job may use.
Bytes UsableMemory(const DeviceSpec& device);

/// Bytes of gradient that one rank all-reduces per iteration: 4 per parameter.
Bytes GradientBytes(const JobSpec& job);

/// An all-reduce of S bytes over `ranks` GPUs that fill nodes one after another costs latency + wire(S).
struct AllReduceCost {
  Seconds step_latency{0};  ///< as a flat ring's: 2(n-1) of them are the latency
  BitsPerSecond rate;       ///< as a flat ring's: 2(n-1)/n S at it are the time on the wire
  bool hierarchical = false;
};

/// The faster for S bytes of the flat ring (its slowest hop: NVLink or the node's NICs together, which as many rings
/// share as there are NICs) and the hierarchical all-reduce (reduce-scatter in the node, all-reduce between equal GPUs of
/// the nodes, all-gather in the node), both expressed as a ring. Requires: ranks ≥ 2, and whole nodes for hierarchical.
/// Source: ring costs, Patarasuk and Yuan 2009; hierarchy, BlueConnect, MLSys 2019, section 4.
AllReduceCost ChooseAllReduce(const ClusterSpec& cluster, int64_t ranks, Bytes bytes);

/// One strategy's time.
struct DataParallelTime {
  Seconds compute{0};            ///< of an iteration, communication off
  Seconds after_backward{0};     ///< optimizer
  IterationPrediction predicted;
  Bytes bucket;                  ///< given, or the best of a fixed list that ends at all gradients
  AllReduceCost all_reduce;      ///< of one such bucket
};

/// Predicts an iteration of `strategy` (dp, micro_batch, recompute); its bucket_bytes count only if `fix_bucket`.
/// Ties between bucket sizes go to the larger one: fewer calls. Requires: a legal strategy.
DataParallelTime PredictDataParallel(const JobSpec& job, const ClusterSpec& cluster, const Strategy& strategy,
                                     bool fix_bucket);

/// How many bucket sizes PredictDataParallel compares.
int64_t BucketChoices();

/// No iteration with `dp` ranks and `recompute` is below this: the larger of compute at the device's efficiency, all
/// kernels free, and the gradient bytes that must leave the slowest cut (co-design bound: 2(N-1)/N S per node).
Seconds DataParallelBound(const JobSpec& job, const ClusterSpec& cluster, int64_t dp, Recompute recompute);

/// Model FLOPs of one iteration: forward and backward, recomputation not counted.
Flops ModelFlops(const JobSpec& job);

FlopsPerSecond PeakRate(const DeviceSpec& device, Precision precision);

}  // namespace weft::planner
