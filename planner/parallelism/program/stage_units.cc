// The parameters of a stage: its blocks, and which of them are exchanged together.
#include <algorithm>
#include <tuple>

#include "planner/parallelism/partition.h"
#include "planner/parallelism/program/stage_program.h"
#include "planner/tasks/part_tensors.h"

namespace weft::planner::inline parallelism {
namespace {

/// How the replicas hold a block.
struct Sharing {
  bool parameters = false, gradients = false, optimizer = false;  ///< as ParameterUnit has them
  bool each_pass = false;                                         ///< parameters are gathered for every pass
  bool alone = false;                                             ///< in a unit of its layer and `group`, not in buckets
  int group = 0;
};

Sharing SharingOfOperator(const ParameterBlock& block, const OperatorDecision& d, int group_of_slices) {
  // Norms are used whole: with what of a cut operator is not gathered slice by slice, or beside the slices.
  const bool beside = IsNorm(block.part) && d.slices > 1;
  const bool sharded = beside ? d.sharded == d.slices : block.slice < d.sharded;
  if (!sharded && !d.kept) return {};
  const int group = !sharded ? 1 : d.slices == 1 ? 2 : beside ? 3 : group_of_slices + block.slice;
  return {.parameters = true, .gradients = true, .optimizer = true, .each_pass = sharded, .alone = true, .group = group};
}

Sharing SharingOf(const ProgramFrame& f, int64_t stage, const ParameterBlock& block) {
  const Strategy& s = f.strategy;
  const bool edge = block.layer < 0;
  if (ReplicasOf(f, block) < 0 || s.zero_stage == 0) return {};
  if (s.sharding == Sharding::kOperator && !edge) {
    const LayerDecision decision = DecisionOf(f, stage, block.layer);
    return IsOfMlp(block.part) ? SharingOfOperator(block, decision.mlp, 20)
                               : SharingOfOperator(block, decision.attention, 10);
  }
  // Embedding and head are gathered once per step, but for slices of the head; their gradients are scattered at its end.
  const bool sliced = block.slices > 1;
  return {.parameters = s.zero_stage == 3,
          .gradients = s.zero_stage >= 2 && !edge,
          .optimizer = true,
          .each_pass = s.zero_stage == 3 && (edge ? sliced : !s.keep_after_forward),
          .alone = s.zero_stage >= 2,
          .group = sliced ? 1 + block.slice : 0};
}

}  // namespace

bool IsNorm(ModelPart part) {
  return part == ModelPart::kAttentionNorm || part == ModelPart::kMlpNorm || part == ModelPart::kFinalNorm;
}

bool IsOfMlp(ModelPart part) {
  return part == ModelPart::kMlp || part == ModelPart::kMlpUp || part == ModelPart::kMlpDown || part == ModelPart::kRouter ||
         part == ModelPart::kExperts;
}

UnitKind KindOf(const ProgramFrame& f, const ParameterBlock& b) {
  const Strategy& s = f.strategy;
  if (b.part == ModelPart::kExperts) return UnitKind::kExperts;
  if (s.sequence_parallel && IsNorm(b.part)) return UnitKind::kTensorSum;
  if (s.tp > 1 && b.part == ModelPart::kRouter) return UnitKind::kTensorSum;
  if (s.tensor_depth > 1 && CutByGrid(b.part)) return UnitKind::kLayers;
  const bool table = b.part == ModelPart::kEmbedding || b.part == ModelPart::kHead;
  return f.tied_apart && table ? UnitKind::kTied : UnitKind::kPlain;
}

int32_t ReplicasOf(const ProgramFrame& f, const ParameterBlock& b) {
  return b.part == ModelPart::kExperts ? f.groups.expert_data : f.groups.data;
}

int64_t PlaceOnStage(const ProgramFrame& f, int64_t stage, int64_t layer) {
  const Strategy& s = f.strategy;
  int64_t before = 0;
  for (int64_t chunk = 0; chunk < s.vpp; ++chunk) {
    const LayerRange range = LayersOfVirtualStage(f, VirtualStage(s.schedule, stage, chunk, s.pp));
    if (layer >= range.begin && layer < range.end) return before + layer - range.begin;
    before += range.end - range.begin;
  }
  return before;
}

LayerDecision DecisionOf(const ProgramFrame& f, int64_t stage, int64_t layer) {
  if (f.operators.empty()) return {};
  int64_t left = PlaceOnStage(f, stage, layer);
  for (const OperatorRun& run : f.operators[static_cast<size_t>(stage)].runs) {
    if (left < run.layers) return {run.attention, run.mlp};
    left -= run.layers;
  }
  return {};
}

int64_t HeadSlicesOf(const ProgramFrame& f) {
  for (const StageOperators& stage : f.operators) {
    if (stage.head) return stage.head_slices;
  }
  return 1;
}

namespace {

/// Of a 3D CNN, whose ranks have all parameters: those that share samples are replicas like others.
std::vector<StageBlock> BlocksOfVolumes(const ProgramFrame& f) {
  std::vector<StageBlock> blocks;
  for (int64_t layer = 0; layer < f.job.model.layers; ++layer) {
    const int64_t elements = LayerParameterCount(f.job.model, layer);
    const bool dense = f.job.model.cnn_layers[static_cast<size_t>(layer)].kind == Cnn3dKind::kDense;
    const ModelPart part = dense ? ModelPart::kClassifier : ModelPart::kConvolution;
    const ParameterBlock block{.part = part, .layer = static_cast<int32_t>(layer), .elements = elements};
    if (elements > 0) blocks.push_back({block, f.micro_batches()});
  }
  return blocks;
}

}  // namespace

std::vector<StageBlock> BlocksOfStage(const ProgramFrame& f, int64_t stage) {
  if (f.job.model.IsCnn()) return BlocksOfVolumes(f);
  const Strategy& s = f.strategy;
  const ModelSpec& model = f.job.model;
  const RankGrid grid = f.grid();
  const int64_t h = model.hidden, t = grid.exists() ? grid.pieces() : s.tp, m = f.micro_batches(), inner = model.ffn_hidden;
  const int64_t norms = model.rms_norm ? h : 2 * h, norm = grid.exists() ? norms / t : norms;
  const int64_t qkv = (model.heads + 2 * model.kv_heads) * model.head_dim, q = model.heads * model.head_dim;
  const bool out_bias = model.attention_bias && model.attention_output_bias;
  const int64_t ways = model.gated_mlp ? 2 : 1;
  std::vector<StageBlock> blocks;
  const auto add = [&](ModelPart part, int64_t layer, int64_t elements, bool whole, int64_t contributions, int64_t slices = 1) {
    for (int64_t slice = 0; slice < slices; ++slice) {
      blocks.push_back({{.part = part,
                         .layer = static_cast<int32_t>(layer),
                         .slice = static_cast<int32_t>(slice),
                         .slices = static_cast<int32_t>(slices),
                         .elements = elements / slices,
                         .whole = whole},
                        contributions});
    }
  };
  const int64_t table = model.vocab / s.tp * h;
  for (int64_t chunk = 0; chunk < s.vpp; ++chunk) {
    const int64_t v = VirtualStage(s.schedule, stage, chunk, s.pp);
    const LayerRange layers = LayersOfVirtualStage(f, v);
    const bool head_here = PlaceOf(s.schedule, s.pp * s.vpp - 1, s.pp).stage == stage;
    if (v == 0) {
      add(ModelPart::kEmbedding, -1, table, false, model.tied_embeddings && head_here ? 2 * m : m);
      if (model.learned_positions) add(ModelPart::kPositions, -1, model.max_positions * h, true, m);
    }
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      const LayerDecision decision = DecisionOf(f, stage, layer);
      const int64_t slices = decision.attention.slices;
      add(ModelPart::kAttentionNorm, layer, norm, !grid.exists(), m);
      add(ModelPart::kQkv, layer, qkv * (h + (model.attention_bias ? 1 : 0)) / t, false, m, slices);
      add(ModelPart::kAttentionOut, layer, (h * q + (out_bias ? h : 0)) / t, false, m, slices);
      add(ModelPart::kMlpNorm, layer, norm, !grid.exists(), m);
      if (grid.exists()) {
        add(ModelPart::kMlpUp, layer, (ways * inner * (h + (model.mlp_bias ? 1 : 0))) / t, false, m);
        add(ModelPart::kMlpDown, layer, (h * inner + (model.mlp_bias ? h : 0)) / t, false, m);
      } else if (model.IsMoeLayer(layer)) {
        add(ModelPart::kRouter, layer, h * model.experts, true, m);
        add(ModelPart::kExperts, layer, model.experts / s.ep * (ways + 1) * h * (model.expert_ffn_hidden / s.etp), false, m);
      } else {
        add(ModelPart::kMlp, layer, ((ways + 1) * h * inner + (model.mlp_bias ? ways * inner + h : 0)) / t, false, m,
            decision.mlp.slices);
      }
    }
    if (v < s.pp * s.vpp - 1) continue;
    add(ModelPart::kFinalNorm, -1, norm, !grid.exists(), m);
    if (model.tied_embeddings && !f.tied_apart) continue;
    add(ModelPart::kHead, -1, table, false, m, HeadSlicesOf(f));
    blocks.back().block.copy = f.tied_apart;
  }
  return blocks;
}

std::vector<bool> CutUnits(const ProgramFrame& f, int64_t stage, const std::vector<ParameterBlock>& order, RankClass* out) {
  const int64_t bucket = std::max<int64_t>(1, f.strategy.bucket_bytes.count() / BytesOf(f.type));
  // A split backward pass mixes layers: those that are exchanged one by one are put together again.
  std::vector<int32_t> layers;
  for (const ParameterBlock& b : order) {
    if (std::find(layers.begin(), layers.end(), b.layer) == layers.end()) layers.push_back(b.layer);
  }
  // What is summed over other ranks as well stands apart from the rest.
  using Key = std::tuple<UnitKind, bool, int64_t, int>;
  std::vector<std::pair<Key, size_t>> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    const Sharing sharing = SharingOf(f, stage, order[i]);
    const int64_t layer = std::find(layers.begin(), layers.end(), order[i].layer) - layers.begin();
    sorted.push_back({{KindOf(f, order[i]), sharing.alone, sharing.alone ? layer : 0, sharing.alone ? sharing.group : 0}, i});
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<bool> each_pass;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const ParameterBlock& b = order[sorted[i].second];
    const Sharing sharing = SharingOf(f, stage, b);
    const bool full = i > 0 && !sharing.alone && out->units.back().elements + b.elements > bucket;
    if (i == 0 || sorted[i - 1].first != sorted[i].first || full) {
      const int32_t replicas = ReplicasOf(f, b);
      const bool experts = b.part == ModelPart::kExperts;  // sharded over all that have them
      ParameterUnit made{.first_block = static_cast<int32_t>(i),
                         .shard = !sharing.optimizer ? -1 : experts ? replicas : f.groups.shard,
                         .parameters_sharded = sharing.parameters,
                         .gradients_sharded = sharing.gradients,
                         .optimizer_sharded = sharing.optimizer,
                         .across = sharing.gradients ? f.groups.across : -1};
      const int32_t same = !sharing.optimizer ? replicas : experts ? -1 : f.groups.across;
      if (same >= 0 && !ReplicasDiffer(f.strategy)) made.duplicates.push_back(same);
      if (KindOf(f, b) == UnitKind::kLayers) made.duplicates.push_back(f.groups.along[2]);
      out->units.push_back(std::move(made));
      each_pass.push_back(sharing.each_pass);
    }
    ++out->units.back().blocks;
    out->units.back().elements += b.elements;
    out->blocks.push_back(b);
  }
  return each_pass;
}

}  // namespace weft::planner::inline parallelism
