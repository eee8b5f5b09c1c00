#include "formats/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "formats/read_file.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {
namespace {

using nlohmann::json;
using planner::ModelSpec;

// Far above any model there is, and small enough that no product of three of them leaves 63 bits.
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxPositions = 1 << 28;

/// Keeps the first error, so that a reader can list its fields without a branch after each.
class Fields {
 public:
  Fields(const json& object, std::string_view source) : object_(object), source_(source) {}

  bool Has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  int64_t Integer(const char* key, int64_t least, int64_t most) {
    if (!Has(key)) {
      Reject(fmt::format("key \"{}\": {}, expected an integer from {} to {}", key,
                         object_.contains(key) ? "null" : "missing", least, most));
      return least;
    }
    const json& value = object_.at(key);
    if (!value.is_number_integer() || value > most || value < least) {
      Reject(fmt::format("key \"{}\": value {}, expected an integer from {} to {}", key, Shown(value), least, most));
      return least;
    }
    return value.get<int64_t>();
  }
  int64_t Integer(const char* key, int64_t least, int64_t most, int64_t otherwise) {
    return Has(key) ? Integer(key, least, most) : otherwise;
  }
  bool Boolean(const char* key, bool otherwise) {
    if (!Has(key)) return otherwise;
    if (!object_.at(key).is_boolean()) {
      Reject(fmt::format("key \"{}\": value {}, expected true or false", key, Shown(object_.at(key))));
      return otherwise;
    }
    return object_.at(key).get<bool>();
  }
  std::string Text(const char* key, const std::string& otherwise) {
    if (!Has(key)) return otherwise;
    if (!object_.at(key).is_string()) {
      Reject(fmt::format("key \"{}\": value {}, expected a string", key, Shown(object_.at(key))));
      return otherwise;
    }
    return object_.at(key).get<std::string>();
  }
  void Divides(const char* key, int64_t divisor, const char* of, int64_t dividend) {
    if (dividend % divisor != 0) {
      Reject(fmt::format("key \"{}\": value {}, expected a divisor of {} = {}", key, divisor, of, dividend));
    }
  }

  Result<ModelSpec> Finish(ModelSpec model) const {
    if (!error_.empty()) return Fail(Code::kInvalidArgument, error_);
    return model;
  }

 private:
  static std::string Shown(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
  }
  void Reject(const std::string& what) {
    if (error_.empty()) error_ = fmt::format("{}: {}", source_, what);
  }

  const json& object_;
  std::string_view source_;
  std::string error_;
};

Result<ModelSpec> ReadGpt2(Fields fields) {
  ModelSpec model;
  model.architecture = planner::Architecture::kGpt2;
  model.name = fields.Text("_name_or_path", "");
  if (model.name.empty()) model.name = "gpt2";
  model.layers = fields.Integer("n_layer", 1, kMaxLayers);
  model.hidden = fields.Integer("n_embd", 1, kMaxWidth);
  model.heads = fields.Integer("n_head", 1, kMaxWidth);
  fields.Divides("n_head", model.heads, "n_embd", model.hidden);
  model.kv_heads = model.heads;
  model.head_dim = model.hidden / model.heads;
  model.ffn_hidden = fields.Integer("n_inner", 1, 4 * kMaxWidth, 4 * model.hidden);
  model.vocab = fields.Integer("vocab_size", 1, kMaxVocab);
  model.max_positions = fields.Integer("n_positions", 1, kMaxPositions);
  model.tied_embeddings = fields.Boolean("tie_word_embeddings", true);
  return fields.Finish(model);
}

Result<ModelSpec> ReadLlama(Fields fields) {
  ModelSpec model;
  model.architecture = planner::Architecture::kLlama;
  model.name = fields.Text("_name_or_path", "");
  if (model.name.empty()) model.name = "llama";
  model.layers = fields.Integer("num_hidden_layers", 1, kMaxLayers);
  model.hidden = fields.Integer("hidden_size", 1, kMaxWidth);
  model.heads = fields.Integer("num_attention_heads", 1, kMaxWidth);
  model.kv_heads = fields.Integer("num_key_value_heads", 1, kMaxWidth, model.heads);
  fields.Divides("num_key_value_heads", model.kv_heads, "num_attention_heads", model.heads);
  if (fields.Has("head_dim")) {
    model.head_dim = fields.Integer("head_dim", 1, kMaxWidth);
  } else {
    fields.Divides("num_attention_heads", model.heads, "hidden_size", model.hidden);
    model.head_dim = model.hidden / model.heads;
  }
  model.ffn_hidden = fields.Integer("intermediate_size", 1, 4 * kMaxWidth);
  model.vocab = fields.Integer("vocab_size", 1, kMaxVocab);
  model.max_positions = fields.Integer("max_position_embeddings", 1, kMaxPositions);
  model.gated_mlp = true;
  model.rms_norm = true;
  model.dropout = false;
  model.flash_attention = true;
  if (model.kv_heads < model.heads) model.attention = planner::Attention::kGroupedQuery;
  model.learned_positions = false;
  model.tied_embeddings = fields.Boolean("tie_word_embeddings", false);
  model.attention_bias = fields.Boolean("attention_bias", false);
  model.attention_output_bias = model.attention_bias;
  model.mlp_bias = fields.Boolean("mlp_bias", false);
  return fields.Finish(model);
}

struct Family {
  std::string_view model_type;
  Result<ModelSpec> (*read)(Fields fields);
};
constexpr Family kFamilies[] = {{"gpt2", ReadGpt2}, {"llama", ReadLlama}};

/// The parsed object; a key that stands twice in one object is an error, since readers differ in which one they take.
Result<json> ParseObject(std::string_view text, std::string_view source) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const json::parser_callback_t note_keys = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second && twice.empty()) {
      twice = value.get<std::string>();
    }
    return true;
  };
  try {
    json object = json::parse(text, note_keys);
    if (!twice.empty()) return Fail(Code::kInvalidArgument, fmt::format("{}: key \"{}\": stands twice", source, twice));
    if (!object.is_object()) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: a JSON {}, expected an object", source, object.type_name()));
    }
    return object;
  } catch (const json::parse_error& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: ...": the code in front tells users nothing.
    const std::string_view what = error.what();
    const size_t bracket = what.find("] ");
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: {}", source, bracket == what.npos ? what : what.substr(bracket + 2)));
  }
}

}  // namespace

Result<ModelSpec> ParseHfConfig(std::string_view text, std::string_view source_name) {
  WEFT_ASSIGN_OR_RETURN(const json object, ParseObject(text, source_name));
  const json type = object.value("model_type", json());
  std::string known;
  for (const Family& family : kFamilies) {
    if (type.is_string() && type.get<std::string>() == family.model_type) {
      return family.read(Fields(object, source_name));
    }
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return Fail(Code::kInvalidArgument,
              fmt::format("{}: key \"model_type\": {}, expected one of {}", source_name,
                          type.is_null() ? std::string("missing")
                                         : "value " + type.dump(-1, ' ', false, json::error_handler_t::replace),
                          known));
}

Result<ModelSpec> ReadHfConfig(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseHfConfig(text, path);
}

Result<ModelSpec> ResolveModel(const std::string& name) {
  if (auto preset = planner::FindModelPreset(name)) return *preset;
  Result<ModelSpec> read = ReadHfConfig(name);
  if (!read && read.error().code() == Code::kNotFound) {
    return Fail(Code::kNotFound, fmt::format("model \"{}\": no such file, and no preset: expected a config.json or one of {}",
                                             name, planner::ModelPresetNames()));
  }
  return read;
}

std::string WriteHfConfig(const ModelSpec& model) {
  json object = {{"_name_or_path", model.name}, {"vocab_size", model.vocab},
                 {"tie_word_embeddings", model.tied_embeddings}};
  if (model.architecture == planner::Architecture::kGpt2) {
    object.update({{"model_type", "gpt2"}, {"n_layer", model.layers}, {"n_embd", model.hidden}, {"n_head", model.heads},
                   {"n_inner", model.ffn_hidden}, {"n_positions", model.max_positions}});
  } else {
    object.update({{"model_type", "llama"}, {"num_hidden_layers", model.layers}, {"hidden_size", model.hidden},
                   {"num_attention_heads", model.heads}, {"num_key_value_heads", model.kv_heads},
                   {"head_dim", model.head_dim}, {"intermediate_size", model.ffn_hidden},
                   {"max_position_embeddings", model.max_positions}, {"attention_bias", model.attention_bias},
                   {"mlp_bias", model.mlp_bias}});
  }
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace weft::formats
