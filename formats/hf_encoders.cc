// Readers of encoders: BERT and RoBERTa, the vision transformer of transformers, and diffusers' DiT, whose config.json has a
// _class_name in place of a model_type.
#include <fmt/format.h>

#include "formats/hf_reader.h"
#include "formats/one_line.h"

namespace weft::formats {
namespace {

using planner::Architecture;
using planner::HeadKind;
using planner::ModelSpec;

constexpr int64_t kMaxImage = 1 << 14;

/// The sizes that BERT and ViT have under the same names.
void ReadEncoder(JsonFields& fields, ModelSpec* model) {
  model->causal = model->gated_mlp = model->rms_norm = false;
  model->flash_attention = true;
  model->layers = fields.Integer("num_hidden_layers", 1, kMaxLayers);
  model->hidden = fields.Integer("hidden_size", 1, kMaxWidth);
  model->heads = model->kv_heads = fields.Integer("num_attention_heads", 1, kMaxWidth);
  fields.Divides("num_attention_heads", model->heads, "hidden_size", model->hidden);
  model->head_dim = model->hidden / model->heads;
  model->ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  planner::ModelNumerics& numerics = model->numerics;
  ReadActivation(fields, "hidden_act", "gelu", model);
  numerics.norm_epsilon = fields.Number("layer_norm_eps", 0, 1, 1e-12);
  numerics.initializer_range = fields.Number("initializer_range", 0, kMostNumber, 0.02);
}

/// The class that is trained: the first of `architectures`, without the family's prefix; "" if the file does not say.
std::string TrainedClass(JsonFields& fields, size_t prefix) {
  const std::vector<std::string> classes = fields.Texts("architectures");
  return classes.empty() || classes[0].size() < prefix ? "" : classes[0].substr(prefix);
}

void NoteClass(JsonFields& fields, const std::string& name, std::string_view planned) {
  fields.Note("architectures", fmt::format("value \"{}\", planned as {}", OneLine(name, 60), planned));
}

/// With the head that is trained: of masked words, the same and of the next sentence, or none.
void ReadBertHead(JsonFields& fields, size_t prefix, ModelSpec* model) {
  const std::string name = TrainedClass(fields, prefix);
  model->head = HeadKind::kMaskedLanguage;
  if (name == "Model") {
    model->head = HeadKind::kNone;
    model->pooler = true;
  } else if (name == "ForPreTraining") {
    model->pooler = true;
    model->classes = 2;
  } else if (!name.empty() && name != "ForMaskedLM") {
    NoteClass(fields, name, "a masked language model");
  }
}

void ReadBertBody(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kBert;
  ReadEncoder(fields, model);
  model->norm_placement = planner::NormPlacement::kPost;
  model->embedding_norm = true;
  model->vocab = fields.Integer("vocab_size", 1, kMaxVocab);
  model->max_positions = fields.Integer("max_position_embeddings", 1, kMaxPositions);
  model->token_types = fields.Integer("type_vocab_size", 1, kMaxWidth, 2);
  model->tied_embeddings = fields.Boolean("tie_word_embeddings", true);
  planner::ModelNumerics& numerics = model->numerics;
  numerics.attention_dropout = fields.Number("attention_probs_dropout_prob", 0, 1, 0.1);
  numerics.hidden_dropout = numerics.embedding_dropout = fields.Number("hidden_dropout_prob", 0, 1, 0.1);
  model->dropout = numerics.attention_dropout > 0 || numerics.hidden_dropout > 0;
  if (const std::string kind = fields.Text("position_embedding_type", "absolute"); kind != "absolute") {
    fields.Reject("position_embedding_type", fmt::format("value \"{}\", expected \"absolute\"", OneLine(kind, 60)));
  }
  fields.Expect("is_decoder", false);
}

void ReadBert(JsonFields& fields, ModelSpec* model) {
  ReadBertBody(fields, model);
  ReadBertHead(fields, std::string_view("Bert").size(), model);
}

/// Its positions begin behind the padding token's.
void ReadRoberta(JsonFields& fields, ModelSpec* model) {
  ReadBertBody(fields, model);
  ReadBertHead(fields, std::string_view("Roberta").size(), model);
  model->reserved_positions = fields.Integer("pad_token_id", 0, kMaxVocab, 1) + 1;
  if (model->reserved_positions >= model->max_positions) {
    fields.Reject("pad_token_id", fmt::format("value {}, expected fewer than max_position_embeddings = {} less one",
                                              model->reserved_positions - 1, model->max_positions));
  }
}

/// Patches along one side of a square image.
/// Values of a patch: what an embedding of patches reads, and must be no wider than a layer may be.
int64_t PatchValues(JsonFields& fields, const char* key, int64_t channels, int64_t patch) {
  if (channels > kMaxWidth / (patch * patch)) {
    fields.Reject(key, fmt::format("value {}, expected at most {} where a patch has {} pixels", channels, kMaxWidth / (patch * patch), patch * patch));
    return 1;
  }
  return channels * patch * patch;
}

int64_t PatchesPerSide(JsonFields& fields, const char* image_key, int64_t image, int64_t patch) {
  fields.Divides("patch_size", patch, image_key, image);
  return image / patch;
}

void ReadVit(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kVit;
  ReadEncoder(fields, model);
  planner::ModelNumerics& numerics = model->numerics;
  numerics.attention_dropout = fields.Number("attention_probs_dropout_prob", 0, 1, 0);
  numerics.hidden_dropout = numerics.embedding_dropout = fields.Number("hidden_dropout_prob", 0, 1, 0);
  model->dropout = false;  // its masks are not counted
  if (!fields.Boolean("qkv_bias", true)) fields.Reject("qkv_bias", "value false, expected true");
  const int64_t patch = fields.Integer("patch_size", 1, kMaxImage, 16);
  const int64_t side = PatchesPerSide(fields, "image_size", fields.Integer("image_size", 1, kMaxImage, 224), patch);
  model->patch_inputs = PatchValues(fields, "num_channels", fields.Integer("num_channels", 1, kMaxWidth, 3), patch);
  model->image_tokens = model->max_positions = side * side + 1;
  model->head = HeadKind::kClasses;
  const std::string name = TrainedClass(fields, std::string_view("ViT").size());
  const int64_t labels = fields.Integer("num_labels", 1, kMaxVocab, fields.CountOf("id2label", 2));
  model->classes = labels;
  if (name == "Model") {
    model->head = HeadKind::kNone;
    model->classes = 0;
    model->pooler = true;
    const int64_t width = fields.Integer("pooler_output_size", 1, kMaxWidth, model->hidden);
    if (width != model->hidden) {
      fields.Note("pooler_output_size", fmt::format("value {}, planned as hidden_size = {}", width, model->hidden));
    }
  } else if (!name.empty() && name != "ForImageClassification") {
    NoteClass(fields, name, "a classifier of images");
  }
}

/// Source: arXiv 2212.09748; the layer's own embedders are diffusers' ada_norm_zero.
void ReadDit(JsonFields& fields, ModelSpec* model) {
  model->architecture = Architecture::kDit;
  model->causal = model->gated_mlp = model->rms_norm = model->learned_positions = false;
  model->flash_attention = true;
  model->layers = fields.Integer("num_layers", 1, kMaxLayers, 28);
  model->heads = model->kv_heads = fields.Integer("num_attention_heads", 1, kMaxWidth, 16);
  model->head_dim = fields.Integer("attention_head_dim", 1, kMaxWidth, 72);
  model->hidden = model->heads * model->head_dim;
  if (model->hidden > kMaxWidth) {
    fields.Reject("attention_head_dim", fmt::format("a width of {} in all heads, expected at most {}", model->hidden,
                                                    kMaxWidth));
  }
  model->ffn_hidden = 4 * model->hidden;
  const int64_t channels = fields.Integer("in_channels", 1, kMaxWidth, 4);
  const int64_t outputs = fields.Integer("out_channels", 1, kMaxWidth, channels);
  const int64_t patch = fields.Integer("patch_size", 1, kMaxImage, 2);
  const int64_t side = PatchesPerSide(fields, "sample_size", fields.Integer("sample_size", 1, kMaxImage, 32), patch);
  model->patch_inputs = PatchValues(fields, "in_channels", channels, patch);
  model->patch_outputs = PatchValues(fields, "out_channels", outputs, patch);
  model->image_tokens = model->max_positions = side * side;
  model->head = HeadKind::kPatches;
  model->condition_classes = fields.Integer("num_embeds_ada_norm", 1, kMaxVocab, 1000) + 1;  // one for no class at all
  planner::ModelNumerics& numerics = model->numerics;
  numerics.rope.fraction = 0;
  numerics.hidden_dropout = fields.Number("dropout", 0, 1, 0);
  model->dropout = false;
  const std::string activation = fields.Text("activation_fn", "gelu-approximate");
  if (activation != "gelu-approximate" && activation != "gelu") {
    fields.Reject("activation_fn", fmt::format("value \"{}\", expected \"gelu-approximate\" or \"gelu\"",
                                               OneLine(activation, 60)));
  }
  numerics.activation = activation == "gelu" ? planner::Activation::kGelu : planner::Activation::kGeluTanh;
  numerics.norm_epsilon = fields.Number("norm_eps", 0, 1, 1e-5);
  if (!fields.Boolean("attention_bias", true)) fields.Reject("attention_bias", "value false, expected true");
  if (const std::string norm = fields.Text("norm_type", "ada_norm_zero"); norm != "ada_norm_zero") {
    fields.Reject("norm_type", fmt::format("value \"{}\", expected \"ada_norm_zero\"", OneLine(norm, 60)));
  }
  for (const char* key : {"norm_elementwise_affine", "only_cross_attention", "double_self_attention", "upcast_attention",
                          "use_linear_projection"}) {
    fields.Expect(key, false);
  }
  fields.Note("_class_name", "the transformer alone is planned, on latents that its autoencoder made before");
}

}  // namespace

std::span<const HfFamily> EncoderFamilies() {
  static constexpr HfFamily kFamilies[] = {
      {"bert", ReadBert}, {"roberta", ReadRoberta}, {"vit", ReadVit}, {kDitClass, ReadDit}};
  return kFamilies;
}

}  // namespace weft::formats
