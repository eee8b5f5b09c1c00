// CostModel::Lower: one iteration of a strategy as a list of operations, and of what its stages hold.
#include <algorithm>
#include <tuple>

#include "planner/parallelism/collective_time.h"
#include "planner/parallelism/cost_tables.h"
#include "planner/parallelism/halo_exchange_time.h"
#include "planner/parallelism/partition.h"
#include "planner/parallelism/pipeline_hops.h"

namespace weft::planner::inline parallelism {

namespace {

/// The boundary on the other side of the stage, of as many as there are stages.
int64_t Before(const Strategy& s, int64_t stage) { return stage > 0 ? stage - 1 : s.pp - 1; }

}  // namespace

/// Writes the operations of one stage after another. What a pass waits for is, operation by operation, what the tables of
/// cost_tables.h have added up: both come from the same functions.
class CostModel::Impl::Lowering {
 public:
  Lowering(const Impl& impl, const Strategy& s) : impl_(impl), s_(s), key_(KeyOf(s)), entry_(impl.MakeEntry(key_)) {
    if (impl.job.model.IsCnn()) {
      ListCnnLayers();
      return;
    }
    ComputeEdgeTime(impl.job, impl.hardware, impl.stack, key_, &first_, &last_);
    const int64_t moe_layers = impl.moe_layers_before.back();
    if (moe_layers < impl.job.model.layers) ComputeLayerTime(impl.job, impl.hardware, impl.stack, key_, false, &dense_);
    if (moe_layers > 0) ComputeLayerTime(impl.job, impl.hardware, impl.stack, key_, true, &moe_);
  }

  /// `operators`: the stage's decisions under sharding=osdp.
  std::vector<Operation> Stage(int64_t stage, const StageOperators* operators) {
    out_.clear();
    const StageShape shape = impl_.Shape(s_, entry_, stage);
    const double layers = shape.dense_layers + shape.moe_layers;
    Layers("layers", shape.dense_layers, layers, entry_.dense, dense_);
    Layers("MoE layers", shape.moe_layers, layers, entry_.moe, moe_);
    if (operators != nullptr) {
      Decided(*operators, stage, shape);
    } else {
      if (s_.zero_stage >= 2 && s_.dp * s_.cp > 1 && layers > 0) {
        StagePasses passes = impl_.LayerPasses(s_, entry_, shape);
        impl_.AddUnits(s_, shape, layers, passes, &out_);
      }
      const DataTime data = ComputeDataTime(impl_.hardware, impl_.stack, s_, impl_.state, shape, impl_.job.model.IsCnn(), &out_);
      Compute("optimizer", OperationPass::kOnce, {.compute = data.optimizer}, 1);
    }
    Edges(shape);
    Messages(stage);
    Once(shape, layers, operators);
    return std::move(out_);
  }

 private:
  void ListCnnLayers() {
    // As in the tables: all layers count as their mean.
    const auto count = static_cast<double>(impl_.job.model.layers);
    for (int64_t layer = 0; layer < impl_.job.model.layers; ++layer) {
      std::vector<Operation> own;
      HaloExchangeTime(impl_.job, impl_.hardware, key_, layer, &own);
      for (const Operation& o : own) dense_.push_back(Scaled(o, 1 / count));
    }
  }

  static Operation Scaled(Operation o, double times) {
    o.calls *= times;
    o.seconds *= times;
    o.exposed *= times;
    o.flops *= times;
    return o;
  }

  void Compute(std::string_view what, OperationPass pass, const PassTime& time, double times) {
    const Seconds compute = time.compute * times;
    const Flops flops = time.flops * times;
    if (compute <= Seconds(0) && flops <= Flops(0)) return;
    out_.push_back({.what = what, .pass = pass, .calls = times, .seconds = compute.count(), .exposed = compute.count(),
                    .flops = flops.count()});
  }

  void Layers(std::string_view what, double count, double all_layers, const LayerTime& time, const std::vector<Operation>& communication) {
    if (count <= 0) return;
    Compute(what, OperationPass::kForward, time.forward, count);
    Compute(what, OperationPass::kData, time.backward_data, count);
    Compute(what, OperationPass::kWeight, time.backward_weight, count);
    for (const Operation& o : communication) out_.push_back(Scaled(o, count));
    const double repeated = count * RecomputedShare(s_, all_layers);
    if (repeated <= 0) return;
    const bool full = s_.recompute == Recompute::kFull;
    Compute("recomputation", OperationPass::kData, full ? time.forward : time.core, repeated);
    // Selective recomputation may run gathers again; what was scattered is kept.
    const double tensor = full ? 1 : time.forward.tensor > Seconds(0) ? time.core.tensor / time.forward.tensor : 0;
    for (Operation o : communication) {
      if (o.pass != OperationPass::kForward || (!full && o.communicator != CommunicatorKind::kTensor)) continue;
      o.pass = OperationPass::kData;
      if (const Operation again = Scaled(o, repeated * tensor); again.calls > 0) out_.push_back(again);
    }
  }

  void Edges(const StageShape& shape) {
    if (shape.first) {
      Compute("embedding", OperationPass::kForward, entry_.edge.embedding_forward, 1);
      Compute("embedding", OperationPass::kData, entry_.edge.embedding_backward, 1);
      out_.insert(out_.end(), first_.begin(), first_.end());
    }
    if (shape.last) {
      Compute("head", OperationPass::kForward, entry_.edge.head_forward, 1);
      Compute("head", OperationPass::kData, entry_.edge.head_backward_data, 1);
      Compute("head", OperationPass::kWeight, entry_.edge.head_backward_weight, 1);
      out_.insert(out_.end(), last_.begin(), last_.end());
    }
  }

  /// Sharding per operator: every run of layers as it was decided, embedding and head as under ZeRO-3.
  void Decided(const StageOperators& operators, int64_t stage, StageShape shape) {
    MemoryUse rest;
    const OperatorProblem problem = impl_.Operators(s_, entry_, stage, MicroBatches(s_, impl_.job.global_batch), &rest);
    Seconds optimizer{0};
    for (const OperatorRun& run : operators.runs) {
      std::vector<Operation> own;
      const OperatorCost cost = CostOfLayer(problem, run.moe, run.attention, run.mlp, &own);
      for (const Operation& o : own) out_.push_back(Scaled(o, static_cast<double>(run.layers)));
      optimizer += static_cast<double>(run.layers) * cost.optimizer;
    }
    if (operators.head && operators.head_slices > 1) {
      const OperatorCost head = CostOfHead(problem, operators.head_slices);
      shape.edge_slices = static_cast<double>(impl_.job.model.vocab * impl_.job.model.hidden) / static_cast<double>(s_.tp);
      HeadSlices(OperationPass::kForward, operators.head_slices, shape.edge_slices, head.forward);
      HeadSlices(OperationPass::kData, operators.head_slices, shape.edge_slices, head.backward);
    }
    shape.dense_parameters = shape.expert_parameters = 0;
    const DataTime data = ComputeDataTime(impl_.hardware, impl_.stack, s_, impl_.state, shape, false, &out_);
    Compute("optimizer", OperationPass::kOnce, {.compute = optimizer + data.optimizer}, 1);
  }

  /// The head's table, gathered slice by slice in a pass; exposed is what that takes longer than gathering all of it at once.
  void HeadSlices(OperationPass pass, int64_t slices, double parameters, Seconds exposed) {
    const auto calls = static_cast<double>(slices);
    const Group all = ReplicaGroup(s_);
    const Group group{s_.shard_group > 0 ? s_.shard_group : all.size, all.stride};
    const FractionalBytes bytes = parameters / calls * impl_.state.gathered;
    const Seconds seconds = calls * GatherTime(impl_.hardware.network, group, bytes);
    out_.push_back({.what = "head in slices",
                    .kind = OperationKind::kAllGather,
                    .pass = pass,
                    .calls = calls,
                    .seconds = seconds.count(),
                    .exposed = exposed.count(),
                    .communicator = CommunicatorKind::kData,
                    .group = group,
                    .bytes = bytes.count(),
                    .algorithm = "ring"});
  }

  void Messages(int64_t stage) {
    if (s_.pp == 1) return;
    const int64_t before = Before(s_, stage);
    if (s_.schedule == ScheduleKind::kZbV) {  // turns on its last stage and ends on its first
      if (stage < s_.pp - 1) Handed(stage, 1, 1);
      if (stage > 0) Handed(before, 1, 1);
      return;
    }
    // With chunks the last stage hands to the first as well, but for the last chunk.
    const auto chunks = static_cast<double>(s_.vpp);
    Handed(stage, stage < s_.pp - 1 ? chunks : chunks - 1, 0);
    Handed(before, 0, stage > 0 ? chunks : chunks - 1);
  }

  /// So many messages of each pass over a boundary.
  void Handed(int64_t boundary, double forward, double backward) {
    std::vector<Operation> way;
    impl_.HopTime(s_, HopLeaves(impl_.hardware.network, s_, boundary), &way);
    for (const Operation& o : way) {
      if (forward > 0) out_.push_back(Scaled(o, forward));
      if (backward <= 0) continue;
      Operation gradient = Scaled(o, backward);
      gradient.pass = OperationPass::kData;
      if (gradient.kind == OperationKind::kSendReceive) gradient.what = "activation gradients";
      out_.push_back(gradient);
    }
  }

  /// Layers whose norms' gradients are scattered within the iteration.
  double LayersScattered(double layers, const StageOperators* operators) const {
    if (s_.dp * s_.cp <= 1 || s_.zero_stage < 2 || GradientsStayWhole(impl_.stack, s_)) return 0;
    if (operators == nullptr) return layers;
    double scattered = 0;
    for (const OperatorRun& run : operators->runs) {
      if (run.attention.kept || run.attention.sharded == run.attention.slices) scattered += static_cast<double>(run.layers);
    }
    return scattered;
  }

  double TimesScattered() const {
    const auto micro_batches = static_cast<double>(MicroBatches(s_, impl_.job.global_batch));
    return ReducesByRound(impl_.stack, s_) ? micro_batches / static_cast<double>(s_.pp) : micro_batches;
  }

  /// Small sums that nothing waits for.
  void Once(const StageShape& shape, double layers, const StageOperators* operators) {
    const auto hidden = static_cast<double>(impl_.job.model.hidden), t = static_cast<double>(s_.tp);
    const bool grid = s_.tensor_mode != TensorMode::k1D;
    const ModelSpec& model = impl_.job.model;
    if (s_.sequence_parallel && !grid) {
      const double final_norm = shape.last && model.norm_placement != NormPlacement::kPost ? (model.rms_norm ? 1 : 2) * hidden : 0;
      const double norms = layers > 0 ? static_cast<double>(LayerParametersOf(model, 0).norms) : 0;
      // What is scattered over the replicas, is summed before each time.
      const double often = LayersScattered(layers, operators), times = TimesScattered();
      Sum("norm gradients", CommunicatorKind::kTensor, {s_.tp, 1}, FractionalBytes(4 * (norms * (layers - often) + final_norm)), 1);
      Sum("norm gradients", CommunicatorKind::kTensor, {s_.tp, 1}, FractionalBytes(4 * norms * often), times);
    }
    // Each rank sends its own tokens to experts.
    if (!grid && shape.moe_layers > 0) {
      int64_t routed = 0;
      while (!model.IsMoeLayer(routed)) ++routed;
      const double router = static_cast<double>(LayerParametersOf(model, routed).router);
      const double often = shape.moe_layers * LayersScattered(layers, operators) / layers;
      Sum("router gradients", CommunicatorKind::kTensor, {s_.tp, 1}, FractionalBytes(4 * router * (shape.moe_layers - often)), 1);
      Sum("router gradients", CommunicatorKind::kTensor, {s_.tp, 1}, FractionalBytes(4 * router * often), TimesScattered());
    }
    // A V has embedding and head on one stage.
    if (shape.first != shape.last && model.tied_embeddings && s_.schedule != ScheduleKind::kZbV) {
      Sum("tied embedding", CommunicatorKind::kEmbedding, {2, HopStride(s_) * (s_.pp - 1)},
          impl_.state.gradient_sent * static_cast<double>(model.vocab) * hidden / t, 1);
    }
    // The loss, and the norm: replicas that differ have one each.
    const bool differ = ReplicasDiffer(s_);
    Sum("gradient norm", CommunicatorKind::kWorld, {GpuCount(s_), 1}, FractionalBytes(8), differ ? 1 : 2);
    if (differ) Sum("gradient norm", CommunicatorKind::kWorld, {GpuCount(s_) / s_.dp, 1}, FractionalBytes(8), 1);
  }

  void Sum(std::string_view what, CommunicatorKind kind, Group group, FractionalBytes bytes, double calls) {
    if (group.size <= 1 || bytes.count() <= 0) return;
    const GroupNetwork& network = impl_.hardware.network;
    out_.push_back({.what = what, .kind = OperationKind::kAllReduce, .pass = OperationPass::kOnce, .calls = calls,
                    .seconds = (calls * AllReduceTime(network, group, bytes)).count(), .communicator = kind, .group = group,
                    .bytes = bytes.count(),
                    .algorithm = AlgorithmName(AllReduceAlgorithm(network, group, bytes))});
  }

  const Impl& impl_;
  const Strategy& s_;
  const LayerKey key_;
  const LayerEntry entry_;
  std::vector<Operation> dense_, moe_, first_, last_;  // communication of one layer, embedding, head
  std::vector<Operation> out_;
};

OperationList CostModel::Lower(const Strategy& s, Scratch& scratch) const {
  const Impl& impl = *impl_;
  const int64_t micro_batches = MicroBatches(s, impl.job.global_batch);
  OperationList list{.schedule = s.schedule, .stages = s.pp, .chunks = s.vpp, .micro_batches = micro_batches,
                     .ranks_per_stage = GpuCount(s) / s.pp};
  const std::vector<StageOperators> operators = Operators(s, scratch);
  const LayerEntry& entry = scratch.tables_->Find(impl, KeyOf(s));
  Impl::Lowering lowering(impl, s);
  std::vector<std::tuple<double, double, bool, bool, size_t, size_t, StageOperators>> kinds;  // of `list.classes`
  for (int64_t stage = 0; stage < s.pp; ++stage) {
    const int64_t begin = impl.LayersBefore(s, stage), end = impl.LayersBefore(s, stage + 1);
    const double moe = static_cast<double>(impl.moe_layers_before[static_cast<size_t>(end)] - impl.moe_layers_before[static_cast<size_t>(begin)]);
    const StageOperators* own = operators.empty() ? nullptr : &operators[static_cast<size_t>(stage)];
    auto kind = std::tuple(static_cast<double>(end - begin), moe, stage == 0, stage == s.pp - 1,
                           HopLeaves(impl.hardware.network, s, Before(s, stage)), HopLeaves(impl.hardware.network, s, stage),
                           own == nullptr ? StageOperators() : *own);
    const auto known = std::find(kinds.begin(), kinds.end(), kind);
    if (known != kinds.end()) {
      list.classes[static_cast<size_t>(known - kinds.begin())].stages.push_back(stage);
      continue;
    }
    kinds.push_back(std::move(kind));
    StageOperations made{.stages = {stage}, .operations = lowering.Stage(stage, own), .memory = {},
                         .fragmentation = impl.hardware.fragmentation - 1};
    impl.Cost(s, entry, stage, micro_batches, scratch.tables_->operators, nullptr, &made.memory);
    list.classes.push_back(std::move(made));
  }
  return list;
}

}  // namespace weft::planner::parallelism
