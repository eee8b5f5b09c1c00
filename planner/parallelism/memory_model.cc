#include "planner/parallelism/memory_model.h"

#include <algorithm>
#include <cmath>

#include "planner/parallelism/tensor_grid.h"
#include "planner/tasks/pipeline.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;

double Tokens(const JobSpec& job, const LayerKey& key) {
  return static_cast<double>(key.micro_batch * job.sequence) / static_cast<double>(key.cp);
}

/// Values of attention that tp divides, per token: queries, keys, values, output; latents are not divided.
FractionalBytes AttentionBytes(const ModelSpec& model, double t, FractionalBytes w, FractionalBytes input, bool fused) {
  const double heads = static_cast<double>(model.heads);
  const FractionalBytes log_sums(fused ? 4 * heads / t : 0);
  if (model.attention == Attention::kLatent) {
    const FractionalBytes latents = w * static_cast<double>(model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim);
    const FractionalBytes wide = (w * static_cast<double>(2 * model.QueryWidth() + model.ValueWidth()) +
                                  input * static_cast<double>(model.ValueWidth())) / t;
    return latents + wide + log_sums;
  }
  const double kv = std::max(static_cast<double>(model.kv_heads) / t, 1.0) * static_cast<double>(model.head_dim);
  return (w + input) * heads * static_cast<double>(model.head_dim) / t + w * 2 * kv + log_sums;
}

/// The inputs of the activation and its product, which is the second product's input and narrow where that is.
FractionalBytes MlpBytes(double inner, bool gated, FractionalBytes w, FractionalBytes input) {
  return inner * (w * (gated ? 2 : 1) + input);
}

/// Router logits, the copies as dispatched, inside the experts, and as combined; shared experts.
FractionalBytes MoeBytes(const ModelSpec& model, const LayerKey& key, FractionalBytes w, FractionalBytes input) {
  const double t = static_cast<double>(key.tp), etp = static_cast<double>(key.etp);
  const double copies = static_cast<double>(model.experts_per_token) * etp / t;
  const double inner = static_cast<double>(model.expert_ffn_hidden) / etp;
  const double hidden = static_cast<double>(model.hidden);
  // The combine's weights are folded into the activation: the copies' outputs are not kept.
  const FractionalBytes routed = copies * (input * hidden + MlpBytes(inner, model.gated_mlp, w, input));
  const FractionalBytes shared =
      MlpBytes(static_cast<double>(model.shared_experts * model.shared_expert_ffn_hidden) / t, model.gated_mlp, w, input);
  return FractionalBytes(4 * static_cast<double>(model.experts) / t) + routed + shared;
}

/// Per token, what --recompute-modules frees: the norm before the experts and the one before latent attention, which are
/// modules of their own (Transformer Engine fuses the others into the products behind them); the product of the experts'
/// activation; queries, keys and values projected up from latents.
/// Source: Megatron-LM core_v0.19.0, transformer_layer.py, models/gpt/gpt_layer_specs.py, transformer_config.py.
FractionalBytes MegatronModules(const ModelSpec& model, const LayerKey& key, FractionalBytes input, double spread, bool moe) {
  const double t = static_cast<double>(key.tp), hidden = static_cast<double>(model.hidden);
  const bool latent = model.attention == Attention::kLatent;
  FractionalBytes bytes = ((latent ? 1 : 0) + (moe ? 1 : 0)) * input * hidden / spread;
  if (moe) bytes += input * static_cast<double>(model.experts_per_token * model.expert_ffn_hidden) / t;
  if (latent) bytes += FractionalBytes(2 * static_cast<double>(2 * model.QueryWidth() + model.ValueWidth()) / t);
  return bytes;
}

/// Per token, what torch's selective checkpoints per operator keep: the layer's input, attention's output and log-sums, of
/// the products in the order q, k, v, output, gate, up, down the first, third, fifth and seventh, and what tensor
/// parallelism scatters. The last product is kept as it comes, before it is summed over tp. Of experts what was dispatched
/// and combined; their products run again.
/// Source: torchtitan v0.2.2, distributed/activation_checkpoint.py and models/llama3/infra/parallelize.py.
FractionalBytes SavedByOperator(const ModelSpec& model, const LayerKey& key, FractionalBytes w, bool moe) {
  const double t = static_cast<double>(key.tp), hidden = static_cast<double>(model.hidden);
  const double query = static_cast<double>(model.QueryWidth()), value = static_cast<double>(model.ValueWidth());
  const double kv = model.attention == Attention::kLatent ? query : static_cast<double>(model.kv_heads * model.head_dim);
  const FractionalBytes attention = w * (query + kv + value) / t + FractionalBytes(4 * static_cast<double>(model.heads) / t);
  const double inner = static_cast<double>(moe ? model.shared_experts * model.shared_expert_ffn_hidden : model.ffn_hidden);
  FractionalBytes bytes =
      w * hidden / t + attention + w * inner / t + w * hidden + (key.tp > 1 ? 2 * w * hidden / t : FractionalBytes());
  if (moe) bytes += 2 * w * hidden * static_cast<double>(model.experts_per_token) / t;
  return bytes;
}

/// What a cube of tensor ranks keeps of a layer besides (tensor_grid.h): its products' inputs from all of a side, and matrices.
FractionalBytes KeptByCube(const JobSpec& job, const LayerKey& key, FractionalBytes w) {
  if (!GridOf(key.tensor_mode, key.tp, key.tensor_depth).cube) return {};
  const ModelSpec& m = job.model;
  const double h = static_cast<double>(m.hidden), f = static_cast<double>(m.ffn_hidden);
  const double query = static_cast<double>(m.QueryWidth());
  const double kv = static_cast<double>(2 * m.kv_heads * m.head_dim), t = static_cast<double>(key.tp), q = std::cbrt(t);
  const double inputs = 2 * h + query + f, matrices = h * (2 * query + kv) + (m.gated_mlp ? 3 : 2) * h * f;
  return w * (Tokens(job, key) * inputs * (q - 1) / t + matrices * q / t);
}

/// Per logit at the loss's peak: 16 bits; unless fused an fp32 copy, and without tp its gradient.
FractionalBytes LossBytes(const SoftwareStack& stack, FractionalBytes w, int64_t tp) {
  if (stack.loss_bytes > 0) return FractionalBytes(stack.loss_bytes);
  return stack.fused_loss ? w : w + 4_B + (tp > 1 ? 0_B : 4_B);
}

/// Interleaving wants p | m; a partial last round holds no more than a whole one.
int64_t WholeRounds(ScheduleKind schedule, int64_t pp, int64_t micro_batches) {
  if (schedule != ScheduleKind::kInterleaved || micro_batches % pp == 0) return micro_batches;
  return micro_batches + pp - micro_batches % pp;
}

/// What one stage holds, kind by kind.
class StageAccount {
 public:
  StageAccount(const JobSpec& job, const SoftwareStack& stack, const Strategy& s, const StateBytes& state, const StageShape& shape,
               std::vector<Holding>* pieces)
      : job_(job), stack_(stack), s_(s), state_(state), shape_(shape), pieces_(pieces), replicas_(static_cast<double>(s.dp * s.cp)),
        shards_(s.shard_group > 0 ? static_cast<double>(s.shard_group) : replicas_),
        parameters_(shape.dense_parameters + shape.edge_parameters + shape.expert_parameters), divided_(parameters_) {
    if (s.zero_stage == 0) return;
    const double expert_shards = std::min(shards_, std::max(1.0, static_cast<double>(ExpertDp(s))));
    divided_ = (shape.dense_parameters + shape.edge_parameters) / shards_ + shape.expert_parameters / expert_shards;
  }

  /// Parameters, gradients and optimizer; what lives as long as they do.
  void AddState(int64_t micro_batches) {
    using enum HoldingPart;
    Put("parameters", kParameters, state_.parameter * Held(3));
    if (Kept()) Put("gathered parameters", kParameters, state_.gathered * parameters_);
    const bool whole = GradientsStayWhole(stack_, s_);
    Put("gradients", kGradients, state_.gradient * (whole && !stack_.accumulates_whole ? parameters_ : Held(2)));
    if (whole && stack_.accumulates_whole && micro_batches > 1) Put("unsharded gradients", kGradients, state_.gathered * parameters_);
    if (s_.gradient_wire == GradientWire::kFp8) Put("rounding remainders", kGradients, kRemainderBytes * parameters_);
    // Interleaved, a chunk's gradients are summed over a round of micro-batches before they are scattered: whole until then.
    if (ReducesByRound(stack_, s_)) Put("gradients of a round", kGradients, state_.gradient * parameters_ / static_cast<double>(s_.vpp));
    Put("optimizer", kOptimizer, state_.optimizer * Held(1));
    if (replicas_ > 1 && state_.exchange_copy.count() > 0) Put("exchange copy", kTransient, state_.exchange_copy * parameters_);
    if (s_.data_sync == DataSync::kGossip) Put("neighbour's parameters", kTransient, state_.parameter * parameters_);
  }

  /// What forward passes leave for their backward passes.
  void AddActivations(const LayerBytes& dense, const LayerBytes& moe, int64_t stage, int64_t micro_batches) {
    const double layers = shape_.dense_layers + shape_.moe_layers;
    FractionalBytes chosen = shape_.dense_layers * dense.At(s_.recompute) + shape_.moe_layers * moe.At(s_.recompute);
    if (s_.recompute != Recompute::kNone && s_.recompute_layers >= 0 && layers > 0) {
      const double share = std::min(1.0, static_cast<double>(s_.recompute_layers) / layers);
      chosen = share * chosen + (1 - share) * (shape_.dense_layers * dense.none + shape_.moe_layers * moe.none);
    }
    const Holding of_chunk{"activations", HoldingPart::kActivations, HoldingSpan::kMicroBatch, HoldingChunks::kAll,
                           Whole(chosen / static_cast<double>(s_.vpp))};
    Hold(of_chunk, ChunksHeld(s_.schedule, stage, s_.pp, s_.vpp, micro_batches), memory_, pieces_);
    if (!shape_.first || !job_.model.KeepsDropoutMasks()) return;
    const Holding masks{"embedding's dropout masks", HoldingPart::kTransient, HoldingSpan::kMicroBatch, HoldingChunks::kFirst,
                        Whole(FractionalBytes(Tokens(job_, KeyOf(s_)) * Hidden()))};
    Hold(masks, FirstChunkInFlight(s_.schedule, s_.pp, WholeRounds(s_.schedule, s_.pp, micro_batches), s_.vpp), memory_, pieces_);
  }

  /// What exists while a pass runs.
  void AddPasses(const LayerBytes& dense, const LayerBytes& moe) {
    using enum HoldingSpan;
    // While a layer is recomputed all of it exists beside the inputs of the others; products saved before they are summed can be more.
    if (s_.recompute != Recompute::kNone) {
      const LayerBytes& larger = moe.none > dense.none && shape_.moe_layers > 0 ? moe : dense;
      const FractionalBytes dropped = larger.none - larger.At(s_.recompute);
      Put("recomputed layer", HoldingPart::kTransient, std::max(FractionalBytes(), dropped), kBackward);
    }
    if (shape_.last && !job_.model.IsCnn()) {
      // The final norm's input and output, and the logits: 16 bits, an fp32 copy and its gradient unless fused.
      const double tokens = Tokens(job_, KeyOf(s_));
      const FractionalBytes w(StorageBytes(job_.precision));
      const double positions = HeadOnOnePosition(job_.model) ? static_cast<double>(s_.micro_batch) : tokens;
      const double logits = positions * static_cast<double>(HeadOutputs(job_.model)) / static_cast<double>(s_.tp);
      Put("logits", HoldingPart::kTransient, tokens * 2 * w * Hidden() + logits * LossBytes(stack_, w, s_.tp), kPass,
          HoldingChunks::kLast);
    }
    if (s_.zero_stage < (stack_.zero2_units ? 2 : 3) || shards_ <= 1) return;
    const double unit = shape_.unit_parameters;
    if (s_.zero_stage == 3 && !Kept()) {
      Put("units in use", HoldingPart::kTransient, UnitPeak(stack_, state_, unit, unit), kPass);
    } else if (!GradientsStayWhole(stack_, s_) && !ReducesByRound(stack_, s_)) {
      Put("units in use", HoldingPart::kTransient, UnitPeak(stack_, state_, 0, unit), kPass);
    }
  }

  const MemoryUse& memory() const { return memory_; }

 private:
  bool Kept() const { return s_.zero_stage == 3 && s_.keep_after_forward; }

  /// Parameters on one rank of what is divided from this ZeRO stage on.
  double Held(int64_t from_stage) const { return s_.zero_stage < from_stage ? parameters_ : divided_; }

  /// Width of the residual stream on one rank.
  double Hidden() const {
    const bool split = s_.sequence_parallel || s_.tensor_mode != TensorMode::k1D;
    return static_cast<double>(job_.model.hidden) / (split ? static_cast<double>(s_.tp) : 1);
  }

  /// Inline, so that the part is a constant.
  [[gnu::always_inline]] void Put(std::string_view what, HoldingPart part, FractionalBytes bytes,
                                  HoldingSpan span = HoldingSpan::kIteration, HoldingChunks chunks = HoldingChunks::kAll) {
    Hold({what, part, span, chunks, Whole(bytes)}, 1, memory_, pieces_);
  }

  const JobSpec& job_;
  const SoftwareStack& stack_;
  const Strategy& s_;
  const StateBytes& state_;
  const StageShape& shape_;
  std::vector<Holding>* pieces_;
  double replicas_, shards_, parameters_, divided_;  // parameters on one rank, whole and divided over the shards
  MemoryUse memory_;
};

}  // namespace

StateBytes StateBytesOf(StateScheme scheme, Precision precision, bool gradients_16bit) {
  if (StorageBytes(precision) == 4) return {4_B, 4_B, 8_B, 4_B, 4_B};
  switch (scheme) {
    case StateScheme::kMegatron:
      if (precision == Precision::kFp16) return {2_B, 6_B, 12_B, 2_B, 2_B};
      return {2_B, 4_B, 12_B, 2_B, gradients_16bit ? 2_B : 4_B};
    case StateScheme::kZeroPaper: return {2_B, 2_B, 12_B, 2_B, 2_B};
    case StateScheme::kDeepSpeed:
      if (precision == Precision::kFp16) return {2_B, 2_B, 16_B, 2_B, 2_B};
      return {2_B, 6_B, 12_B, 2_B, 2_B, 2_B};
    case StateScheme::kInternEvo: return {2_B, 2_B, 16_B, 2_B, 2_B};
    case StateScheme::kFp32Master: return {4_B, 4_B, 8_B, 2_B, gradients_16bit ? 2_B : 4_B};
    case StateScheme::kPure16: return {4_B, 4_B, 8_B, 2_B, 2_B};
    case StateScheme::kAll16: return {2_B, 2_B, 4_B, 2_B, 2_B};
    case StateScheme::kNanotron: return {2_B, 6_B, 12_B, 2_B, 4_B};
  }
  return {};
}

LayerBytes ComputeLayerBytes(const JobSpec& job, const SoftwareStack& stack, const LayerKey& key, bool moe) {
  const ModelSpec& model = job.model;
  const FractionalBytes w(StorageBytes(job.precision));
  const double t = static_cast<double>(key.tp), tokens = Tokens(job, key);
  const double hidden = static_cast<double>(model.hidden);
  const bool scores = KeepsScores(model, stack);
  const bool all_split = key.sequence_parallel || key.tensor_mode != TensorMode::k1D;
  const double spread = all_split ? t : 1;
  // What a narrow product reads is kept as it reads it.
  const bool narrow = job.precision == Precision::kFp8 || job.precision == Precision::kFp4;
  const FractionalBytes input = narrow ? 1_B : w;
  FractionalBytes bytes = ((2 * w + 2 * input) * hidden + (model.KeepsDropoutMasks() ? 2_B * hidden : FractionalBytes())) / spread;
  if (model.norm_placement == NormPlacement::kSandwich) bytes += 2 * w * hidden / spread;  // what the second norms take
  bytes += AttentionBytes(model, t, w, input, !scores);
  // Operator by operator a norm keeps its input in fp32, and the gate its activation beside the product.
  if (model.rms_norm && stack.kernels.rms_norm > 2) bytes += 2 * 4_B * hidden / spread;
  if (!moe && model.gated_mlp && stack.kernels.gate > 3) bytes += w * static_cast<double>(model.ffn_hidden) / t;
  bytes += moe ? MoeBytes(model, key, w, input)
                   : MlpBytes(static_cast<double>(model.ffn_hidden) / t, model.gated_mlp, w, input);
  LayerBytes layer;
  layer.selective = tokens * bytes + KeptByCube(job, key, w);
  layer.none = layer.selective;
  if (scores) {
    const FractionalBytes per_score = w + (model.KeepsDropoutMasks() ? 1_B + w : FractionalBytes());
    layer.none += per_score * tokens * static_cast<double>(job.sequence * model.heads) / t;
  }
  if (!stack.selective.scores) layer.selective = layer.none;
  if (stack.selective.cheap_modules && !scores) layer.selective -= tokens * MegatronModules(model, key, input, spread, moe);
  if (stack.selective.moe_block && moe) layer.selective = layer.none - tokens * MoeBytes(model, key, w, input);
  if (stack.selective.every_second_product) layer.selective = tokens * SavedByOperator(model, key, w, moe);
  layer.full = tokens * stack.checkpoint_inputs * w * hidden / spread;
  return layer;
}

int64_t ChunksHeld(ScheduleKind schedule, int64_t stage, int64_t pp, int64_t vpp, int64_t micro_batches) {
  return InFlight(schedule, stage, pp, WholeRounds(schedule, pp, micro_batches), vpp);
}

void WritePiece(const Holding& piece, std::vector<Holding>& pieces) {
  if (piece.bytes > Bytes(0)) pieces.push_back(piece);
}

MemoryUse StageMemory(const JobSpec& job, const SoftwareStack& stack, const Strategy& s, const StateBytes& state,
                      const LayerBytes& dense, const LayerBytes& moe, const StageShape& shape, int64_t stage,
                      int64_t micro_batches, std::vector<Holding>* pieces) {
  StageAccount account(job, stack, s, state, shape, pieces);
  account.AddState(micro_batches);
  account.AddActivations(dense, moe, stage, micro_batches);
  account.AddPasses(dense, moe);
  return account.memory();
}

}  // namespace weft::planner::parallelism
