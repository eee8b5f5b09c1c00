// What a model computes besides its shapes: constants of rotations, norms, activation, router and attention. Costs hardly
// depend on them; the files that frameworks are given do.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::planner::inline workload {

/// Of the MLP; in a gated one (ModelSpec::gated_mlp) of the gate. kGelu is exact (erf), kGeluTanh its approximation,
/// kQuickGelu x·sigmoid(1.702 x), kRelu2 the square of ReLU.
enum class Activation : uint8_t { kGelu, kGeluTanh, kQuickGelu, kSilu, kRelu, kRelu2 };

/// How rotations are stretched beyond the positions that a model was first trained with.
enum class RopeScaling : uint8_t { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongRope };

/// Rotary positions. Of a model with ModelSpec::learned_positions nothing here counts.
/// Source: arXiv 2104.09864; linear 2306.15595; yarn 2309.00071; llama3 2407.21783; longrope 2402.13753.
struct RopeNumerics {
  double theta = 10'000;
  double local_theta = 0;          ///< of the layers with a window (gemma3), never scaled; 0: theta, scaled as the others
  double fraction = 1;             ///< share of a head's width that is rotated (partial_rotary_factor); 0: none at all
  bool interleaved = false;        ///< pairs are neighbours (deepseek_v3, llama4), not a half width apart
  std::vector<bool> skipped_layers;   ///< llama4: those without rotation; empty: none, else one entry per layer
  std::vector<int64_t> sections;   ///< qwen2_vl: pairs that follow time, height and width; for text alone all are one

  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;               ///< of stretch; all kinds but kNone
  int64_t original_positions = 0;  ///< before stretching; 0: not said, ModelSpec::max_positions
  double attention_factor = 0;     ///< kYarn, kLongRope: on cosines and sines; 0: the method's own, from `factor`
  double beta_fast = 32;           ///< kYarn
  double beta_slow = 1;            ///< kYarn
  double mscale = 0;               ///< kYarn of deepseek: attention factor and score scale; 0: not said
  double mscale_all_dim = 0;
  bool truncate = true;            ///< kYarn: its bounds are whole dimensions; false for gpt_oss
  double low_frequency_factor = 1;    ///< kLlama3
  double high_frequency_factor = 4;   ///< kLlama3
  std::vector<double> short_factors;  ///< kLongRope, one per rotated pair
  std::vector<double> long_factors;

  friend bool operator==(const RopeNumerics&, const RopeNumerics&) = default;
};

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

/// How an MoE model's tokens choose experts. Source: arXiv 2401.04088 section 2, 2405.04434 section 2.1.2, 2412.19437 section
/// 2.1.2.
struct RouterNumerics {
  RouterScore score = RouterScore::kSoftmax;
  bool normalise_top_k = true;     ///< the chosen experts' scores are made to sum to one
  int64_t groups = 1;              ///< experts stand in so many groups …
  int64_t groups_per_token = 1;    ///< … of which a token uses the best so many
  bool expert_bias = false;        ///< a correction per expert enters the choice, not the weight; a buffer, no parameter
  double scaling_factor = 1;       ///< on the chosen scores
  double aux_loss = 0;             ///< coefficient of the balance loss
  bool aux_loss_per_sequence = false;
  double jitter = 0;               ///< noise on the router's input in training
  bool scores_on_input = false;    ///< scores multiply an expert's input, not its output (llama4)

  /// Softmax over all experts before the choice. A normalised choice is a softmax over the chosen alone, behind the choice.
  bool PreSoftmax() const { return score == RouterScore::kSoftmax && !normalise_top_k; }
  friend bool operator==(const RouterNumerics&, const RouterNumerics&) = default;
};

struct ModelNumerics {
  RopeNumerics rope;
  RouterNumerics router;
  Activation activation = Activation::kGeluTanh;
  double glu_limit = 0;             ///< a gated MLP's two inputs are clamped to it (gpt_oss); 0: not
  double glu_offset = 0;            ///< added to the gated MLP's linear input (gpt_oss: 1)
  double norm_epsilon = 1e-5;
  bool norm_weight_plus_one = false;   ///< norms multiply by 1 + weight (gemma)
  bool query_key_l2_norm = false;   ///< llama4: norm of rotated Q and K without weights; see ModelSpec::query_key_norm
  double attention_scale_width = 0;   ///< scores are divided by its root; 0: the width of a query head
  double attention_softcap = 0;     ///< scores pass c·tanh(x / c) (gemma2); 0: not
  double logit_softcap = 0;         ///< so do the logits; 0: not
  double temperature_floor = 0;     ///< llama4: queries of layers without rotation grow by
  double temperature_scale = 0;     ///<   1 + scale·ln(1 + ⌊(position + 1) / floor⌋); scale 0: not
  double embedding_scale = 1;       ///< on the token embedding (gemma: √hidden)
  double attention_dropout = 0;
  double hidden_dropout = 0;
  double embedding_dropout = 0;
  double initializer_range = 0.02;  ///< standard deviation of fresh weights
  int64_t mtp_layers = 0;           ///< multi-token prediction modules that the file has; no cost or count includes them

  friend bool operator==(const ModelNumerics&, const ModelNumerics&) = default;
};

}  // namespace weft::planner::workload
