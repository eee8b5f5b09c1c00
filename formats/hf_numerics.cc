// Rotations, activations and windows: keys that most families share.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "formats/hf_reader.h"
#include "formats/one_line.h"

namespace weft::formats {
namespace {

using planner::Activation;
using planner::AttentionWindow;
using planner::ModelSpec;
using planner::RopeNumerics;
using planner::RopeScaling;

// The first name of each is the one that is written. Source: the table of activations of transformers.
constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"gelu", Activation::kGelu},           {"gelu_pytorch_tanh", Activation::kGeluTanh}, {"quick_gelu", Activation::kQuickGelu},
    {"silu", Activation::kSilu},           {"relu", Activation::kRelu},                  {"relu2", Activation::kRelu2},
    {"gelu_new", Activation::kGeluTanh},   {"gelu_fast", Activation::kGeluTanh},         {"swish", Activation::kSilu},
    {"gelu_python", Activation::kGelu},
};

constexpr std::pair<std::string_view, RopeScaling> kScalings[] = {
    {"default", RopeScaling::kNone}, {"linear", RopeScaling::kLinear}, {"dynamic", RopeScaling::kDynamic},
    {"yarn", RopeScaling::kYarn},    {"llama3", RopeScaling::kLlama3}, {"longrope", RopeScaling::kLongRope},
    {"mrope", RopeScaling::kNone},   {"su", RopeScaling::kLongRope},
};

/// The entry of `names` that the text at `key` names.
template <typename T, size_t n>
T Named(JsonFields& fields, const char* key, std::string_view text, const std::pair<std::string_view, T> (&names)[n]) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  fields.Reject(key, fmt::format("value \"{}\", expected one of {}", OneLine(text, 60), known));
  return names[0].second;
}

double Positive(JsonFields& fields, const char* key, double otherwise) {
  return fields.Number(key, kLeastNumber, kMostNumber, otherwise);
}

void ReadYarn(JsonFields& fields, RopeNumerics* rope) {
  rope->attention_factor = Positive(fields, "attention_factor", 0);
  rope->beta_fast = Positive(fields, "beta_fast", 32);
  rope->beta_slow = Positive(fields, "beta_slow", 1);
  rope->mscale = fields.Number("mscale", 0, kMostNumber, 0);
  rope->mscale_all_dim = fields.Number("mscale_all_dim", 0, kMostNumber, 0);
  rope->truncate = fields.Boolean("truncate", true);
}

/// One factor for every rotated pair.
std::vector<double> PairFactors(JsonFields& fields, const char* key, const ModelSpec& model) {
  std::vector<double> factors = fields.Numbers(key, kLeastNumber, kMostNumber);
  const auto pairs =
      static_cast<size_t>(static_cast<double>(model.head_dim) * model.numerics.rope.fraction) / 2;
  if (factors.size() != pairs) {
    fields.Reject(key, fmt::format("{} numbers, expected {}, one for every rotated pair of a head", factors.size(), pairs));
  }
  return factors;
}

/// One object of rotations. `original` is what the file says outside of it, 0 if nothing.
void ReadScaling(JsonFields& fields, int64_t original, bool sections, ModelSpec* model) {
  RopeNumerics* rope = &model->numerics.rope;
  rope->theta = Positive(fields, "rope_theta", rope->theta);
  rope->fraction = fields.Number("partial_rotary_factor", 0, 1, rope->fraction);
  if (sections) rope->sections = fields.Integers("mrope_section", 0, kMaxWidth);
  const std::string old_type = fields.Text("type", "default");
  const char* key = fields.Has("rope_type") ? "rope_type" : "type";
  rope->scaling = Named(fields, key, fields.Text("rope_type", old_type), kScalings);
  if (rope->scaling == RopeScaling::kNone) return;
  rope->original_positions = fields.Integer("original_max_position_embeddings", 1, kMaxPositions, original);
  if (rope->scaling != RopeScaling::kLongRope) rope->factor = fields.Number("factor", kLeastNumber, kMostNumber);
  if (rope->scaling == RopeScaling::kYarn) ReadYarn(fields, rope);
  if (rope->scaling == RopeScaling::kLlama3) {
    rope->low_frequency_factor = Positive(fields, "low_freq_factor", 1);
    rope->high_frequency_factor = Positive(fields, "high_freq_factor", 4);
  }
  if (rope->scaling == RopeScaling::kLongRope) {
    const int64_t before = rope->original_positions > 0 ? rope->original_positions : model->max_positions;
    rope->factor = Positive(fields, "factor", static_cast<double>(model->max_positions) / static_cast<double>(before));
    rope->attention_factor = Positive(fields, "attention_factor", 0);
    rope->short_factors = PairFactors(fields, "short_factor", *model);
    rope->long_factors = PairFactors(fields, "long_factor", *model);
  }
}

}  // namespace

void ReadActivation(JsonFields& fields, const char* key, std::string_view otherwise, ModelSpec* model) {
  model->numerics.activation = Named(fields, key, fields.Text(key, std::string(otherwise)), kActivations);
}

std::string_view ActivationName(Activation activation) {
  return std::find_if(std::begin(kActivations), std::end(kActivations),
                      [=](const auto& entry) { return entry.second == activation; })->first;
}

void ReadRope(JsonFields& fields, const RopeKeys& keys, ModelSpec* model) {
  RopeNumerics* rope = &model->numerics.rope;
  rope->theta = Positive(fields, "rope_theta", keys.theta);
  rope->fraction = fields.Number("partial_rotary_factor", 0, 1, 1);
  if (keys.local_theta > 0) rope->local_theta = Positive(fields, "rope_local_base_freq", keys.local_theta);
  const int64_t original = fields.Integer("original_max_position_embeddings", 1, kMaxPositions, 0);
  std::optional<JsonFields> inner = fields.Inside(fields.Has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  if (!inner) return;
  // transformers 5 has one object per kind of layer where these differ.
  if (std::optional<JsonFields> full = inner->Inside("full_attention")) {
    ReadScaling(*full, original, keys.sections, model);
    inner->Adopt(*full);
    if (std::optional<JsonFields> local = inner->Inside("sliding_attention")) {
      if (local->Text("rope_type", "default") != "default") local->Reject("rope_type", "expected \"default\"");
      if (keys.local_theta > 0) rope->local_theta = Positive(*local, "rope_theta", rope->local_theta);
      inner->Adopt(*local);
    }
  } else {
    ReadScaling(*inner, original, keys.sections, model);
  }
  fields.Adopt(*inner);
}

void ReadWindow(JsonFields& fields, AttentionWindow kind, const char* size_key, int64_t size,
                const std::function<bool(int64_t layer)>& is_local, ModelSpec* model) {
  if (fields.failed()) return;  // layers may mean nothing
  const auto layers = static_cast<size_t>(model->layers);
  const std::string local_name = kind == AttentionWindow::kChunk ? "chunked_attention" : "sliding_attention";
  const std::vector<std::string> types = fields.Texts("layer_types");
  std::vector<bool> local(layers);
  if (fields.Has("layer_types") && types.size() != layers) {
    fields.Reject("layer_types", fmt::format("{} entries, expected one for each of {} layers", types.size(), layers));
    return;
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    if (types.empty()) {
      local[layer] = size > 0 && is_local(static_cast<int64_t>(layer));
    } else if (types[layer] != local_name && types[layer] != "full_attention") {
      fields.Reject("layer_types", fmt::format("entry {}: value \"{}\", expected \"{}\" or \"full_attention\"", layer,
                                               OneLine(types[layer], 60), local_name));
      return;
    } else {
      local[layer] = types[layer] == local_name;
    }
  }
  if (std::find(local.begin(), local.end(), true) == local.end()) return;
  if (size == 0) {
    fields.Reject(size_key, "no window, expected its size: layer_types has layers with one");
    return;
  }
  model->window_kind = kind;
  model->attention_window = size;
  model->local_layers = std::move(local);
}

int64_t ReadWindowSize(JsonFields& fields, int64_t otherwise) {
  return fields.Integer("sliding_window", 1, kMaxPositions, fields.Holds("sliding_window") ? 0 : otherwise);
}

void ReadWindowOfAllLayers(JsonFields& fields, int64_t otherwise, ModelSpec* model) {
  ReadWindow(fields, AttentionWindow::kSliding, "sliding_window", ReadWindowSize(fields, otherwise),
             [](int64_t) { return true; }, model);
}

}  // namespace weft::formats
