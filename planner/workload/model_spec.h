// A model as its config.json describes it: what costs are computed from, and its numerics. Transformers (decoders, dense or
// MoE models, encoders, of images) and 3D convolutional networks. formats/hf_config.h makes one;
// model_presets.h names some.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/workload/model_numerics.h"

namespace weft::planner::inline workload {

/// Families that differ in more than sizes. kLlama also stands for mistral, phi3, qwen2, qwen3 and the text of qwen2_vl;
/// kGemma for gemma2 and gemma3 (which norms its heads), kBert for roberta.
enum class Architecture {
  kGpt2, kLlama, kMixtral, kQwenMoe, kDeepSeek, kCnn3d, kGemma, kGptOss, kLlama4, kBert, kVit, kDit
};

/// kMultiHead: as many key/value heads as query heads; kGroupedQuery: fewer; kLatent: keys and values from a narrow latent.
enum class Attention { kMultiHead, kGroupedQuery, kLatent };

/// kPre: before attention and MLP, and a final one; kPost: behind each residual sum, no final one (bert); kSandwich: before
/// and behind both, and a final one (gemma2, gemma3).
enum class NormPlacement { kPre, kPost, kSandwich };

/// What a query of the layers in ModelSpec::local_layers sees: the last `attention_window` positions, or its own chunk of so
/// many (llama4).
enum class AttentionWindow { kNone, kSliding, kChunk };

/// What stands at the end. kVocabulary: logits of every token; kMaskedLanguage: a dense layer, an activation, a norm and the
/// logits with a bias (bert); kClasses: `classes` outputs of one token per sequence (vit); kPatches: `patch_outputs` of
/// every token (dit); kNone: the final norm alone.
enum class HeadKind { kVocabulary, kMaskedLanguage, kClasses, kPatches, kNone };

enum class Cnn3dKind { kConvolution, kTransposedConvolution, kPooling, kDense, kGlobalPooling };

/// One layer of a 3D CNN. On 'same' padding the output's extent is ceil(extent / stride), of a transposed convolution
/// extent · stride. A dense layer flattens its input; a global pooling is the mean over it, channel by channel. Two dimensions are
/// three with a depth of 1.
struct Cnn3dLayer {
  Cnn3dKind kind = Cnn3dKind::kConvolution;
  int64_t in_channels = 0;
  int64_t out_channels = 0;                  ///< of a dense layer: its outputs
  std::array<int64_t, 3> kernel{1, 1, 1};    ///< depth, height, width
  std::array<int64_t, 3> stride{1, 1, 1};
  std::array<int64_t, 3> extent{1, 1, 1};    ///< of the input: depth, height, width
  std::array<int64_t, 3> output{0, 0, 0};    ///< extent of the output on other padding; zeros: 'same'
  int64_t groups = 1;                        ///< of a convolution: an output sees in_channels / groups of the inputs
  bool bias = true;
  bool normalised = false;                   ///< batch or group norm behind it: 2 parameters per channel

  std::array<int64_t, 3> OutputExtent() const;
  int64_t InputElements() const { return in_channels * extent[0] * extent[1] * extent[2]; }  ///< of one sample
  friend bool operator==(const Cnn3dLayer&, const Cnn3dLayer&) = default;
};

struct ModelSpec {
  std::string name;
  Architecture architecture = Architecture::kGpt2;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;               ///< query heads
  int64_t kv_heads = 0;
  int64_t head_dim = 0;            ///< of query, key and value; latent attention has the three below instead
  int64_t ffn_hidden = 0;          ///< of dense layers
  int64_t vocab = 0;
  int64_t max_positions = 0;
  bool gated_mlp = false;          ///< SwiGLU: three matrices in place of two
  bool tied_embeddings = true;
  bool attention_bias = true;      ///< of Q, K and V
  bool mlp_bias = true;
  bool learned_positions = true;
  bool rms_norm = false;
  bool attention_output_bias = true;  ///< counts only together with attention_bias
  bool query_key_norm = false;        ///< RMSNorm over each head of Q and K, head_dim wide (qwen3)

  bool dropout = true;             ///< masks are kept; counts only for kGpt2 and kBert, see KeepsDropoutMasks()
  bool flash_attention = false;    ///< no scores are kept; every family but kGpt2 has it, see KeepsScores()

  Attention attention = Attention::kMultiHead;
  int64_t q_lora_rank = 0;         ///< kLatent: width of the query's latent, 0 without one
  int64_t kv_lora_rank = 0;        ///< kLatent: width of the latent of keys and values
  int64_t qk_nope_head_dim = 0;    ///< kLatent: of a query or key head, the part without rotation
  int64_t qk_rope_head_dim = 0;    ///< kLatent: the rotated part, of keys shared by all heads
  int64_t v_head_dim = 0;          ///< kLatent: of a value head

  int64_t experts = 0;             ///< routed experts of an MoE layer; 0: no MoE
  int64_t experts_per_token = 0;
  int64_t expert_ffn_hidden = 0;   ///< of one routed expert
  int64_t shared_experts = 0;      ///< run for every token
  int64_t shared_expert_ffn_hidden = 0;  ///< of one shared expert
  bool shared_expert_gate = false; ///< a hidden-wide gate on the shared experts' output (qwen2_moe)
  int64_t first_dense_layers = 0;  ///< this many layers at the start have a dense MLP
  int64_t moe_layer_period = 1;    ///< every such layer is an MoE layer: see IsMoeLayer()

  bool causal = true;              ///< false: every token sees all (bert, vit, dit)
  NormPlacement norm_placement = NormPlacement::kPre;
  AttentionWindow window_kind = AttentionWindow::kNone;
  int64_t attention_window = 0;    ///< positions; 0 with kNone
  std::vector<bool> local_layers;  ///< one entry per layer: whether it has the window; empty with kNone
  bool attention_sinks = false;    ///< a learned score per head that takes part in the softmax (gpt_oss)
  bool router_bias = false;        ///< a parameter per expert (gpt_oss), not RouterNumerics::expert_bias
  bool expert_mlp_bias = false;    ///< of the routed experts (gpt_oss); `mlp_bias` is of dense layers

  HeadKind head = HeadKind::kVocabulary;
  int64_t classes = 0;             ///< kClasses; with kMaskedLanguage those of a second head, 0 without one
  bool pooler = false;             ///< a dense layer on one token per sequence (bert, vit)
  int64_t token_types = 0;         ///< rows of bert's second embedding
  bool embedding_norm = false;     ///< a norm behind the embeddings (bert)
  int64_t reserved_positions = 0;  ///< rows of the learned positions that no token uses (roberta: 2)

  int64_t image_tokens = 0;        ///< kVit, kDit: what a sequence must be; 0: text
  int64_t patch_inputs = 0;        ///< kVit, kDit: channels × side² that the embedding takes in place of a token's row
  int64_t patch_outputs = 0;       ///< kDit
  int64_t condition_classes = 0;   ///< kDit: rows of the class embedding that every layer has of its own beside a time
                                   ///< step's, and from both six vectors that scale and shift (diffusers' ada_norm_zero)

  ModelNumerics numerics;

  std::vector<Cnn3dLayer> cnn_layers;  ///< kCnn3d only, `layers` of them; sizes above are then 0, max_positions 1

  bool IsMoe() const { return experts > 0; }
  bool IsCnn() const { return architecture == Architecture::kCnn3d; }
  /// Whether layer `layer` (from 0) routes to experts: qwen counts its period from 1, deepseek from 0.
  bool IsMoeLayer(int64_t layer) const;
  int64_t MoeLayers() const;
  bool KeepsDropoutMasks() const {
    return (architecture == Architecture::kGpt2 || architecture == Architecture::kBert) && dropout;
  }
  bool KeepsScores() const { return architecture == Architecture::kGpt2 && !flash_attention; }

  bool IsImage() const { return image_tokens > 0; }
  /// Whether queries and keys are rotated.
  bool Rotates() const { return !learned_positions && numerics.rope.fraction > 0; }
  /// Longest sequence that positions were made for.
  int64_t UsablePositions() const { return max_positions - reserved_positions; }
  bool IsLocalLayer(int64_t layer) const { return !local_layers.empty() && local_layers[static_cast<size_t>(layer)]; }

  /// Widths of all heads together as they enter the core of attention: queries (and full keys), values.
  int64_t QueryWidth() const;
  int64_t ValueWidth() const;

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

/// Parameters of the parts of one transformer layer, biases included. Of a dense layer router, routed and shared are 0, of
/// an MoE layer mlp is. `norms` holds the layer norms, and those of Q, K and the latents.
/// Source: parameter shapes of arXiv 2104.04473 section 5.1 (GPT), 2407.21783 table 3, 2401.04088, 2412.19437 section 2.1,
/// 2408.00118 (gemma2), 2508.10925 (gpt-oss), 1810.04805 (BERT), 2010.11929 (ViT), 2212.09748 (DiT).
struct LayerParameters {
  int64_t attention = 0;   ///< and the sinks
  int64_t mlp = 0;
  int64_t router = 0;      ///< and the shared experts' gate
  int64_t routed = 0;      ///< all experts
  int64_t shared = 0;
  int64_t norms = 0;
  int64_t modulation = 0;  ///< kDit: from the condition to six vectors, once per sample and not per token
  int64_t total() const { return attention + mlp + router + routed + shared + norms + modulation; }
};
LayerParameters LayerParametersOf(const ModelSpec& model, int64_t layer);

/// Parameters of layer `layer`, of a CNN too.
int64_t LayerParameterCount(const ModelSpec& model, int64_t layer = 0);

/// Parameters of the embedding (tokens or patches, learned positions, what HeadKind and the members behind it add) and of the
/// head (final norm, output matrix unless tied); 0 for a CNN.
int64_t EmbeddingParameterCount(const ModelSpec& model);
int64_t HeadParameterCount(const ModelSpec& model);

/// Outputs of the head at each position that it stands at: logits, classes or a patch's values; 0 without one.
int64_t HeadOutputs(const ModelSpec& model);

/// Whether the head stands at one position of a sequence instead of all.
bool HeadOnOnePosition(const ModelSpec& model);

/// Pairs of query and key that layer `layer`'s attention computes in one sequence: s² where every token sees all, s²/2 under
/// a causal mask, s·w − w²/2 in a sliding window of w < s, s·c/2 in chunks of c.
double AttendedPairs(const ModelSpec& model, int64_t layer, double sequence);

/// The same in the mean over the layers, of all s² pairs. Requires: no CNN.
double MeanAttendedShare(const ModelSpec& model, double sequence);

/// Keys per query where causal attention counts whole, as papers count work: twice its pairs, so s without a window.
double CountedKeys(const ModelSpec& model, int64_t layer, double sequence);

/// Parameters of the whole model, embeddings included, multi-token prediction modules excluded. Source: arXiv 2104.04473
/// eq. (2) for GPT; for the others the matrices' shapes.
int64_t ParameterCount(const ModelSpec& model);

/// Of these, what one token passes: experts_per_token of the routed experts, and everything else.
int64_t ActiveParameterCount(const ModelSpec& model);

}  // namespace weft::planner::workload
