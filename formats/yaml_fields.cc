#include "formats/yaml_fields.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <exception>
#include <sstream>

#include "common/parse_units.h"
#include "formats/one_line.h"

namespace weft::formats {
namespace {

constexpr int kMostValues = 100'000;
constexpr int kMostDepth = 64;

/// Looks at a document without building it.
class Nothing : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// 0, 1, or 2 for more. YAML::LoadAll cannot be asked: on text that no document may start with (a comma) it takes no step
/// and collects empty documents until memory runs out.
int CountDocuments(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Nothing nothing;
  int documents = 0;
  while (documents < 2 && parser.HandleNextDocument(nothing)) ++documents;
  return documents;
}

class TreeCopy {
 public:
  explicit TreeCopy(std::string_view source) : source_(source) {}

  Result<YamlValue> Copy(const YAML::Node& node, int depth) {
    YamlValue value;
    value.line = node.Mark().line + 1;
    if (++values_ > kMostValues || depth > kMostDepth) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}:{}: more than {} values or {} levels", source_, value.line, kMostValues, kMostDepth));
    }
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null: return value;
      case YAML::NodeType::Scalar:
        value.kind = YamlValue::Kind::kScalar;
        value.text = node.Scalar();
        return value;
      case YAML::NodeType::Sequence:
        value.kind = YamlValue::Kind::kList;
        for (const YAML::Node& item : node) {
          WEFT_ASSIGN_OR_RETURN(YamlValue copy, Copy(item, depth + 1));
          value.items.push_back(std::move(copy));
        }
        return value;
      case YAML::NodeType::Map: return CopyMap(node, std::move(value), depth);
    }
    return value;
  }

 private:
  Result<YamlValue> CopyMap(const YAML::Node& node, YamlValue value, int depth) {
    value.kind = YamlValue::Kind::kMap;
    std::set<std::string> keys;
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) {
        return Fail(Code::kInvalidArgument, fmt::format("{}:{}: a key that is no word", source_, line));
      }
      const std::string key = entry.first.Scalar();
      if (!keys.insert(key).second) {
        return Fail(Code::kInvalidArgument, fmt::format("{}:{}: key \"{}\": stands twice", source_, line,
                                                        OneLine(key, 60)));
      }
      WEFT_ASSIGN_OR_RETURN(YamlValue copy, Copy(entry.second, depth + 1));
      if (copy.line < line) copy.line = line;  // an absent value has no place of its own
      value.fields.emplace_back(key, std::move(copy));
    }
    return value;
  }

  std::string_view source_;
  int values_ = 0;
};

}  // namespace

Result<YamlValue> ParseYaml(std::string_view text, std::string_view source) {
  try {
    const std::string owned(text);
    if (const int documents = CountDocuments(owned); documents != 1) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: {} YAML document, expected 1", source,
                                                      documents == 0 ? "no" : "more than one"));
    }
    return TreeCopy(source).Copy(YAML::Load(owned), 0);
  } catch (const YAML::Exception& error) {
    return Fail(Code::kInvalidArgument, fmt::format("{}:{}:{}: {}", source, error.mark.line + 1, error.mark.column + 1,
                                                    OneLine(error.msg)));
  } catch (const std::exception& error) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: malformed YAML: {}", source, OneLine(error.what())));
  }
}

YamlFields::YamlFields(const YamlValue& map, std::string_view source, std::string place)
    : map_(map), source_(source), place_(std::move(place)) {
  if (map.kind != YamlValue::Kind::kMap) RejectAt(map.line, "expected a map of keys and values");
}

const YamlValue* YamlFields::Find(std::string_view key) const {
  for (const auto& [name, value] : map_.fields) {
    if (name == key && value.kind != YamlValue::Kind::kNull) return &value;
  }
  return nullptr;
}

void YamlFields::RejectAt(int line, const std::string& what) {
  if (!error_) error_ = fmt::format("{}:{}: {}", source_, line, OneLine(what, 400));
}

void YamlFields::Reject(std::string_view key, std::string_view what) {
  const YamlValue* value = Find(key);
  RejectAt(value != nullptr ? value->line : map_.line, fmt::format("key \"{}{}\": {}", place_, key, what));
}

const YamlValue* YamlFields::Scalar(std::string_view key, bool required, std::string_view expected) {
  asked_.emplace(key);
  const YamlValue* value = Find(key);
  if (value == nullptr) {
    if (required) Reject(key, fmt::format("missing, expected {}", expected));
    return nullptr;
  }
  if (value->kind != YamlValue::Kind::kScalar) {
    Reject(key, "expected a single value");
    return nullptr;
  }
  return value;
}

std::string YamlFields::Text(std::string_view key) {
  const YamlValue* value = Scalar(key, true, "a word");
  if (value != nullptr && value->text.empty()) Reject(key, "empty");
  return value != nullptr ? value->text : std::string();
}

std::string YamlFields::Text(std::string_view key, std::string otherwise) {
  const YamlValue* value = Scalar(key, false);
  return value != nullptr ? value->text : std::move(otherwise);
}

int64_t YamlFields::Integer(std::string_view key, int64_t least, int64_t most) {
  const YamlValue* value = Scalar(key, true, fmt::format("an integer from {} to {}", least, most));
  if (value == nullptr) return least;
  int64_t number = 0;
  const char* end = value->text.data() + value->text.size();
  const auto parsed = std::from_chars(value->text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < least || number > most) {
    Reject(key, fmt::format("value {}, expected an integer from {} to {}", value->text, least, most));
    return least;
  }
  return number;
}

int64_t YamlFields::Integer(std::string_view key, int64_t least, int64_t most, int64_t otherwise) {
  asked_.emplace(key);
  return Has(key) ? Integer(key, least, most) : otherwise;
}

double YamlFields::Number(std::string_view key, double least, double most, double otherwise) {
  const YamlValue* value = Scalar(key, false);
  if (value == nullptr) return otherwise;
  double number = 0;
  const char* end = value->text.data() + value->text.size();
  const auto parsed = std::from_chars(value->text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(number >= least && number <= most)) {
    Reject(key, fmt::format("value {}, expected a number from {} to {}", value->text, least, most));
    return otherwise;
  }
  return number;
}

BitsPerSecond YamlFields::Rate(std::string_view key) {
  const YamlValue* value = Scalar(key, true, "a rate such as 400Gbit/s");
  if (value == nullptr) return BitsPerSecond(1);
  const Result<BitsPerSecond> rate = ParseRate(value->text);
  if (!rate) Reject(key, rate.error().message());
  return rate.value_or(BitsPerSecond(1));
}

Seconds YamlFields::Duration(std::string_view key, Seconds otherwise) {
  const YamlValue* value = Scalar(key, false);
  if (value == nullptr) return otherwise;
  const Result<Seconds> time = ParseDuration(value->text);
  if (!time) Reject(key, time.error().message());
  return time.value_or(otherwise);
}

Bytes YamlFields::Amount(std::string_view key, Bytes otherwise) {
  const YamlValue* value = Scalar(key, false);
  if (value == nullptr) return otherwise;
  const Result<Bytes> amount = ParseBytes(value->text);
  if (!amount) Reject(key, amount.error().message());
  return amount.value_or(otherwise);
}

std::vector<std::string> YamlFields::TextList(std::string_view key) {
  asked_.emplace(key);
  std::vector<std::string> texts;
  const YamlValue* value = Find(key);
  if (value == nullptr) return texts;
  if (value->kind != YamlValue::Kind::kList) Reject(key, "expected a list");
  for (const YamlValue& item : value->items) {
    if (item.kind != YamlValue::Kind::kScalar || item.text.empty()) {
      RejectAt(item.line, fmt::format("key \"{}\": an item that is no word", key));
      continue;
    }
    texts.push_back(item.text);
  }
  return texts;
}

const std::vector<YamlValue>& YamlFields::List(std::string_view key) {
  static const std::vector<YamlValue> kNone;
  asked_.emplace(key);
  const YamlValue* value = Find(key);
  if (value == nullptr) return kNone;
  if (value->kind != YamlValue::Kind::kList) Reject(key, "expected a list");
  return value->items;
}

const YamlValue* YamlFields::Value(std::string_view key) {
  asked_.emplace(key);
  return Find(key);
}

Status YamlFields::FirstError() const {
  if (error_) return Fail(Code::kInvalidArgument, *error_);
  return Ok();
}

Status YamlFields::Finish() {
  if (!error_ && place_.empty()) Integer("version", 1, 1);
  for (const auto& [name, value] : map_.fields) {
    if (asked_.contains(name)) continue;
    std::string known;
    for (const std::string& key : asked_) known += (known.empty() ? "" : ", ") + key;
    RejectAt(value.line, fmt::format("key \"{}{}\": unknown, expected one of {}", place_, name, known));
  }
  return FirstError();
}

}  // namespace weft::formats
