#include "formats/hf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "formats/cnn3d_config.h"
#include "formats/hf_reader.h"
#include "formats/json_fields.h"
#include "formats/one_line.h"
#include "formats/profiled_model.h"
#include "formats/read_file.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {
namespace {

using nlohmann::json;
using planner::ModelSpec;

/// Refuses a model whose parameters would not fit 63 bits a few times over.
void CheckSize(const ModelSpec& model, JsonFields& fields) {
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  const double h = real(model.hidden);
  const double heads = real(model.heads) * (real(model.head_dim) + real(model.qk_nope_head_dim) +
                                            real(model.qk_rope_head_dim) + real(model.v_head_dim));
  const double widest = std::max({h, real(model.q_lora_rank), real(model.kv_lora_rank)});
  const double experts = real(model.experts) * real(model.expert_ffn_hidden) +
                         real(model.shared_experts) * real(model.shared_expert_ffn_hidden);
  const double layer = 4 * heads * widest + 3 * h * (real(model.ffn_hidden) + experts + real(model.experts)) + 2 * h * widest;
  const double edges = 2 * real(model.vocab) + real(model.max_positions) + real(model.token_types) + real(model.classes) +
                       real(model.patch_inputs) + real(model.patch_outputs);
  const double modulation = real(model.layers) * (real(model.condition_classes) + (model.condition_classes > 0 ? 7 * h : 0));
  const double all = real(model.layers) * layer + h * (edges + modulation);
  if (all > 1e17) fields.Reject(fmt::format("about {:.0e} parameters, expected fewer than 1e17", all));
}

/// Configurations of several towers, and the family of the text model, which is planned.
struct Composite {
  std::string_view model_type;
  std::string_view text_type;
};
constexpr Composite kComposites[] = {{"gemma3", "gemma3_text"},
                                     {"llama4", "llama4_text"},
                                     {"qwen2_vl", "qwen2_vl_text"},
                                     {"qwen2_5_vl", "qwen2_5_vl_text"}};

std::string_view TextType(std::string_view model_type) {
  for (const Composite& composite : kComposites) {
    if (composite.model_type == model_type) return composite.text_type;
  }
  return model_type;
}

/// The reader of `type`; on failure nullptr, and an error that names all.
const HfFamily* FindFamily(JsonFields& fields, std::string_view type) {
  std::string known;
  for (const std::span<const HfFamily> families : {DenseFamilies(), MoeFamilies(), EncoderFamilies()}) {
    for (const HfFamily& family : families) {
      if (family.model_type == type) return &family;
      known += std::string(family.model_type) + ", ";
    }
  }
  for (const Composite& composite : kComposites) known += std::string(composite.model_type) + ", ";
  fields.Reject("model_type", fmt::format("{}, expected one of {}{}",
                                          type.empty() ? "missing" : "value \"" + OneLine(type, 60) + "\"", known,
                                          kCnn3dModelType));
  return nullptr;
}

/// The file's family: its model_type, or what diffusers has in its place.
std::string FamilyName(JsonFields& fields) {
  const std::string type = fields.Text("model_type", "");
  const std::string name = fields.Text("_class_name", "");
  const bool dit = name == kDitClass || (name == "Transformer2DModel" && fields.Text("norm_type", "") == "ada_norm_zero");
  return type.empty() && dit ? std::string(kDitClass) : type;
}

/// Keeps of the unread keys those that may matter.
void KeepUnused(const JsonFields& fields, std::string_view type, std::vector<std::string>* unused) {
  for (const std::string& key : fields.Unread()) {
    const size_t dot = key.rfind('.');
    const std::string_view last = dot == key.npos ? std::string_view(key) : std::string_view(key).substr(dot + 1);
    if (WhyIgnored(type, last).empty()) unused->push_back(OneLine(key, 60));
  }
}

/// What transformers once wrote into every file.
void ExpectOneStack(JsonFields& fields) {
  fields.Expect("is_encoder_decoder", false);
  fields.Expect("add_cross_attention", false);
}

void ReadFamily(JsonFields& fields, const HfFamily& family, HfModel* read) {
  ModelSpec& model = read->model;
  if (model.name.empty()) model.name = OneLine(fields.Text("_name_or_path", ""), 120);
  if (model.name.empty()) model.name = family.model_type;
  family.read(fields, &model);
  ExpectOneStack(fields);
  if (fields.Has("vision_config")) fields.Note("vision_config", "the vision tower is left out, the text model alone planned");
  if (!fields.failed()) CheckSize(model, fields);
  KeepUnused(fields, family.model_type, &read->unused);
}

/// The text model's keys are in an object of their own.
void ReadInside(JsonFields& fields, const json& object, const HfFamily& family, std::string_view type, HfModel* read) {
  if (fields.Object("text_config") == nullptr) return;
  json text = object.at("text_config");
  if (!text.contains("tie_word_embeddings") && fields.Has("tie_word_embeddings")) {
    text["tie_word_embeddings"] = object.at("tie_word_embeddings");
  }
  read->model.name = OneLine(fields.Text("_name_or_path", ""), 120);
  if (read->model.name.empty()) read->model.name = type;
  JsonFields inner(text, fields.source(), "text_config.");
  ReadFamily(inner, family, read);
  fields.Skip("tie_word_embeddings");
  ExpectOneStack(fields);
  if (fields.Has("vision_config")) fields.Note("vision_config", "the vision tower is left out, the text model alone planned");
  KeepUnused(fields, type, &read->unused);
  fields.Adopt(inner);
}

/// One line for all keys, and one for every note.
std::vector<std::string> Warnings(std::string_view source, const std::vector<std::string>& unused,
                                  const std::vector<std::string>& notes) {
  constexpr size_t kMostNamed = 24;
  std::vector<std::string> warnings;
  if (!unused.empty()) {
    const size_t named = std::min(unused.size(), kMostNamed);
    std::string line = fmt::format("{}: keys not used: {}", source,
                                   fmt::join(unused.begin(), unused.begin() + static_cast<std::ptrdiff_t>(named), ", "));
    if (named < unused.size()) line += fmt::format(" and {} more", unused.size() - named);
    warnings.push_back(line);
  }
  for (const std::string& note : notes) warnings.push_back(fmt::format("{}: {}", source, note));
  return warnings;
}

}  // namespace

Result<HfModel> ParseHfModel(std::string_view text, std::string_view source_name) {
  if (text.starts_with("PK\x03\x04")) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: a zip archive, perhaps of TorchScript: expected the model's config.json, which `weft profile` makes "
                            "of it",
                            source_name));
  }
  WEFT_ASSIGN_OR_RETURN(const json object, ParseJsonObject(text, source_name));
  JsonFields fields(object, source_name);
  const std::string type = FamilyName(fields);
  WEFT_RETURN_IF_ERROR(fields.Finish());
  HfModel read;
  if (type == kCnn3dModelType) {
    WEFT_ASSIGN_OR_RETURN(read.model, ReadCnn3d(object, source_name));
    if (auto wrong = ProfileWarning(object, read.model)) read.warnings.push_back(fmt::format("{}: {}", source_name, *wrong));
    return read;
  }
  const HfFamily* family = FindFamily(fields, TextType(type));
  WEFT_RETURN_IF_ERROR(fields.Finish());
  if (TextType(type) != type && fields.Has("text_config")) {
    ReadInside(fields, object, *family, type, &read);
  } else {
    ReadFamily(fields, *family, &read);
  }
  WEFT_RETURN_IF_ERROR(fields.Finish());
  read.warnings = Warnings(source_name, read.unused, fields.notes());
  if (auto wrong = ProfileWarning(object, read.model)) read.warnings.push_back(fmt::format("{}: {}", source_name, *wrong));
  return read;
}

Result<HfModel> ReadHfModel(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  WEFT_ASSIGN_OR_RETURN(HfModel read, ParseHfModel(text, path));
  // A file that does not say which model it is of is called by its folder, or by its own name.
  const std::filesystem::path file(path);
  const std::string folder = file.parent_path().filename().string();
  bool nameless = false;
  for (const std::span<const HfFamily> families : {DenseFamilies(), MoeFamilies(), EncoderFamilies()}) {
    for (const HfFamily& family : families) nameless = nameless || read.model.name == family.model_type;
  }
  if (nameless) {
    const std::string stem = file.stem().string();
    read.model.name = OneLine(stem == "config" && !folder.empty() && folder != "." ? folder : stem, 60);
  }
  return read;
}

Result<HfModel> ResolveHfModel(const std::string& name) {
  if (auto preset = planner::FindModelPreset(name)) return HfModel{.model = std::move(*preset), .unused = {}, .warnings = {}};
  Result<HfModel> read = ReadHfModel(name);
  if (!read && read.error().code() == Code::kNotFound) {
    return Fail(Code::kNotFound, fmt::format("model \"{}\": no such file, and no preset: expected a config.json or one of {}",
                                             name, planner::ModelPresetNames()));
  }
  return read;
}

Result<ModelSpec> ParseHfConfig(std::string_view text, std::string_view source_name) {
  WEFT_ASSIGN_OR_RETURN(HfModel read, ParseHfModel(text, source_name));
  return std::move(read.model);
}

Result<ModelSpec> ReadHfConfig(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(HfModel read, ReadHfModel(path));
  return std::move(read.model);
}

Result<ModelSpec> ResolveModel(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(HfModel read, ResolveHfModel(name));
  return std::move(read.model);
}

std::optional<std::string> PositionsWarning(const ModelSpec& model, int64_t sequence) {
  if (!model.Rotates() || model.IsCnn() || sequence <= model.max_positions) return std::nullopt;
  const double factor = std::ceil(static_cast<double>(sequence) / static_cast<double>(model.max_positions));
  const bool scaled = model.numerics.rope.scaling != planner::RopeScaling::kNone;
  return fmt::format("{}: sequences of {} tokens, made for max_position_embeddings = {}: expected {} by a factor of {}",
                     model.name, sequence, model.max_positions,
                     scaled ? "rope_scaling to stretch further," : "rope_scaling, such as yarn,", factor);
}

}  // namespace weft::formats
