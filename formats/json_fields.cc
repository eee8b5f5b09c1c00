#include "formats/json_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "formats/one_line.h"

namespace weft::formats {
namespace {

using nlohmann::json;

constexpr int kMostNesting = 64;

std::string Shown(const json& value) {
  if (value.is_structured()) return fmt::format("a JSON {}", value.type_name());
  return OneLine(value.dump(-1, ' ', false, json::error_handler_t::replace), 60);
}

bool IsIntegerWithin(const json& value, int64_t least, int64_t most) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  return value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= most;
}

bool IsNumberWithin(const json& value, double least, double most) {
  return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
}

/// "[json.exception.parse_error.101] parse error at line 3, column 5: ...": the code in front tells users nothing.
std::string WithoutCode(std::string_view what) {
  const size_t bracket = what.find("] ");
  return OneLine(bracket == what.npos ? what : what.substr(bracket + 2));
}

}  // namespace

Result<json> ParseJsonObject(std::string_view text, std::string_view source) {
  std::vector<std::set<std::string>> keys;
  std::string wrong;
  const json::parser_callback_t note = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMostNesting && wrong.empty()) {
      wrong = fmt::format("lists and objects nest deeper than {}, expected a plain description", kMostNesting);
    }
    if (!wrong.empty()) return false;  // the rest is checked for form only
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      wrong = fmt::format("key {}: stands twice", Shown(value));
    }
    return true;
  };
  try {
    json object = json::parse(text, note);
    if (!wrong.empty()) return Fail(Code::kInvalidArgument, fmt::format("{}: {}", source, wrong));
    if (!object.is_object()) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: a JSON {}, expected an object", source, object.type_name()));
    }
    return object;
  } catch (const json::exception& error) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: {}", source, WithoutCode(error.what())));
  }
}

JsonFields::JsonFields(const json& object, std::string_view source, std::string place)
    : object_(object), source_(source), place_(std::move(place)) {}

bool JsonFields::Has(const char* key) const {
  read_.insert(key);
  return object_.contains(key) && !object_.at(key).is_null();
}

bool JsonFields::Holds(const char* key) const {
  read_.insert(key);
  return object_.contains(key);
}

bool JsonFields::IsNumber(const char* key) const { return Has(key) && object_.at(key).is_number(); }

const json* JsonFields::Required(const char* key, std::string_view expected) {
  if (Has(key)) return &object_.at(key);
  Reject(key, fmt::format("{}, expected {}", object_.contains(key) ? "null" : "missing", expected));
  return nullptr;
}

int64_t JsonFields::Integer(const char* key, int64_t least, int64_t most) {
  const std::string expected = fmt::format("an integer from {} to {}", least, most);
  const json* value = Required(key, expected);
  if (value == nullptr) return least;
  if (IsIntegerWithin(*value, least, most)) return value->get<int64_t>();
  Reject(key, fmt::format("value {}, expected {}", Shown(*value), expected));
  return least;
}

int64_t JsonFields::Integer(const char* key, int64_t least, int64_t most, int64_t otherwise) {
  return Has(key) ? Integer(key, least, most) : otherwise;
}

double JsonFields::Number(const char* key, double least, double most) {
  const std::string expected = fmt::format("a number from {} to {}", least, most);
  const json* value = Required(key, expected);
  if (value == nullptr) return least;
  if (IsNumberWithin(*value, least, most)) return value->get<double>();
  Reject(key, fmt::format("value {}, expected {}", Shown(*value), expected));
  return least;
}

double JsonFields::Number(const char* key, double least, double most, double otherwise) {
  return Has(key) ? Number(key, least, most) : otherwise;
}

bool JsonFields::Boolean(const char* key, bool otherwise) {
  if (!Has(key)) return otherwise;
  if (object_.at(key).is_boolean()) return object_.at(key).get<bool>();
  Reject(key, fmt::format("value {}, expected true or false", Shown(object_.at(key))));
  return otherwise;
}

std::string JsonFields::Text(const char* key, const std::string& otherwise) {
  if (!Has(key)) return otherwise;
  if (object_.at(key).is_string()) return object_.at(key).get<std::string>();
  Reject(key, fmt::format("value {}, expected a string", Shown(object_.at(key))));
  return otherwise;
}

std::array<int64_t, 3> JsonFields::Triple(const char* key, int64_t least, int64_t most) {
  const std::string expected = fmt::format("an integer from {} to {}, or a list of three", least, most);
  const json* value = Required(key, expected);
  if (value == nullptr) return {least, least, least};
  if (IsIntegerWithin(*value, least, most)) {
    const auto all = value->get<int64_t>();
    return {all, all, all};
  }
  bool good = value->is_array() && value->size() == 3;
  for (size_t i = 0; good && i < 3; ++i) good = IsIntegerWithin((*value)[i], least, most);
  if (good) return {(*value)[0].get<int64_t>(), (*value)[1].get<int64_t>(), (*value)[2].get<int64_t>()};
  Reject(key, fmt::format("value {}, expected {}",
                          OneLine(value->dump(-1, ' ', false, json::error_handler_t::replace), 60), expected));
  return {least, least, least};
}

std::array<int64_t, 3> JsonFields::Triple(const char* key, int64_t least, int64_t most, int64_t otherwise) {
  return Has(key) ? Triple(key, least, most) : std::array<int64_t, 3>{otherwise, otherwise, otherwise};
}

int64_t JsonFields::CountUp(const char* key, int64_t most) {
  if (!Has(key)) return 0;
  const json& value = object_.at(key);
  bool good = value.is_array() && value.size() <= static_cast<size_t>(most);
  for (size_t i = 0; good && i < value.size(); ++i) {
    const auto entry = static_cast<int64_t>(i);
    good = IsIntegerWithin(value[i], entry, entry);
  }
  if (good) return static_cast<int64_t>(value.size());
  Reject(key, fmt::format("value {}, expected at most {} layers counted up from 0: [0, 1, 2]",
                          OneLine(value.dump(-1, ' ', false, json::error_handler_t::replace), 60), most));
  return 0;
}

int64_t JsonFields::CountOf(const char* key, int64_t otherwise) {
  if (!Has(key)) return otherwise;
  const json* object = Object(key);
  return object == nullptr || object->empty() ? otherwise : static_cast<int64_t>(object->size());
}

template <typename T, typename Good>
std::vector<T> JsonFields::ListOf(const char* key, const Good& good, std::string_view expected) {
  std::vector<T> values;
  if (!Has(key)) return values;
  const json& list = object_.at(key);
  if (!list.is_array()) {
    Reject(key, fmt::format("value {}, expected a list, each {}", Shown(list), expected));
    return values;
  }
  for (const json& value : list) {
    if (!good(value)) {
      Reject(key, fmt::format("entry {}: value {}, expected {}", values.size(), Shown(value), expected));
      return values;
    }
    values.push_back(value.get<T>());
  }
  return values;
}

std::vector<int64_t> JsonFields::Integers(const char* key, int64_t least, int64_t most) {
  return ListOf<int64_t>(key, [=](const json& value) { return IsIntegerWithin(value, least, most); },
                         fmt::format("an integer from {} to {}", least, most));
}

std::vector<double> JsonFields::Numbers(const char* key, double least, double most) {
  return ListOf<double>(key, [=](const json& value) { return IsNumberWithin(value, least, most); },
                        fmt::format("a number from {} to {}", least, most));
}

std::vector<std::string> JsonFields::Texts(const char* key) {
  return ListOf<std::string>(key, [](const json& value) { return value.is_string(); }, "a string");
}

const json* JsonFields::List(const char* key) {
  const json* value = Required(key, "a list");
  if (value == nullptr || value->is_array()) return value;
  Reject(key, fmt::format("value {}, expected a list", Shown(*value)));
  return nullptr;
}

const json* JsonFields::Object(const char* key) {
  const json* value = Required(key, "an object");
  if (value == nullptr || value->is_object()) return value;
  Reject(key, fmt::format("value {}, expected an object", Shown(*value)));
  return nullptr;
}

void JsonFields::Divides(const char* key, int64_t divisor, const char* of, int64_t dividend) {
  if (dividend % divisor != 0) {
    Reject(key, fmt::format("value {}, expected a divisor of {} = {}", divisor, of, dividend));
  }
}

std::optional<JsonFields> JsonFields::Inside(const char* key) {
  if (!Has(key)) return std::nullopt;
  const json* object = Object(key);
  if (object == nullptr) return std::nullopt;
  return JsonFields(*object, source_, place_ + key + ".");
}

void JsonFields::Skip(const char* key) { read_.insert(key); }

void JsonFields::Expect(const char* key, bool planned) {
  const bool value = Boolean(key, planned);
  if (value != planned) Note(key, fmt::format("value {}, planned as {}", value, planned));
}

void JsonFields::Note(const char* key, std::string_view what) {
  read_.insert(key);
  notes_.push_back(fmt::format("key \"{}{}\": {}", place_, key, what));
}

void JsonFields::Adopt(const JsonFields& inner) {
  if (error_.empty()) error_ = inner.error_;
  const std::vector<std::string> unread = inner.Unread();
  unread_inside_.insert(unread_inside_.end(), unread.begin(), unread.end());
  notes_.insert(notes_.end(), inner.notes_.begin(), inner.notes_.end());
}

std::vector<std::string> JsonFields::Unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) {
    if (!value.is_null() && !read_.contains(key)) keys.push_back(place_ + key);
  }
  keys.insert(keys.end(), unread_inside_.begin(), unread_inside_.end());
  return keys;
}

void JsonFields::Reject(const char* key, std::string_view what) {
  Reject(fmt::format("key \"{}{}\": {}", place_, key, what));
}

void JsonFields::Reject(std::string_view what) {
  if (error_.empty()) error_ = fmt::format("{}: {}", source_, what);
}

Status JsonFields::Finish() const {
  if (!error_.empty()) return Fail(Code::kInvalidArgument, error_);
  return Ok();
}

}  // namespace weft::formats
