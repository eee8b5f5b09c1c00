// What replicas exchange: units, when their gradients are complete, and what a step begins and ends with.
#include <algorithm>

#include "planner/parallelism/partition.h"
#include "planner/parallelism/program/stage_program.h"

namespace weft::planner::inline parallelism {
namespace {

bool IsNorm(ModelPart part) {
  return part == ModelPart::kAttentionNorm || part == ModelPart::kMlpNorm || part == ModelPart::kFinalNorm;
}

}  // namespace

UnitKind KindOf(const ProgramFrame& f, const ParameterBlock& b) {
  const Strategy& s = f.strategy;
  if (b.part == ModelPart::kExperts) return UnitKind::kExperts;
  if (s.sequence_parallel && IsNorm(b.part)) return UnitKind::kTensorSum;
  if (s.tp > 1 && b.part == ModelPart::kRouter) return UnitKind::kTensorSum;
  const bool table = b.part == ModelPart::kEmbedding || b.part == ModelPart::kHead;
  return f.tied_apart && table ? UnitKind::kTied : UnitKind::kPlain;
}

bool StageProgram::GathersEachPass() const { return s_.zero_stage == 3 && !s_.keep_after_forward && s_.dp * s_.cp > 1; }

/// Interleaved, gradients are scattered once per round of pp micro-batches (ReducesByRound(), memory_model.h).
int64_t StageProgram::Round() const { return s_.schedule == ScheduleKind::kInterleaved ? s_.pp : 1; }

/// The stage's first so many.
bool StageProgram::Recomputes(int64_t layer) const {
  if (s_.recompute_layers < 0) return true;
  int64_t before = 0;
  for (int64_t chunk = 0; chunk < s_.vpp; ++chunk) {
    const LayerRange range = LayersOfVirtualStage(model_, s_, VirtualStage(s_.schedule, stage_, chunk, s_.pp));
    if (layer >= range.begin && layer < range.end) return before + layer - range.begin < s_.recompute_layers;
    before += range.end - range.begin;
  }
  return false;
}

std::vector<StageBlock> BlocksOfStage(const ProgramFrame& f, int64_t stage) {
  const Strategy& s = f.strategy;
  const ModelSpec& model = f.job.model;
  const int64_t h = model.hidden, t = s.tp, m = f.micro_batches(), inner = model.ffn_hidden / t;
  const int64_t q = model.heads * model.head_dim / t, kv = model.kv_heads * model.head_dim / t, norm = model.rms_norm ? h : 2 * h;
  const bool out_bias = model.attention_bias && model.attention_output_bias;
  const int64_t ways = model.gated_mlp ? 2 : 1;
  std::vector<StageBlock> blocks;
  const auto add = [&](ModelPart part, int64_t layer, int64_t elements, bool whole, int64_t contributions) {
    blocks.push_back({{.part = part, .layer = static_cast<int32_t>(layer), .elements = elements, .whole = whole}, contributions});
  };
  const int64_t table = model.vocab / t * h;
  for (int64_t chunk = 0; chunk < s.vpp; ++chunk) {
    const int64_t v = VirtualStage(s.schedule, stage, chunk, s.pp);
    const LayerRange layers = LayersOfVirtualStage(model, s, v);
    const bool head_here = PlaceOf(s.schedule, s.pp * s.vpp - 1, s.pp).stage == stage;
    if (v == 0) {
      add(ModelPart::kEmbedding, -1, table, false, model.tied_embeddings && head_here ? 2 * m : m);
      if (model.learned_positions) add(ModelPart::kPositions, -1, model.max_positions * h, true, m);
    }
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      add(ModelPart::kAttentionNorm, layer, norm, true, m);
      add(ModelPart::kQkv, layer, (q + 2 * kv) * (h + (model.attention_bias ? 1 : 0)), false, m);
      add(ModelPart::kAttentionOut, layer, h * q + (out_bias ? h / t : 0), false, m);
      add(ModelPart::kMlpNorm, layer, norm, true, m);
      if (model.IsMoeLayer(layer)) {
        add(ModelPart::kRouter, layer, h * model.experts, true, m);
        add(ModelPart::kExperts, layer, model.experts / s.ep * (ways + 1) * h * (model.expert_ffn_hidden / s.etp), false, m);
      } else {
        add(ModelPart::kMlp, layer, (ways + 1) * h * inner + (model.mlp_bias ? ways * inner + h / t : 0), false, m);
      }
    }
    if (v < s.pp * s.vpp - 1) continue;
    add(ModelPart::kFinalNorm, -1, norm, true, m);
    if (model.tied_embeddings && !f.tied_apart) continue;
    add(ModelPart::kHead, -1, table, false, m);
    blocks.back().block.copy = f.tied_apart;
  }
  return blocks;
}

void CutUnits(const ProgramFrame& f, const std::vector<ParameterBlock>& order, RankClass* out) {
  const Strategy& s = f.strategy;
  const bool by_layer = s.zero_stage >= 2 && f.groups.data >= 0;
  const int64_t bucket = std::max<int64_t>(1, s.bucket_bytes.count() / BytesOf(f.type));
  // What is summed over other ranks as well stands apart from the rest.
  const auto kind_of = [&](const ParameterBlock& b) { return KindOf(f, b); };
  std::vector<ParameterBlock> blocks = order;
  std::stable_sort(blocks.begin(), blocks.end(),
                   [&](const ParameterBlock& a, const ParameterBlock& b) { return kind_of(a) < kind_of(b); });
  if (by_layer) {  // a split backward pass mixes layers
    std::vector<int32_t> layers;
    for (const ParameterBlock& b : blocks) {
      if (std::find(layers.begin(), layers.end(), b.layer) == layers.end()) layers.push_back(b.layer);
    }
    const auto place = [&](const ParameterBlock& b) { return std::find(layers.begin(), layers.end(), b.layer) - layers.begin(); };
    std::stable_sort(blocks.begin(), blocks.end(),
                     [&](const ParameterBlock& a, const ParameterBlock& b) { return place(a) < place(b); });
    std::stable_sort(blocks.begin(), blocks.end(),
                     [&](const ParameterBlock& a, const ParameterBlock& b) { return kind_of(a) < kind_of(b); });
  }
  const auto is_edge = [](const ParameterBlock& b) { return b.layer < 0; };
  for (size_t i = 0; i < blocks.size(); ++i) {
    const ParameterBlock& b = blocks[i];
    bool fresh = i == 0 || kind_of(blocks[i - 1]) != kind_of(b);
    if (by_layer) {
      fresh = fresh || blocks[i - 1].layer != b.layer;
    } else {
      fresh = fresh || out->units.back().elements + b.elements > bucket;
    }
    if (fresh) {
      const int32_t replicas = kind_of(b) == UnitKind::kExperts ? f.groups.expert_data : f.groups.data;
      const bool unit = by_layer && !is_edge(b), sharded = s.zero_stage > 0 && replicas >= 0;
      ParameterUnit made{.first_block = static_cast<int32_t>(i),
                         .shard = sharded ? replicas : -1,
                         .parameters_sharded = sharded && s.zero_stage == 3,
                         .gradients_sharded = unit,
                         .optimizer_sharded = sharded};
      if (replicas >= 0 && !sharded) made.duplicates.push_back(replicas);
      out->units.push_back(std::move(made));
    }
    ++out->units.back().blocks;
    out->units.back().elements += b.elements;
  }
  out->blocks = std::move(blocks);
}

int32_t StageProgram::UnitOfLayer(int64_t layer) const {
  const auto at = block_at_.find({ModelPart::kAttentionNorm, layer});
  return unit_of_block_.empty() || at == block_at_.end() ? -1 : unit_of_block_[at->second];
}

int32_t StageProgram::OverUnit(StepAction action, int32_t communicator, int32_t unit) {
  Instruction i{.action = action,
                .micro_batch = micro_batch_,
                .unit = unit,
                .communicator = communicator,
                .elements = out_.units[static_cast<size_t>(unit)].elements};
  int32_t& last = last_on_unit_[static_cast<size_t>(unit)];
  if (last >= 0 && out_.instructions[static_cast<size_t>(last)].communicator != communicator) i.needs.push_back(last);
  last = Emit(std::move(i));
  return last;
}

void StageProgram::Gather(int32_t unit) {
  if (unit >= 0 && GathersEachPass()) OverUnit(StepAction::kAllGather, f_.groups.data, unit);
}

void StageProgram::Release(int32_t unit) {
  if (unit >= 0 && GathersEachPass()) Emit({.action = StepAction::kRelease, .micro_batch = micro_batch_, .unit = unit});
}

/// Gathers what the last step has left sharded, in the order of use: last in the order of gradients.
void StageProgram::BeginStep() {
  for (auto u = static_cast<int32_t>(out_.units.size()) - 1; u >= 0; --u) {
    const ParameterUnit& unit = out_.units[static_cast<size_t>(u)];
    const bool each_pass = GathersEachPass() && unit.gradients_sharded;
    if (unit.optimizer_sharded && !each_pass) OverUnit(StepAction::kAllGather, unit.shard, u);
  }
}

void StageProgram::Contributed(ModelPart part, int64_t layer) {
  const bool tied = part == ModelPart::kHead && !block_at_.contains({ModelPart::kHead, -1});
  const auto at = block_at_.find({tied ? ModelPart::kEmbedding : part, layer});
  if (at == block_at_.end()) return;  // a model without learned positions
  if (out_.units.empty()) {
    if (--left_[at->second] == 0) order_.push_back(blocks_[at->second].block);
    return;
  }
  const int32_t unit = unit_of_block_[at->second];
  int64_t& left = unit_left_[static_cast<size_t>(unit)];
  if (--left > 0) return;
  Exchange(unit);
  left = out_.units[static_cast<size_t>(unit)].blocks * Round();  // counts only where it is scattered again
}

void StageProgram::Exchange(int32_t unit) {
  const ParameterUnit& u = out_.units[static_cast<size_t>(unit)];
  const ParameterBlock& first = out_.blocks[static_cast<size_t>(u.first_block)];
  const UnitKind kind = KindOf(f_, first);
  if (kind == UnitKind::kTensorSum) OverUnit(StepAction::kAllReduce, f_.groups.tensor, unit);
  if (kind == UnitKind::kTied) OverUnit(StepAction::kAllReduce, f_.groups.embedding, unit);
  const int32_t replicas = kind == UnitKind::kExperts ? f_.groups.expert_data : f_.groups.data;
  if (replicas < 0) return;
  OverUnit(u.optimizer_sharded ? StepAction::kReduceScatter : StepAction::kAllReduce, replicas, unit);
}

void StageProgram::EndStep() {
  if (out_.units.empty()) return;
  const auto sum = [&](StepAction action) {
    const int32_t own = Value(1, 1);
    Instruction i{.action = action, .outputs = {own}};
    if (action == StepAction::kSquares) {
      for (const int32_t last : last_on_unit_) {
        if (last >= 0) i.needs.push_back(last);
      }
    }
    Emit(std::move(i));
    return f_.groups.world < 0 ? own : Collective(StepAction::kAllReduce, f_.groups.world, own, {1, 1});
  };
  const int32_t squares = sum(StepAction::kSquares);
  for (size_t u = 0; u < out_.units.size(); ++u) {
    Emit({.action = StepAction::kUpdate, .unit = static_cast<int32_t>(u), .inputs = {squares}});
  }
  sum(StepAction::kLossSum);
  for (size_t u = 0; u < out_.units.size(); ++u) {
    const bool each_pass = GathersEachPass() && out_.units[u].gradients_sharded;
    if (out_.units[u].parameters_sharded && !each_pass) Emit({.action = StepAction::kRelease, .unit = static_cast<int32_t>(u)});
  }
}

}  // namespace weft::planner::parallelism
