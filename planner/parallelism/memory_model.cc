#include "planner/parallelism/memory_model.h"

#include <algorithm>
#include <cmath>

#include "planner/tasks/pipeline.h"

namespace weft::planner::inline parallelism {
namespace {

/// To the nearest; std::llround is a call. Requires: 0 ≤ bytes < 2⁵².
Bytes Whole(double bytes) { return Bytes(static_cast<int64_t>(bytes + 0.5)); }

double Tokens(const JobSpec& job, const LayerKey& key) {
  return static_cast<double>(key.micro_batch * job.sequence) / static_cast<double>(key.cp);
}

/// Values of attention that tp divides, per token: queries, keys, values, output; latents are not divided.
double AttentionBytes(const ModelSpec& model, double t, double w, double input, bool fused) {
  const double heads = static_cast<double>(model.heads);
  const double log_sums = fused ? 4 * heads / t : 0;
  if (model.attention == Attention::kLatent) {
    const double latents = w * static_cast<double>(model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim);
    const double wide = (w * static_cast<double>(2 * model.QueryWidth() + model.ValueWidth()) +
                         input * static_cast<double>(model.ValueWidth())) / t;
    return latents + wide + log_sums;
  }
  const double kv = std::max(static_cast<double>(model.kv_heads) / t, 1.0) * static_cast<double>(model.head_dim);
  return (w + input) * heads * static_cast<double>(model.head_dim) / t + w * 2 * kv + log_sums;
}

/// The inputs of the activation and its product, which is the second product's input and narrow where that is.
double MlpBytes(double inner, bool gated, double w, double input) { return inner * (w * (gated ? 2 : 1) + input); }

/// Router logits, the copies as dispatched, inside the experts, and as combined; shared experts.
double MoeBytes(const ModelSpec& model, const LayerKey& key, double w, double input) {
  const double t = static_cast<double>(key.tp), etp = static_cast<double>(key.etp);
  const double copies = static_cast<double>(model.experts_per_token) * etp / t;
  const double inner = static_cast<double>(model.expert_ffn_hidden) / etp;
  const double hidden = static_cast<double>(model.hidden);
  // The combine's weights are folded into the activation: the copies' outputs are not kept.
  const double routed = copies * (input * hidden + MlpBytes(inner, model.gated_mlp, w, input));
  const double shared = MlpBytes(static_cast<double>(model.shared_experts * model.shared_expert_ffn_hidden) / t,
                                 model.gated_mlp, w, input);
  return 4 * static_cast<double>(model.experts) / t + routed + shared;
}

/// Per token, what --recompute-modules frees: the norm before the experts and the one before latent attention, which are
/// modules of their own (Transformer Engine fuses the others into the products behind them); the product of the experts'
/// activation; queries, keys and values projected up from latents.
/// Source: Megatron-LM core_v0.19.0, transformer_layer.py, models/gpt/gpt_layer_specs.py, transformer_config.py.
double MegatronModules(const ModelSpec& model, const LayerKey& key, double input, double spread, bool moe) {
  const double t = static_cast<double>(key.tp), hidden = static_cast<double>(model.hidden);
  const bool latent = model.attention == Attention::kLatent;
  double bytes = ((latent ? 1 : 0) + (moe ? 1 : 0)) * input * hidden / spread;
  if (moe) bytes += input * static_cast<double>(model.experts_per_token * model.expert_ffn_hidden) / t;
  if (latent) bytes += 2 * static_cast<double>(2 * model.QueryWidth() + model.ValueWidth()) / t;
  return bytes;
}

/// Per token, what torch's selective checkpoints per operator keep: the layer's input, attention's output and log-sums, of
/// the products in the order q, k, v, output, gate, up, down the first, third, fifth and seventh, and what tensor
/// parallelism scatters. The last product is kept as it comes, before it is summed over tp. Of experts what was dispatched
/// and combined; their products run again.
/// Source: torchtitan v0.2.2, distributed/activation_checkpoint.py and models/llama3/infra/parallelize.py.
double SavedByOperator(const ModelSpec& model, const LayerKey& key, double w, bool moe) {
  const double t = static_cast<double>(key.tp), hidden = static_cast<double>(model.hidden);
  const double query = static_cast<double>(model.QueryWidth()), value = static_cast<double>(model.ValueWidth());
  const double kv = model.attention == Attention::kLatent ? query : static_cast<double>(model.kv_heads * model.head_dim);
  const double attention = w * (query + kv + value) / t + 4 * static_cast<double>(model.heads) / t;
  const double inner = static_cast<double>(moe ? model.shared_experts * model.shared_expert_ffn_hidden : model.ffn_hidden);
  double bytes = w * hidden / t + attention + w * inner / t + w * hidden + (key.tp > 1 ? 2 * w * hidden / t : 0);
  if (moe) bytes += 2 * w * hidden * static_cast<double>(model.experts_per_token) / t;
  return bytes;
}

/// Per logit at the loss's peak: 16 bits; unless fused an fp32 copy, and without tp its gradient.
double LossBytes(const SoftwareStack& stack, double w, int64_t tp) {
  if (stack.loss_bytes > 0) return stack.loss_bytes;
  return stack.fused_loss ? w : w + 4 + (tp > 1 ? 0 : 4);
}

}  // namespace

StateBytes StateBytesOf(StateScheme scheme, Precision precision, bool gradients_16bit) {
  if (StorageBytes(precision) == 4) return {4, 4, 8, 4, 4};
  switch (scheme) {
    case StateScheme::kMegatron:
      if (precision == Precision::kFp16) return {2, 6, 12, 2, 2};
      return {2, 4, 12, 2, gradients_16bit ? 2.0 : 4.0};
    case StateScheme::kZeroPaper: return {2, 2, 12, 2, 2};
    case StateScheme::kDeepSpeed:
      if (precision == Precision::kFp16) return {2, 2, 16, 2, 2};
      return {2, 6, 12, 2, 2, 2};
    case StateScheme::kInternEvo: return {2, 2, 16, 2, 2};
    case StateScheme::kFp32Master: return {4, 4, 8, 2, gradients_16bit ? 2.0 : 4.0};
    case StateScheme::kPure16: return {4, 4, 8, 2, 2};
  }
  return {};
}

LayerBytes ComputeLayerBytes(const JobSpec& job, const SoftwareStack& stack, const LayerKey& key, bool moe) {
  const ModelSpec& model = job.model;
  const double w = StorageBytes(job.precision), t = static_cast<double>(key.tp), tokens = Tokens(job, key);
  const double hidden = static_cast<double>(model.hidden);
  const bool scores = KeepsScores(model, stack);
  const bool all_split = key.sequence_parallel || key.tensor_mode != TensorMode::k1D;
  const double spread = all_split ? t : 1;
  // What a narrow product reads is kept as it reads it.
  const bool narrow = job.precision == Precision::kFp8 || job.precision == Precision::kFp4;
  const double input = narrow ? 1 : w;
  double bytes = ((2 * w + 2 * input) * hidden + (model.KeepsDropoutMasks() ? 2 * hidden : 0)) / spread;
  if (model.norm_placement == NormPlacement::kSandwich) bytes += 2 * w * hidden / spread;  // what the second norms take
  bytes += AttentionBytes(model, t, w, input, !scores);
  bytes += moe ? MoeBytes(model, key, w, input)
                   : MlpBytes(static_cast<double>(model.ffn_hidden) / t, model.gated_mlp, w, input);
  LayerBytes layer;
  layer.selective = tokens * bytes;
  layer.none = layer.selective;
  if (scores) {
    const double per_score = w + (model.KeepsDropoutMasks() ? 1 + w : 0);
    layer.none += per_score * tokens * static_cast<double>(job.sequence * model.heads) / t;
  }
  if (!stack.selective.scores) layer.selective = layer.none;
  if (stack.selective.cheap_modules && !scores) layer.selective -= tokens * MegatronModules(model, key, input, spread, moe);
  if (stack.selective.every_second_product) layer.selective = tokens * SavedByOperator(model, key, w, moe);
  layer.full = tokens * stack.checkpoint_inputs * w * hidden / spread;
  return layer;
}

double MicroBatchesHeld(ScheduleKind schedule, int64_t stage, int64_t pp, int64_t vpp, int64_t micro_batches) {
  if (schedule == ScheduleKind::kInterleaved && micro_batches % pp != 0) {
    // The classical form wants p | m; a partial last round holds no more than a whole one.
    micro_batches += pp - micro_batches % pp;
  }
  return static_cast<double>(InFlight(schedule, stage, pp, micro_batches, vpp)) / static_cast<double>(vpp);
}

MemoryUse StageMemory(const JobSpec& job, const SoftwareStack& stack, const Strategy& s, const StateBytes& state,
                      const LayerBytes& dense, const LayerBytes& moe, const StageShape& shape, int64_t stage,
                      int64_t micro_batches) {
  const double replicas = static_cast<double>(s.dp * s.cp);
  const double shards = s.shard_group > 0 ? static_cast<double>(s.shard_group) : replicas;
  const double expert_shards = std::min(shards, std::max(1.0, static_cast<double>(ExpertDp(s))));
  const double plain = shape.dense_parameters + shape.edge_parameters, experts = shape.expert_parameters;
  const auto held = [&](int64_t from_stage) {
    return s.zero_stage >= from_stage ? plain / shards + experts / expert_shards : plain + experts;
  };
  MemoryUse memory;
  const bool kept = s.zero_stage == 3 && s.keep_after_forward;
  memory.parameters = Whole(state.parameter * held(3) + (kept ? state.gathered * (plain + experts) : 0));
  const bool whole = GradientsStayWhole(stack, s);
  memory.gradients = Whole(state.gradient * (whole && !stack.accumulates_whole ? plain + experts : held(2)) +
                           (whole && stack.accumulates_whole && micro_batches > 1 ? state.gathered * (plain + experts) : 0));
  memory.optimizer = Whole(state.optimizer * held(1));
  if (s.gradient_wire == GradientWire::kFp8) memory.gradients += Whole(kRemainderBytes * (plain + experts));
  // Interleaved, a chunk's gradients are summed over a round of micro-batches before they are scattered: whole until then.
  if (ReducesByRound(stack, s)) memory.gradients += Whole(state.gradient * (plain + experts) / static_cast<double>(s.vpp));

  const double in_flight = MicroBatchesHeld(s.schedule, stage, s.pp, s.vpp, micro_batches);
  const double layers = shape.dense_layers + shape.moe_layers;
  double chosen = shape.dense_layers * dense.At(s.recompute) + shape.moe_layers * moe.At(s.recompute);
  if (s.recompute != Recompute::kNone && s.recompute_layers >= 0 && layers > 0) {
    const double share = std::min(1.0, static_cast<double>(s.recompute_layers) / layers);
    chosen = share * chosen + (1 - share) * (shape.dense_layers * dense.none + shape.moe_layers * moe.none);
  }
  memory.activations = Whole(in_flight * chosen);

  const LayerKey key = KeyOf(s);
  const double tokens = Tokens(job, key), t = static_cast<double>(s.tp), w = StorageBytes(job.precision);
  const double spread = key.sequence_parallel || key.tensor_mode != TensorMode::k1D ? t : 1;
  const double hidden = static_cast<double>(job.model.hidden);
  double transient = replicas > 1 ? state.exchange_copy * (plain + experts) : 0;
  if (s.data_sync == DataSync::kGossip) transient += state.parameter * (plain + experts);  // the neighbour's
  // While a layer is recomputed all of it exists beside the inputs of the others.
  if (s.recompute != Recompute::kNone) {
    const LayerBytes& larger = moe.none > dense.none && shape.moe_layers > 0 ? moe : dense;
    transient += larger.none - larger.At(s.recompute);
  }
  if (shape.first && job.model.KeepsDropoutMasks()) transient += in_flight * tokens * hidden / spread;
  if (shape.last && !job.model.IsCnn()) {
    // The final norm's input and output, and the logits: 16 bits, an fp32 copy and its gradient unless fused.
    const double positions = HeadOnOnePosition(job.model) ? static_cast<double>(s.micro_batch) : tokens;
    const double logits = positions * static_cast<double>(HeadOutputs(job.model)) / t;
    transient += tokens * 2 * w * hidden / spread + logits * LossBytes(stack, w, s.tp);
  }
  if (s.zero_stage == 3 && !kept && shards > 1) {
    // The unit in use, the one prefetched, and the gradient of one before it is reduced.
    transient += shape.unit_parameters * (2 * state.gathered + state.gradient_sent);
  }
  memory.transient = Whole(transient);
  return memory;
}

}  // namespace weft::planner::parallelism
