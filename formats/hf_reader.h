// What the readers of Hugging Face families share: limits, and the groups of keys that many families have. Internal to
// formats/.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "formats/json_fields.h"
#include "planner/workload/model_spec.h"

namespace weft::formats {

// Far above any model there is; a model at all of these limits at once is refused.
inline constexpr int64_t kMaxLayers = 10'000;
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxExperts = 1 << 16;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxPositions = 1 << 28;
inline constexpr double kLeastNumber = 1e-12, kMostNumber = 1e15;

/// Stands for a model_type in diffusers' files.
inline constexpr std::string_view kDitClass = "DiTTransformer2DModel";

/// A model_type and the reader of its keys. The spec that it is given is a default one with a name.
struct HfFamily {
  std::string_view model_type;
  void (*read)(JsonFields& fields, planner::ModelSpec* model);
};
std::span<const HfFamily> DenseFamilies();
std::span<const HfFamily> MoeFamilies();
std::span<const HfFamily> EncoderFamilies();

/// Whether `key` of a `model_type` file is known not to matter for planning and training: why, or nothing.
std::string_view WhyIgnored(std::string_view model_type, std::string_view key);

/// What families take for keys that a file lacks.
struct ModernDefaults {
  bool tied = false;
  double epsilon = 1e-6;
  const char* activation_key = "hidden_act";
  std::string_view activation = "silu";
};
/// What all families since Llama share: sizes (those of the spec where a key is missing), RMS norms, rotary positions, gated
/// MLPs, fused attention, no biases.
void ReadModern(JsonFields& fields, planner::ModelSpec* model, const ModernDefaults& defaults = {});

/// num_key_value_heads (the spec's, or one per head) and head_dim. `head_dim` is the family's default; 0: hidden over heads.
void ReadHeads(JsonFields& fields, planner::ModelSpec* model, int64_t head_dim);

/// qwen2 and qwen3 without what MoE models add.
void ReadQwen2(JsonFields& fields, planner::ModelSpec* model);
void ReadQwen3(JsonFields& fields, planner::ModelSpec* model);

/// The activation at `key`; `otherwise` is the family's default.
void ReadActivation(JsonFields& fields, const char* key, std::string_view otherwise, planner::ModelSpec* model);
std::string_view ActivationName(planner::Activation activation);

struct RopeKeys {
  double theta = 10'000;       ///< the family's default
  double local_theta = 0;      ///< where the family has one for its local layers; 0: it has none
  bool sections = false;       ///< whether it reads mrope_section
};
/// rope_theta, partial_rotary_factor, rope_scaling (or rope_parameters, as transformers 5 writes them), and where a family
/// has it rope_local_base_freq. Reads heads and positions of the model, which come first.
void ReadRope(JsonFields& fields, const RopeKeys& keys, planner::ModelSpec* model);

/// sliding_window: null is none, and no such key `otherwise`.
int64_t ReadWindowSize(JsonFields& fields, int64_t otherwise);

/// The same in all layers (mistral, mixtral, phi3).
void ReadWindowOfAllLayers(JsonFields& fields, int64_t otherwise, planner::ModelSpec* model);

/// layer_types or, without them, `is_local` of each layer. `size_key` is where the window's size came from.
void ReadWindow(JsonFields& fields, planner::AttentionWindow kind, const char* size_key, int64_t size,
                const std::function<bool(int64_t layer)>& is_local, planner::ModelSpec* model);

}  // namespace weft::formats
