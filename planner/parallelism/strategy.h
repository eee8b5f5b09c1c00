// Layer 1: how a model is split over the GPUs of a job. A plain value: trivially copyable, ordered, without a word about
// what it costs (cost_model.h) or whether it is legal (legality.h).
//
// N = tp · cp · dp · pp GPUs. The expert part of an MoE model is folded into the same GPUs: etp · ep ranks hold
// one copy of a layer's experts, and tp · cp · dp / (etp · ep) copies exist. Source: arXiv 2504.14960, section 3.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "common/units.h"
#include "planner/tasks/schedule_kind.h"
#include "planner/workload/recompute.h"

namespace weft::planner::inline parallelism {

/// How one matrix product is split over the tensor-parallel ranks.
enum class TensorMode : uint8_t {
  k1D,   ///< columns then rows, arXiv 1909.08053
  k2D,   ///< q × q SUMMA, arXiv 2104.05343
  k25D,  ///< q × q × tensor_depth, arXiv 2105.14500
  k3D,   ///< q × q × q, arXiv 2105.14450
};

/// How attention reaches the other context-parallel ranks' keys and values.
enum class ContextMode : uint8_t {
  kRing,       ///< blocks travel round the ring, arXiv 2310.01889
  kAllGather,  ///< keys and values gathered, arXiv 2407.21783
  kUlysses,    ///< sequence outside, heads inside, arXiv 2309.14509
};

/// How gradients become the same on all replicas.
enum class DataSync : uint8_t {
  kRing,             ///< a ring, or a tree where that is faster
  kHierarchical,     ///< inside the node, between nodes, inside the node
  kParameterServer,  ///< servers on host CPUs sum
  kSwitch,           ///< the switches sum, where they can (ClusterSpec::switch_sums)
  kGossip,           ///< sums inside a unit of the outermost tier; units average parameters with a neighbour: arXiv 1705.09056
};

/// What gradients are on the wire.
enum class GradientWire : uint8_t {
  kWhole,  ///< as the program keeps them
  kBf16,
  kFp8,    ///< what rounding takes is kept and added the next time (error feedback): arXiv 1901.09847
};

/// What of ZeRO-3 is the same for all operators.
enum class Sharding : uint8_t {
  kUniform,   ///< all of it
  kOperator,  ///< OSDP: each operator is replicated, kept or sharded, or cut in slices that are: operator_sharding.h
};

/// Which groups lie closest together, fastest first.
enum class RankOrder : uint8_t {
  kTpCpEpDpPp,  ///< Megatron's default
  kTpCpPpDp,    ///< Llama 3's, arXiv 2407.21783: pipeline neighbours nearer than replicas
};

struct Strategy {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, etp = 1, vpp = 1;
  int64_t micro_batch = 1;                  ///< sequences
  int64_t zero_stage = 0;                   ///< 0 to 3
  int64_t shard_group = 0;                  ///< ranks that share one copy of the state; 0: all of dp · cp, less: HSDP
  bool keep_after_forward = false;          ///< ZeRO-3: one gather per iteration, parameters stay until its end
  Recompute recompute = Recompute::kNone;
  int64_t recompute_layers = -1;            ///< of each stage, that recompute; -1: all
  bool sequence_parallel = false;
  TensorMode tensor_mode = TensorMode::k1D;
  int64_t tensor_depth = 1;                 ///< z of k25D
  ContextMode context_mode = ContextMode::kRing;
  DataSync data_sync = DataSync::kRing;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  RankOrder rank_order = RankOrder::kTpCpEpDpPp;
  Bytes bucket_bytes{25 << 20};
  Sharding sharding = Sharding::kUniform;   ///< kOperator: with zero_stage 3
  GradientWire gradient_wire = GradientWire::kWhole;
  int64_t local_steps = 1;                  ///< replicas average their parameters every so many steps (local SGD, arXiv 1805.09767)

  friend auto operator<=>(const Strategy&, const Strategy&) = default;
};
static_assert(std::is_trivially_copyable_v<Strategy>);

/// GPUs that the strategy uses.
constexpr int64_t GpuCount(const Strategy& s) { return s.dp * s.tp * s.pp * s.cp; }

/// Replicas of a layer's experts: tp · cp · dp / (etp · ep). Requires: a legal strategy.
constexpr int64_t ExpertDp(const Strategy& s) { return s.tp * s.cp * s.dp / (s.etp * s.ep); }

/// Whether replicas may differ: training is not what it is with all gradients summed in every step.
constexpr bool ReplicasDiffer(const Strategy& s) { return s.local_steps > 1 || s.data_sync == DataSync::kGossip; }

/// The same, or gradients are rounded on their way.
constexpr bool ChangesTraining(const Strategy& s) { return ReplicasDiffer(s) || s.gradient_wire != GradientWire::kWhole; }

/// Micro-batches of one iteration. Requires: dp · micro_batch divides global_batch.
constexpr int64_t MicroBatches(const Strategy& s, int64_t global_batch) {
  return global_batch / (s.dp * s.micro_batch);
}

/// "1d", "2d", "2.5d", "3d"; "ring", "all-gather", "ulysses"; "ring", "hierarchical", "parameter-server", "switch", "gossip";
/// "tp-cp-ep-dp-pp", "tp-cp-pp-dp"; "uniform", "osdp"; "whole", "bf16", "fp8".
std::string_view TensorModeName(TensorMode mode);
std::string_view ContextModeName(ContextMode mode);
std::string_view DataSyncName(DataSync sync);
std::string_view RankOrderName(RankOrder order);
std::string_view ShardingName(Sharding sharding);
std::string_view GradientWireName(GradientWire wire);
/// The value that the functions above write so; nullopt otherwise.
std::optional<TensorMode> ParseTensorMode(std::string_view text);
std::optional<ContextMode> ParseContextMode(std::string_view text);
std::optional<DataSync> ParseDataSync(std::string_view text);
std::optional<RankOrder> ParseRankOrder(std::string_view text);
std::optional<Sharding> ParseSharding(std::string_view text);
std::optional<GradientWire> ParseGradientWire(std::string_view text);

/// What one GPU holds at its peak.
struct MemoryUse {
  Bytes parameters, gradients, optimizer, activations;
  Bytes transient;      ///< buckets, gathered units, logits, the program's own buffers: what exists only for a while
  Bytes fragmentation;  ///< what the caching allocator cannot give back
  Bytes context;        ///< driver, libraries and communicators, outside the allocator

  /// What the allocator is asked for: torch.cuda.max_memory_allocated().
  Bytes allocated() const { return parameters + gradients + optimizer + activations + transient; }
  /// What the process holds of the device, as nvidia-smi shows it.
  Bytes total() const { return allocated() + fragmentation + context; }
};

}  // namespace weft::planner::parallelism
