#include "planner/parallelism/program/stage_program.h"

#include <algorithm>

#include "planner/parallelism/partition.h"

namespace weft::planner::inline parallelism {
namespace {

int64_t LayersOfChunk(const ModelSpec& model, const Strategy& s, int64_t virtual_stage) {
  const StageChunk place = PlaceOf(s.schedule, virtual_stage, s.pp);
  const int64_t layers = StageLayers(model.layers, s.pp, place.stage);
  return layers / s.vpp + (place.chunk < layers % s.vpp ? 1 : 0);
}

}  // namespace

LayerRange LayersOfVirtualStage(const ModelSpec& model, const Strategy& s, int64_t virtual_stage) {
  LayerRange range;
  for (int64_t v = 0; v < virtual_stage; ++v) range.begin += LayersOfChunk(model, s, v);
  range.end = range.begin + LayersOfChunk(model, s, virtual_stage);
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
  const int64_t v = VirtualStage(s_.schedule, stage_, chunk, s_.pp);
  const LayerRange layers = LayersOfVirtualStage(model_, s_, v);
  int32_t x = v == 0 ? Embed() : Receive(v - 1, /*back=*/false);
  if (layers.begin < layers.end) Gather(UnitOfLayer(layers.begin));
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    if (layer + 1 < layers.end) Gather(UnitOfLayer(layer + 1));  // while this one computes
    const bool keeps = !(s_.recompute == Recompute::kFull && Recomputes(layer));
    x = LayerForward(layer, x, keeps, keeps && !(s_.recompute == Recompute::kSelective && Recomputes(layer)));
    Release(UnitOfLayer(layer));
  }
  if (v == s_.pp * s_.vpp - 1) {
    Head(x);
  } else {
    Send(v, x, /*back=*/false);
  }
}

void StageProgram::DataPass(int64_t chunk, int64_t micro_batch) {
  const int64_t v = VirtualStage(s_.schedule, stage_, chunk, s_.pp);
  const LayerRange layers = LayersOfVirtualStage(model_, s_, v);
  collect_ = SplitsBackward(s_.schedule) ? &pending_[{chunk, micro_batch}] : nullptr;
  int32_t gradient = v == s_.pp * s_.vpp - 1 ? HeadData() : Receive(v + 1, /*back=*/true);
  if (layers.begin < layers.end) Gather(UnitOfLayer(layers.end - 1));
  for (int64_t layer = layers.end - 1; layer >= layers.begin; --layer) {
    if (layer > layers.begin) Gather(UnitOfLayer(layer - 1));
    gradient = LayerData(layer, gradient);
    Release(UnitOfLayer(layer));
  }
  collect_ = nullptr;
  if (v > 0) return Send(v, gradient, /*back=*/true);
  Compute(StepAction::kData, ModelPart::kEmbedding, -1, {Whole(gradient)}, {});
  Contributed(ModelPart::kEmbedding, -1);
  Contributed(ModelPart::kPositions, -1);
}

void StageProgram::WeightPass(int64_t chunk, int64_t micro_batch) {
  const auto waiting = pending_.extract({chunk, micro_batch});
  if (waiting.empty()) return;
  for (const Pending& p : waiting.mapped()) Weights(p.part, p.layer, p.input, p.gathers);
}

int32_t StageProgram::Embed() {
  const int32_t partial = One(StepAction::kForward, ModelPart::kEmbedding, -1, {}, {f_.tokens(), model_.hidden}, /*keeps=*/true);
  return Sum(partial);
}

void StageProgram::Head(int32_t x) {
  const int64_t t = f_.tokens(), h = model_.hidden;
  HeadKept& kept = head_kept_[micro_batch_];
  kept.n = One(StepAction::kForward, ModelPart::kFinalNorm, -1, {x}, {f_.rows(), h}, /*keeps=*/true);
  kept.whole = Whole(kept.n);
  kept.logits = One(StepAction::kForward, ModelPart::kHead, -1, {kept.whole}, {t, model_.vocab / s_.tp}, /*keeps=*/true);
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
  const int32_t partial = One(StepAction::kData, ModelPart::kHead, -1, {logits}, {t, h});
  Weights(ModelPart::kHead, -1, kept.whole, /*gathers=*/false);
  const int32_t gradient = One(StepAction::kData, ModelPart::kFinalNorm, -1, {Sum(partial)}, {f_.rows(), h});
  Contributed(ModelPart::kFinalNorm, -1);
  return gradient;
}

int32_t StageProgram::LayerForward(int64_t layer, int32_t x, bool keeps, bool keeps_core) {
  using enum ModelPart;
  const int64_t t = f_.tokens(), r = f_.rows(), h = model_.hidden;
  const int64_t q = model_.heads * model_.head_dim / s_.tp, kv = 2 * model_.kv_heads * model_.head_dim / s_.tp;
  const auto forward = [&](ModelPart part, std::vector<int32_t> in, std::vector<ValueShape> out, bool kept) {
    return Compute(StepAction::kForward, part, layer, std::move(in), std::move(out), kept);
  };
  Kept& kept = kept_[{layer, micro_batch_}];
  kept.x = x;
  kept.n = forward(kAttentionNorm, {x}, {{r, h}}, keeps)[0];
  const std::vector<int32_t> qkv = forward(kQkv, {Whole(kept.n)}, {{t, q}, {t, kv}}, keeps);
  kept.q = qkv[0], kept.kv = qkv[1];
  kept.o = s_.cp > 1 ? ContextForward(layer, &kept) : forward(kAttentionCore, qkv, {{t, q}}, keeps_core)[0];
  const int32_t y = Sum(forward(kAttentionOut, {kept.o}, {{t, h}}, keeps)[0]);
  const std::vector<int32_t> middle = forward(kMlpNorm, {x, y}, {{r, h}, {r, h}}, keeps);
  kept.n2 = middle[1];
  const bool moe = model_.IsMoeLayer(layer);
  const int32_t z = moe ? MoeForward(layer, middle[1], keeps, &kept) : Sum(forward(kMlp, {Whole(kept.n2)}, {{t, h}}, keeps)[0]);
  return forward(kResidual, {middle[0], z}, {{r, h}}, false)[0];
}

int32_t StageProgram::LayerData(int64_t layer, int32_t gradient) {
  using enum ModelPart;
  const int64_t t = f_.tokens(), r = f_.rows(), h = model_.hidden;
  const int64_t q = model_.heads * model_.head_dim / s_.tp, kv = 2 * model_.kv_heads * model_.head_dim / s_.tp;
  const bool again = s_.recompute != Recompute::kNone && Recomputes(layer);
  if (again && s_.recompute == Recompute::kFull) LayerForward(layer, kept_.at({layer, micro_batch_}).x, true, true);
  const Kept kept = kept_.extract({layer, int64_t{micro_batch_}}).mapped();
  if (again && s_.recompute == Recompute::kSelective && s_.cp == 1)  // context ranks keep no scores
    One(StepAction::kForward, kAttentionCore, layer, {kept.q, kept.kv}, {t, q}, true);
  const auto data = [&](ModelPart part, std::vector<int32_t> in, std::vector<ValueShape> out) {
    return Compute(StepAction::kData, part, layer, std::move(in), std::move(out));
  };
  const bool shards = s_.sequence_parallel;  // only the shard of a product's input was kept
  const auto of_mlp = [&] {
    const int32_t partial = data(kMlp, {Whole(gradient)}, {{t, h}})[0];
    Weights(kMlp, layer, kept.n2, shards);
    return Sum(partial);
  };
  const int32_t of_n2 = model_.IsMoeLayer(layer) ? MoeData(layer, gradient, kept) : of_mlp();
  const int32_t middle = data(kMlpNorm, {gradient, of_n2}, {{r, h}})[0];
  Contributed(kMlpNorm, layer);
  const int32_t of_core = data(kAttentionOut, {Whole(middle)}, {{t, q}})[0];
  Weights(kAttentionOut, layer, kept.o, false);
  const std::vector<int32_t> qkv =
      s_.cp > 1 ? ContextData(layer, of_core, kept) : data(kAttentionCore, {of_core}, {{t, q}, {t, kv}});
  const int32_t of_qkv = data(kQkv, qkv, {{t, h}})[0];
  Weights(kQkv, layer, kept.n, shards);
  const int32_t out = data(kAttentionNorm, {Sum(of_qkv), middle}, {{r, h}})[0];
  Contributed(kAttentionNorm, layer);
  return out;
}

void StageProgram::Weights(ModelPart part, int64_t layer, int32_t input, bool gathers) {
  if (collect_ != nullptr) {
    collect_->push_back({part, layer, input, gathers});
    return;
  }
  Compute(StepAction::kWeight, part, layer, {gathers ? Whole(input) : input}, {});
  // A tied head on the embedding's stage adds to the embedding's table.
  Contributed(part, layer);
}

void StageProgram::Send(int64_t virtual_stage, int32_t x, bool back) {
  const int64_t to = PlaceOf(s_.schedule, back ? virtual_stage - 1 : virtual_stage + 1, s_.pp).stage;
  const Message message{virtual_stage, micro_batch_, back};
  if (to == stage_) {  // the turn of a V
    mail_[message] = x;
    return;
  }
  const bool slices = s_.tp > 1 && !s_.sequence_parallel;  // every tensor rank sends its share
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
    const int32_t value = Value(f_.tokens() / s_.tp, model_.hidden);
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
  if (from == stage_ || s_.tp == 1 || s_.sequence_parallel) return value;
  return Collective(StepAction::kAllGather, f_.groups.tensor, value, {f_.tokens(), model_.hidden});
}

}  // namespace weft::planner::parallelism
