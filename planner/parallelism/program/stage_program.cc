#include "planner/parallelism/program/stage_program.h"

#include <algorithm>

#include "planner/parallelism/partition.h"

namespace weft::planner::inline parallelism {
namespace {

int64_t LayersOfChunk(const ProgramFrame& f, int64_t virtual_stage) {
  const Strategy& s = f.strategy;
  const StageChunk place = PlaceOf(s.schedule, virtual_stage, s.pp);
  const int64_t layers =
      f.layers.empty() ? StageLayers(f.job.model.layers, s.pp, place.stage) : f.layers[static_cast<size_t>(place.stage)];
  return layers / s.vpp + (place.chunk < layers % s.vpp ? 1 : 0);
}

}  // namespace

LayerRange LayersOfVirtualStage(const ProgramFrame& f, int64_t virtual_stage) {
  LayerRange range;
  for (int64_t v = 0; v < virtual_stage; ++v) range.begin += LayersOfChunk(f, v);
  range.end = range.begin + LayersOfChunk(f, virtual_stage);
  return range;
}

std::vector<Message> MessagesBetween(const ProgramFrame& f, int64_t from, int64_t to) {
  const Strategy& s = f.strategy;
  const int64_t last = s.pp * s.vpp - 1;
  std::vector<Message> messages;
  for (const StagePass& pass : StageOrder(s.schedule, from, s.pp, f.micro_batches(), s.vpp)) {
    const int64_t v = VirtualStage(s.schedule, from, pass.chunk, s.pp);
    const bool back = pass.kind == PassKind::kData;
    const int64_t next = back ? v - 1 : v + 1;
    if (pass.kind == PassKind::kWeight || next < 0 || next > last || PlaceOf(s.schedule, next, s.pp).stage != to) continue;
    messages.push_back({v, pass.micro_batch, back});
  }
  return messages;
}

void StageProgram::RunPasses() {
  BeginStep();
  for (const StagePass& pass : StageOrder(s_.schedule, stage_, s_.pp, f_.micro_batches(), s_.vpp)) {
    micro_batch_ = static_cast<int32_t>(pass.micro_batch);
    switch (pass.kind) {
      case PassKind::kForward: ForwardPass(pass.chunk, pass.micro_batch); break;
      case PassKind::kData: DataPass(pass.chunk, pass.micro_batch); break;
      case PassKind::kWeight: WeightPass(pass.chunk, pass.micro_batch); break;
    }
  }
  micro_batch_ = -1;
  EndStep();
}

void StageProgram::ForwardPass(int64_t chunk, int64_t) {
  if (model_.IsCnn()) return VolumesForward();
  const int64_t v = VirtualStage(s_.schedule, stage_, chunk, s_.pp);
  const LayerRange layers = LayersOfVirtualStage(f_, v);
  int32_t x = v == 0 ? Embed() : Receive(v - 1, /*back=*/false);
  std::vector<Turn> turns;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    for (Turn& turn : TurnsOfLayer(layer, /*back=*/false)) turns.push_back(std::move(turn));
  }
  if (v == s_.pp * s_.vpp - 1) {
    for (Turn& turn : TurnsOfHead()) turns.push_back(std::move(turn));
  }
  BeginTurns(turns);
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const bool keeps = !(s_.recompute == Recompute::kFull && Recomputes(layer));
    x = LayerForward(layer, x, keeps, keeps && !(s_.recompute == Recompute::kSelective && Recomputes(layer)));
  }
  if (v == s_.pp * s_.vpp - 1) {
    Head(x);
  } else {
    Send(v, x, /*back=*/false);
  }
}

void StageProgram::DataPass(int64_t chunk, int64_t micro_batch) {
  if (model_.IsCnn()) return VolumesData();
  const int64_t v = VirtualStage(s_.schedule, stage_, chunk, s_.pp);
  const LayerRange layers = LayersOfVirtualStage(f_, v);
  collect_ = SplitsBackward(s_.schedule) ? &pending_[{chunk, micro_batch}] : nullptr;
  const bool last = v == s_.pp * s_.vpp - 1;
  std::vector<Turn> turns = last ? TurnsOfHead() : std::vector<Turn>();
  for (int64_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    for (Turn& turn : TurnsOfLayer(layer, /*back=*/true)) turns.push_back(std::move(turn));
  }
  BeginTurns(turns);
  int32_t gradient = last ? HeadData() : Receive(v + 1, /*back=*/true);
  for (int64_t layer = layers.end - 1; layer >= layers.begin; --layer) gradient = LayerData(layer, gradient);
  collect_ = nullptr;
  if (v > 0) return Send(v, gradient, /*back=*/true);
  Compute(StepAction::kData, ModelPart::kEmbedding, -1, {Whole(gradient)}, {});
  Contributed(ModelPart::kEmbedding, -1);
  Contributed(ModelPart::kPositions, -1);
}

void StageProgram::WeightPass(int64_t chunk, int64_t micro_batch) {
  const auto waiting = pending_.extract({chunk, micro_batch});
  if (waiting.empty()) return;
  for (const Pending& p : waiting.mapped()) {
    p.gradient >= 0 ? ProductWeight(p.part, p.layer, p.input, p.gradient) : Weights(p.part, p.layer, p.input, p.gathers, p.cut);
  }
}

int32_t StageProgram::Embed() {
  const int32_t partial = One(StepAction::kForward, ModelPart::kEmbedding, -1, {}, {f_.tokens(), model_.hidden}, /*keeps=*/true);
  return Sum(partial);
}

void StageProgram::Head(int32_t x) {
  const int64_t t = f_.tokens(), h = model_.hidden;
  HeadKept& kept = head_kept_[micro_batch_];
  kept.n = grid_.exists() ? NormForward(ModelPart::kFinalNorm, -1, x, &kept.norm)
                          : One(StepAction::kForward, ModelPart::kFinalNorm, -1, {x}, {f_.rows(), h}, /*keeps=*/true);
  kept.whole = Whole(kept.n);
  for (int64_t slice = 0; slice < HeadSlicesOf(f_); ++slice) {
    const Turn turn = TurnOf(-1, false, slice);
    Enter(turn);
    std::vector<int32_t> in = {kept.whole};
    if (slice > 0) in.push_back(kept.logits);
    kept.logits =
        One(StepAction::kForward, ModelPart::kHead, -1, in, {t, model_.vocab / s_.tp}, /*keeps=*/true, {slice, HeadSlicesOf(f_)});
    Leave(turn);
  }
  kept.largest = TensorReduce(StepAction::kAllReduceMax, One(StepAction::kForward, ModelPart::kLossMax, -1, {kept.logits}, {t, 1}));
  const std::vector<int32_t> sums =
      Compute(StepAction::kForward, ModelPart::kLossSums, -1, {kept.logits, kept.largest}, {{t, 1}, {t, 1}});
  kept.sums = TensorReduce(StepAction::kAllReduce, sums[0]);
  kept.targets = TensorReduce(StepAction::kAllReduce, sums[1]);
  One(StepAction::kForward, ModelPart::kLoss, -1, {kept.logits, kept.largest, kept.sums, kept.targets}, {1, 1});
}

int32_t StageProgram::HeadData() {
  const HeadKept kept = head_kept_.extract(int64_t{micro_batch_}).mapped();
  const int64_t t = f_.tokens(), h = model_.hidden;
  const int32_t logits =
      One(StepAction::kData, ModelPart::kLoss, -1, {kept.logits, kept.largest, kept.sums, kept.targets}, {t, model_.vocab / s_.tp});
  int32_t partial = -1;
  for (int64_t slice = 0; slice < HeadSlicesOf(f_); ++slice) {
    const Turn turn = TurnOf(-1, false, slice);
    const Cut cut{slice, HeadSlicesOf(f_)};
    Enter(turn);
    std::vector<int32_t> in = {logits};
    if (slice > 0) in.push_back(partial);
    partial = One(StepAction::kData, ModelPart::kHead, -1, in, {t, h}, false, cut);
    Leave(turn);
    Weights(ModelPart::kHead, -1, kept.whole, /*gathers=*/false, cut);
  }
  if (grid_.exists()) return NormData(ModelPart::kFinalNorm, -1, Sum(partial), kept.norm);
  const int32_t gradient = One(StepAction::kData, ModelPart::kFinalNorm, -1, {Sum(partial)}, {f_.rows(), h});
  Contributed(ModelPart::kFinalNorm, -1);
  return gradient;
}

int32_t StageProgram::LayerForward(int64_t layer, int32_t x, bool keeps, bool keeps_core) {
  using enum ModelPart;
  if (grid_.exists()) return GridLayerForward(layer, x, keeps_core);
  const int64_t r = f_.rows(), h = model_.hidden;
  Kept& kept = kept_[{layer, micro_batch_}];
  kept = Kept();
  kept.x = x;
  const Turn turn = TurnOf(layer, false, 0);
  Enter(turn);
  kept.n = One(StepAction::kForward, kAttentionNorm, layer, {x}, {r, h}, keeps);
  const int32_t y = Sum(AttentionForward(layer, keeps, keeps_core));
  const std::vector<int32_t> middle = Compute(StepAction::kForward, kMlpNorm, layer, {x, y}, {{r, h}, {r, h}}, keeps);
  if (SlicesOf(layer, false) > 1) {
    Leave(NormsOf(turn));
  } else if (turn != TurnOf(layer, true, 0)) {
    Leave(turn);
  }
  kept.n2 = middle[1];
  const int32_t z = model_.IsMoeLayer(layer) ? MoeForward(layer, middle[1], keeps, &kept) : Sum(MlpForward(layer, keeps));
  return One(StepAction::kForward, kResidual, layer, {middle[0], z}, {r, h});
}

int32_t StageProgram::AttentionForward(int64_t layer, bool keeps, bool keeps_core) {
  using enum ModelPart;
  Kept& kept = kept_.at({layer, micro_batch_});
  const Cut all{0, SlicesOf(layer, false)};
  const int64_t t = f_.tokens(), pieces = s_.tp * all.slices;
  const int64_t q = model_.heads * model_.head_dim / pieces, kv = 2 * model_.kv_heads * model_.head_dim / pieces;
  const int32_t whole = Whole(kept.n);
  int32_t y = -1;
  for (Cut cut = all; cut.slice < all.slices; ++cut.slice) {
    const Turn turn = TurnOf(layer, false, cut.slice);
    Enter(turn);
    const std::vector<int32_t> qkv = Compute(StepAction::kForward, kQkv, layer, {whole}, {{t, q}, {t, kv}}, keeps, cut);
    kept.q.push_back(qkv[0]), kept.kv.push_back(qkv[1]);
    kept.o.push_back(s_.cp > 1 ? ContextForward(layer, &kept)
                               : One(StepAction::kForward, kAttentionCore, layer, qkv, {t, q}, keeps_core, cut));
    std::vector<int32_t> in = {kept.o.back()};
    if (cut.slice > 0) in.push_back(y);
    y = One(StepAction::kForward, kAttentionOut, layer, in, {t, model_.hidden}, keeps, cut);
    if (all.slices > 1) Leave(ProductsOf(turn));
  }
  return y;
}

int32_t StageProgram::MlpForward(int64_t layer, bool keeps) {
  const Cut all{0, SlicesOf(layer, true)};
  const int32_t whole = Whole(kept_.at({layer, micro_batch_}).n2);
  int32_t z = -1;
  for (Cut cut = all; cut.slice < all.slices; ++cut.slice) {
    const Turn turn = TurnOf(layer, true, cut.slice);
    Enter(turn);
    std::vector<int32_t> in = {whole};
    if (cut.slice > 0) in.push_back(z);
    z = One(StepAction::kForward, ModelPart::kMlp, layer, in, {f_.tokens(), model_.hidden}, keeps, cut);
    Leave(turn);
  }
  return z;
}

int32_t StageProgram::LayerData(int64_t layer, int32_t gradient) {
  using enum ModelPart;
  if (grid_.exists()) return GridLayerData(layer, gradient);
  const int64_t t = f_.tokens(), r = f_.rows(), h = model_.hidden;
  const bool again = s_.recompute != Recompute::kNone && Recomputes(layer);
  const bool full = again && s_.recompute == Recompute::kFull;
  const Turn together = full ? TurnsOfLayer(layer, /*back=*/true).front() : Turn();
  if (full) {
    Enter(together);
    holds_turn_ = true;
    LayerForward(layer, kept_.at({layer, micro_batch_}).x, true, true);
  }
  const Kept kept = kept_.extract({layer, int64_t{micro_batch_}}).mapped();
  if (again && !full && s_.cp == 1) {  // context ranks keep no scores
    const int64_t slices = std::ssize(kept.q), q = model_.heads * model_.head_dim / s_.tp / slices;
    for (int64_t slice = 0; slice < slices; ++slice) {
      const auto i = static_cast<size_t>(slice);
      One(StepAction::kForward, kAttentionCore, layer, {kept.q[i], kept.kv[i]}, {t, q}, true, {slice, slices});
    }
  }
  const bool moe = model_.IsMoeLayer(layer);
  const int32_t of_mlp = moe ? MoeData(layer, gradient, kept) : MlpData(layer, kept, gradient);
  const Turn turn = TurnOf(layer, false, 0);
  Enter(turn);
  const int32_t middle = One(StepAction::kData, kMlpNorm, layer, {gradient, moe ? of_mlp : Sum(of_mlp)}, {r, h});
  Contributed(kMlpNorm, layer);
  const int32_t of_qkv = AttentionData(layer, kept, middle);
  const int32_t out = One(StepAction::kData, kAttentionNorm, layer, {Sum(of_qkv), middle}, {r, h});
  Contributed(kAttentionNorm, layer);
  holds_turn_ = false;
  Leave(full ? together : SlicesOf(layer, false) > 1 ? NormsOf(turn) : turn);
  return out;
}

int32_t StageProgram::MlpData(int64_t layer, const Kept& kept, int32_t gradient) {
  const Cut all{0, SlicesOf(layer, true)};
  const int32_t whole = Whole(gradient);
  int32_t sum = -1;
  for (Cut cut = all; cut.slice < all.slices; ++cut.slice) {
    const Turn turn = TurnOf(layer, true, cut.slice);
    Enter(turn);
    std::vector<int32_t> in = {whole};
    if (cut.slice > 0) in.push_back(sum);
    sum = One(StepAction::kData, ModelPart::kMlp, layer, in, {f_.tokens(), model_.hidden}, false, cut);
    Weights(ModelPart::kMlp, layer, kept.n2, s_.sequence_parallel, cut);
    if (turn != TurnOf(layer, false, 0) || all.slices > 1) Leave(turn);
  }
  return sum;
}

int32_t StageProgram::AttentionData(int64_t layer, const Kept& kept, int32_t gradient) {
  using enum ModelPart;
  const Cut all{0, SlicesOf(layer, false)};
  const int64_t t = f_.tokens(), pieces = s_.tp * all.slices;
  const int64_t q = model_.heads * model_.head_dim / pieces, kv = 2 * model_.kv_heads * model_.head_dim / pieces;
  const int32_t whole = Whole(gradient);
  int32_t sum = -1;
  for (Cut cut = all; cut.slice < all.slices; ++cut.slice) {
    const Turn turn = TurnOf(layer, false, cut.slice);
    Enter(turn);
    const int32_t of_core = One(StepAction::kData, kAttentionOut, layer, {whole}, {t, q}, false, cut);
    Weights(kAttentionOut, layer, kept.o[static_cast<size_t>(cut.slice)], false, cut);
    std::vector<int32_t> qkv =
        s_.cp > 1 ? ContextData(layer, of_core, kept)
                  : Compute(StepAction::kData, kAttentionCore, layer, {of_core}, {{t, q}, {t, kv}}, false, cut);
    if (cut.slice > 0) qkv.push_back(sum);
    sum = One(StepAction::kData, kQkv, layer, qkv, {t, model_.hidden}, false, cut);
    // Of split rows only the shard of a product's input was kept.
    Weights(kQkv, layer, kept.n, s_.sequence_parallel, cut);
    if (all.slices > 1) Leave(ProductsOf(turn));
  }
  return sum;
}

void StageProgram::Weights(ModelPart part, int64_t layer, int32_t input, bool gathers, Cut cut) {
  if (collect_ != nullptr) {
    collect_->push_back({part, layer, input, gathers, cut});
    return;
  }
  Compute(StepAction::kWeight, part, layer, {gathers ? Whole(input) : input}, {}, false, cut);
  // A tied head on the embedding's stage adds to the embedding's table.
  Contributed(part, layer, cut.slice);
}

void StageProgram::Send(int64_t virtual_stage, int32_t x, bool back) {
  const int64_t to = PlaceOf(s_.schedule, back ? virtual_stage - 1 : virtual_stage + 1, s_.pp).stage;
  const Message message{virtual_stage, micro_batch_, back};
  if (to == stage_) {  // the turn of a V
    mail_[message] = x;
    return;
  }
  const bool slices = s_.tp > 1 && !s_.sequence_parallel && !grid_.exists();  // every tensor rank sends its share
  if (slices) x = One(StepAction::kForward, ModelPart::kSlice, -1, {x}, {f_.tokens() / s_.tp, model_.hidden});
  const int64_t tag = (virtual_stage * f_.micro_batches() + micro_batch_) * 2 + (back ? 1 : 0);
  Emit({.action = StepAction::kSend,
        .micro_batch = micro_batch_,
        .communicator = f_.groups.messages.at({stage_, to}),
        .tag = static_cast<int32_t>(tag),
        .elements = out_.values[static_cast<size_t>(x)].elements(),
        .inputs = {x}});
}

/// All that the sender sends before comes first: a connection keeps its order.
void StageProgram::ReceiveUpTo(int64_t from, const Message& message) {
  const std::vector<Message>& inbox = inbox_[from];
  size_t& next = received_[from];
  while (!mail_.contains(message)) {
    const Message& m = inbox[next++];
    const int32_t value = grid_.exists() ? Value(f_.rows(), f_.columns()) : Value(f_.tokens() / s_.tp, model_.hidden);
    const int64_t tag = (m.virtual_stage * f_.micro_batches() + m.micro_batch) * 2 + (m.back ? 1 : 0);
    Emit({.action = StepAction::kReceive,
          .micro_batch = static_cast<int32_t>(m.micro_batch),
          .communicator = f_.groups.messages.at({from, stage_}),
          .tag = static_cast<int32_t>(tag),
          .elements = out_.values[static_cast<size_t>(value)].elements(),
          .outputs = {value}});
    mail_[m] = value;
  }
}

int32_t StageProgram::Receive(int64_t virtual_stage, bool back) {
  const int64_t from = PlaceOf(s_.schedule, virtual_stage, s_.pp).stage;
  const Message message{virtual_stage, micro_batch_, back};
  if (from != stage_) ReceiveUpTo(from, message);
  const int32_t value = mail_.extract(message).mapped();
  if (from == stage_ || s_.tp == 1 || s_.sequence_parallel || grid_.exists()) return value;
  return Collective(StepAction::kAllGather, f_.groups.tensor, value, {f_.tokens(), model_.hidden});
}

}  // namespace weft::planner::parallelism
