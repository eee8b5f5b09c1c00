#include "planner/parallelism/cost_tables.h"

#include <algorithm>

#include "planner/parallelism/collective_time.h"
#include "planner/parallelism/halo_exchange_time.h"
#include "planner/parallelism/partition.h"
#include "planner/parallelism/pipeline_hops.h"
#include "planner/tasks/memory_over_time.h"

namespace weft::planner::inline parallelism {
namespace {

uint64_t Hash(const LayerKey& key) {
  const uint64_t parts[] = {static_cast<uint64_t>(key.tp), static_cast<uint64_t>(key.cp), static_cast<uint64_t>(key.ep),
                            static_cast<uint64_t>(key.etp), static_cast<uint64_t>(key.micro_batch),
                            static_cast<uint64_t>(key.tensor_depth),
                            static_cast<uint64_t>(key.sequence_parallel) | static_cast<uint64_t>(key.tensor_mode) << 1 |
                                static_cast<uint64_t>(key.context_mode) << 4};
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const uint64_t part : parts) {
    hash = (hash ^ part) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

double RecomputedShare(const Strategy& s, double layers) {
  if (s.recompute == Recompute::kNone || layers == 0) return 0;
  return s.recompute_layers < 0 ? 1 : std::min(1.0, static_cast<double>(s.recompute_layers) / layers);
}

const LayerEntry& CostModel::Scratch::Tables::Find(const Impl& impl, const LayerKey& key) {
  LayerEntry& slot = slots[Hash(key) % kSlots];
  if (!slot.used || !(slot.key == key)) slot = impl.MakeEntry(key);
  return slot;
}

int64_t CostModel::Impl::LayersBefore(const Strategy& s, int64_t stage) const {
  if (static_cast<int64_t>(stage_layers.size()) != s.pp) {
    return stage == s.pp ? job.model.layers : StageBegin(job.model.layers, s.pp, stage);
  }
  int64_t before = 0;
  for (int64_t i = 0; i < stage; ++i) before += stage_layers[static_cast<size_t>(i)];
  return before;
}

LayerEntry CostModel::Impl::MakeEntry(const LayerKey& key) const {
  const ModelSpec& model = job.model;
  LayerEntry entry;
  entry.key = key;
  entry.used = true;
  if (model.IsCnn()) {
    MakeCnnEntry(entry);
    return entry;
  }
  entry.edge = ComputeEdgeTime(job, hardware, stack, key);
  const double t = static_cast<double>(key.tp);
  // A grid cuts norms too; one with depth has everything of a layer on each of its layers.
  const double cut = t / static_cast<double>(key.tensor_depth), norm_split = key.tensor_mode == TensorMode::k1D ? 1 : cut;
  const int64_t moe_layers = moe_layers_before.back();
  for (const bool moe : {false, true}) {
    if (moe ? moe_layers == 0 : moe_layers == model.layers) continue;
    int64_t example = 0;
    while (model.IsMoeLayer(example) != moe) ++example;
    const LayerParameters parameters = LayerParametersOf(model, example);
    // Norms, router and the latents' projections are whole on every rank; counted split where they are small.
    const double split = static_cast<double>(parameters.attention + parameters.mlp + parameters.shared) / cut;
    const double whole = static_cast<double>(parameters.router + parameters.modulation) +
                         static_cast<double>(parameters.norms) / norm_split;
    (moe ? entry.moe_dense_parameters : entry.dense_parameters) = split + whole;
    (moe ? entry.moe_norm_parameters : entry.norm_parameters) = whole;
    if (!moe) entry.attention_parameters = static_cast<double>(parameters.attention) / cut + whole;
    if (moe) entry.expert_parameters = static_cast<double>(parameters.routed) / static_cast<double>(key.ep * key.etp);
    (moe ? entry.moe : entry.dense) = ComputeLayerTime(job, hardware, stack, key, moe);
    (moe ? entry.moe_bytes : entry.dense_bytes) = ComputeLayerBytes(job, stack, key, moe).Times(hardware.activations);
  }
  // Tables are split by tp, positions are whole, and so is the final norm without a grid; a tied head's table is counted here too,
  // see Shape().
  const int64_t table = model.vocab * model.hidden;
  const auto edge = [&](int64_t all, bool has_table, double rest_split) {
    const double split = static_cast<double>(has_table ? table : 0);
    return static_cast<double>(table) / t + (static_cast<double>(all) - split) / rest_split;
  };
  entry.embedding_parameters = edge(EmbeddingParameterCount(model), true, 1);
  entry.head_parameters = edge(HeadParameterCount(model), !model.tied_embeddings, norm_split);
  return entry;
}

void CostModel::Impl::MakeCnnEntry(LayerEntry& entry) const {
  // Layers differ, and the table has room for one kind: the mean layer.
  const double count = static_cast<double>(job.model.layers);
  for (int64_t layer = 0; layer < job.model.layers; ++layer) {
    const LayerTime time = HaloExchangeTime(job, hardware, entry.key, layer);
    const LayerBytes bytes = HaloExchangeBytes(job, entry.key, layer);
    entry.dense.forward += 1 / count * time.forward;
    entry.dense.backward_data += 1 / count * time.backward_data;
    entry.dense.backward_weight += 1 / count * time.backward_weight;
    entry.dense_bytes.none += bytes.none / count;
    entry.dense_bytes.selective += bytes.selective / count;
    entry.dense_bytes.full += bytes.full / count;
    entry.dense_parameters += static_cast<double>(LayerParameterCount(job.model, layer)) / count;
  }
}

StageShape CostModel::Impl::Shape(const Strategy& s, const LayerEntry& entry, int64_t stage) const {
  const int64_t begin = LayersBefore(s, stage), end = LayersBefore(s, stage + 1);
  const double moe_layers = static_cast<double>(moe_layers_before[static_cast<size_t>(end)] -
                                              moe_layers_before[static_cast<size_t>(begin)]);
  StageShape shape;
  shape.moe_layers = moe_layers;
  shape.dense_layers = static_cast<double>(end - begin) - moe_layers;
  shape.dense_parameters = shape.dense_layers * entry.dense_parameters + moe_layers * entry.moe_dense_parameters;
  shape.expert_parameters = moe_layers * entry.expert_parameters;
  shape.first = stage == 0;
  shape.last = stage == s.pp - 1;
  if (shape.first) shape.edge_parameters += entry.embedding_parameters;
  // With one stage a tied head is the embedding itself.
  if (shape.last) {
    shape.edge_parameters += entry.head_parameters;
    if (shape.first && job.model.tied_embeddings) {
      shape.edge_parameters -= static_cast<double>(job.model.vocab * job.model.hidden) / static_cast<double>(s.tp);
    }
  }
  // Experts without replicas are whole in any case.
  const double experts = ExpertDp(s) > 1 ? entry.expert_parameters : 0;
  shape.unit_parameters = std::max({shape.dense_layers > 0 ? entry.dense_parameters : 0.0, moe_layers > 0 ? entry.moe_dense_parameters + experts : 0.0,
                                    shape.last ? entry.head_parameters : 0.0});
  return shape;
}

MemoryUse CostModel::Impl::Memory(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                                  std::vector<Holding>* pieces) const {
  StageShape shape = Shape(s, entry, stage);
  // Decided per operator: the least that any decisions need.
  if (s.sharding == Sharding::kOperator) shape.unit_parameters = LeanestUnit(s, entry, shape);
  MemoryUse memory = StageMemory(job, stack, s, state, entry.dense_bytes, entry.moe_bytes, shape, stage, micro_batches, pieces);
  AddOwn(memory, pieces);
  return memory;
}

void CostModel::Impl::AddOwn(MemoryUse& memory, std::vector<Holding>* pieces) const {
  memory.fragmentation = FragmentsOf(hardware.fragmentation - 1, memory.activations + memory.transient);
  const auto hold = [&](std::string_view what, HoldingPart part, FractionalBytes bytes) {
    Hold({.what = what, .part = part, .bytes = bytes.Truncated()}, 1, memory, pieces);
  };
  hold("context", HoldingPart::kContext, hardware.context_bytes);
}

StagePasses CostModel::Impl::LayerPasses(const Strategy& s, const LayerEntry& entry, const StageShape& shape) const {
  const double dense = shape.dense_layers, moe = shape.moe_layers;
  StagePasses passes;
  passes.forward = dense * entry.dense.forward + moe * entry.moe.forward;
  const PassTime weight = dense * entry.dense.backward_weight + moe * entry.moe.backward_weight;
  passes.backward = dense * entry.dense.backward_data + moe * entry.moe.backward_data + weight;
  passes.weight = weight.total();
  const double share = RecomputedShare(s, dense + moe);
  if (s.recompute == Recompute::kFull) passes.backward += share * passes.forward;
  if (s.recompute == Recompute::kSelective) {
    passes.backward += share * (dense * entry.dense.core + moe * entry.moe.core);
  }
  return passes;
}

void CostModel::Impl::AddEdges(const LayerEntry& entry, const StageShape& shape, StagePasses& passes) const {
  if (shape.first) {
    passes.forward += entry.edge.embedding_forward;
    passes.backward += entry.edge.embedding_backward;
  }
  if (shape.last) {
    passes.forward += entry.edge.head_forward;
    passes.backward += entry.edge.head_backward_data + entry.edge.head_backward_weight;
    passes.weight += entry.edge.head_backward_weight.total();
  }
}

StagePasses CostModel::Impl::Passes(const Strategy& s, const LayerEntry& entry, int64_t stage) const {
  const StageShape shape = Shape(s, entry, stage);
  const double layers = shape.dense_layers + shape.moe_layers;
  StagePasses passes = LayerPasses(s, entry, shape);
  if (s.zero_stage >= 2 && s.dp * s.cp > 1 && layers > 0) AddUnits(s, shape, layers, passes);
  AddEdges(entry, shape, passes);
  return passes;
}

StageCost CostModel::Impl::Cost(const Strategy& s, const LayerEntry& entry, int64_t stage, int64_t micro_batches,
                                OperatorSolver& solver, std::vector<StageOperators>* operators,
                                std::vector<Holding>* pieces) const {
  if (s.sharding == Sharding::kOperator) return OperatorCosts(s, entry, stage, micro_batches, solver, operators, pieces);
  StageCost cost;
  cost.passes = Passes(s, entry, stage);
  cost.memory = Memory(s, entry, stage, micro_batches, pieces);
  return cost;
}

// Experts have replicas of their own, and are in some of the layers.
UnitTime CostModel::Impl::UnitOfLayer(const Strategy& s, const StageShape& shape, double layers,
                                      std::vector<Operation>* operations) const {
  UnitTime unit = ComputeUnitTime(hardware, stack, s, state, shape.dense_parameters / layers, operations);
  if (shape.expert_parameters <= 0) return unit;
  const size_t dense = operations == nullptr ? 0 : operations->size();
  const UnitTime experts =
      ComputeUnitTime(hardware, stack, s, state, shape.expert_parameters / shape.moe_layers, operations, /*experts=*/true);
  const double share = shape.moe_layers / layers;
  unit.gather += share * experts.gather;
  unit.scatter += share * experts.scatter;
  if (operations == nullptr) return unit;
  for (size_t i = dense; i < operations->size(); ++i) (*operations)[i].calls = share;
  return unit;
}

// A unit is gathered while the one before it computes.
void CostModel::Impl::AddUnits(const Strategy& s, const StageShape& shape, double layers, StagePasses& passes,
                               std::vector<Operation>* operations) const {
  std::vector<Operation> of_unit;
  UnitTime unit = UnitOfLayer(s, shape, layers, operations == nullptr ? nullptr : &of_unit);
  const Seconds gather = s.zero_stage == 3 && !s.keep_after_forward ? unit.gather : Seconds(0);
  const Seconds first = GathersEachPass(stack, s) ? unit.gather : gather;
  passes.forward_data = layers * ExposedBehind(hardware, first, passes.forward.total() / layers);
  if (GradientsStayWhole(stack, s)) unit.scatter = Seconds(0);  // once per iteration: data_time.h
  const Seconds scatter = stack.overlaps_gradients ? unit.scatter : Seconds(0);
  const Seconds backward = passes.backward.total() / layers;
  const double scattered = ReducesByRound(stack, s) ? 1 / static_cast<double>(s.pp) : 1;  // share of micro-batches
  passes.backward_data = layers * (scattered * (ExposedBehind(hardware, gather + scatter, backward) + unit.scatter - scatter) +
                                   (1 - scattered) * ExposedBehind(hardware, gather, backward));
  // What a pass waits for is shared by those that run in it, by their time.
  const Seconds in_backward = gather + scattered * unit.scatter;
  for (Operation o : of_unit) {
    const bool gathers = o.pass == OperationPass::kForward;
    if (!gathers) o.calls *= unit.scatter > Seconds(0) ? scattered : 0;
    o.calls *= layers;
    o.seconds *= o.calls;
    if (gathers && first > Seconds(0)) {
      o.exposed = passes.forward_data * o.seconds / (layers * first);
      operations->push_back(o);
    }
    if (gathers) o.pass = OperationPass::kData;
    if ((gathers && gather <= Seconds(0)) || o.calls <= 0) continue;
    o.exposed = in_backward > Seconds(0) ? passes.backward_data * o.seconds / (layers * in_backward) : 0;
    operations->push_back(o);
  }
}

Seconds CostModel::Impl::LeastHopTime(const Strategy& s) const {
  const size_t least = LeastHopLeaves(hardware.network, s);
  // NICs may be faster than what is inside a node.
  return least > 0 ? HopTime(s, least) : std::min(HopTime(s, 0), HopTime(s, 1));
}

Seconds CostModel::Impl::HopTime(const Strategy& s, size_t units_left, std::vector<Operation>* operations) const {
  if (s.pp == 1) return Seconds(0);
  const double tokens = static_cast<double>(s.micro_batch * job.sequence) / static_cast<double>(s.cp);
  // Each rank sends its 1/t (sequence parallelism, a grid, or scatter-gather over the NICs, which gathers by NVLink).
  FractionalBytes bytes = hardware.element * tokens * static_cast<double>(job.model.hidden) / static_cast<double>(s.tp);
  if (job.model.IsCnn()) {  // a layer's input, in the mean
    bytes = HaloExchangeBytes(job, KeyOf(s), job.model.layers / 2).full;
  }
  const int64_t stride = HopStride(s);
  const Seconds send = SendTime(hardware.network, stride, units_left, bytes);
  const bool gathers = s.tp > 1 && !s.sequence_parallel && s.tensor_mode == TensorMode::k1D;
  const FractionalBytes whole = bytes * static_cast<double>(s.tp);
  const Seconds gather = gathers ? GatherTime(hardware.network, {s.tp, 1}, whole) : Seconds(0);
  if (operations != nullptr) {
    operations->push_back({.what = "activations", .kind = OperationKind::kSendReceive, .seconds = send.count(),
                           .communicator = CommunicatorKind::kPipeline, .group = {2, stride}, .bytes = bytes.count(),
                           .algorithm = "send", .hides_behind = "computation"});
    if (gathers) {
      operations->push_back({.what = "received activations", .kind = OperationKind::kAllGather, .seconds = gather.count(),
                             .communicator = CommunicatorKind::kTensor, .group = {s.tp, 1}, .bytes = whole.count(),
                             .algorithm = "ring", .hides_behind = "computation"});
    }
  }
  return send + gather;
}

}  // namespace weft::planner::parallelism
