#include "formats/given_strategy.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "formats/json_fields.h"
#include "formats/one_line.h"
#include "formats/read_file.h"

namespace weft::formats {
namespace {

using nlohmann::json;

constexpr size_t kShown = 60;           // of a value or a key, in a message
constexpr size_t kLongestSource = 200;

/// Sets a variable by its word; what is wrong with it otherwise.
std::optional<std::string> SetVariable(std::string_view name, std::string_view word, std::string_view shown,
                                       planner::Strategy& strategy) {
  const planner::StrategyVariable* variable = planner::FindStrategyVariable(name);
  if (variable == nullptr) return fmt::format("unknown, expected one of {}", planner::StrategyVariableNames());
  const auto value = variable->parse(word);
  if (!value || *value < variable->least || *value > variable->most) {
    return fmt::format("value {}, expected {}", shown, variable->values);
  }
  variable->set(strategy, *value);
  return std::nullopt;
}

/// A scalar as `--fix` has it. Amounts of bytes are plain numbers in JSON, and have a unit there.
std::string WordOf(const std::string& name, const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (!value.is_number_integer()) return "";
  const planner::StrategyVariable* variable = planner::FindStrategyVariable(name);
  const std::string word = value.dump();
  return variable != nullptr && !variable->parse(word) ? word + "B" : word;
}

Error BadPlan(std::string_view source, const std::string& what) {
  return Error(Code::kInvalidArgument, fmt::format("{}: {}", source, what));
}

/// The entry of "plans" that was asked for.
Result<const json*> FindPlan(const json& root, std::string_view source, int64_t index) {
  JsonFields fields(root, source);
  const json* plans = fields.List("plans");
  if (plans == nullptr) {
    return Fail(BadPlan(source, "key \"plans\": expected a list of plans, as weft plan --output json prints it"));
  }
  const auto count = static_cast<int64_t>(plans->size());
  if (count == 0) return Fail(BadPlan(source, "key \"plans\": empty: weft plan found none that fits; expected a plan"));
  if (index < 0 || index >= count) {
    return Fail(BadPlan(source, fmt::format("plan {}: the file has {}, expected 0 to {}; weft plan --top N prints more", index,
                                            count, count - 1)));
  }
  const json& plan = plans->at(static_cast<size_t>(index));
  if (!plan.is_object()) return Fail(BadPlan(source, fmt::format("key \"plans[{}]\": expected an object", index)));
  if (const auto groups = plan.find("groups"); groups != plan.end() && groups->is_array() && !groups->empty()) {
    return Fail(BadPlan(source, fmt::format("key \"plans[{}].groups\": a strategy for each group of machines, expected one for "
                                            "the whole job: plan for the hosts of one group", index)));
  }
  return &plan;
}

}  // namespace

Result<planner::Strategy> ParsePlanJson(std::string_view text, std::string_view source, int64_t index) {
  if (text.size() > kMostPlanBytes) {
    return Fail(BadPlan(source, "larger than 1 MiB, expected what weft plan --output json prints"));
  }
  WEFT_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, source));
  WEFT_ASSIGN_OR_RETURN(const json* const plan, FindPlan(root, source, index));
  const std::string place = fmt::format("plans[{}].", index);
  JsonFields fields(*plan, source, place);
  const json* const given = fields.Object("strategy");
  WEFT_RETURN_IF_ERROR(fields.Finish());
  planner::Strategy strategy;
  for (const auto& [name, value] : given->items()) {
    const std::string shown =
        value.is_structured() ? fmt::format("a JSON {}", value.type_name())
                              : OneLine(value.dump(-1, ' ', false, json::error_handler_t::replace), kShown);
    if (const auto wrong = SetVariable(name, WordOf(name, value), shown, strategy)) {
      return Fail(BadPlan(source, fmt::format("key \"{}strategy.{}\": {}", place, OneLine(name, kShown), *wrong)));
    }
  }
  return strategy;
}

Result<GivenStrategy> ReadPlanJson(const std::string& path, int64_t index) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  GivenStrategy given;
  WEFT_ASSIGN_OR_RETURN(given.strategy, ParsePlanJson(text, path, index));
  given.source = OneLine(fmt::format("{}, plan {}", path.substr(path.rfind('/') + 1), index), kLongestSource);
  return given;
}

Result<planner::Strategy> ReadStrategyMap(const YamlValue& map, std::string_view source, std::string_view key) {
  if (map.kind != YamlValue::Kind::kMap || map.fields.empty()) {
    return Fail(Code::kInvalidArgument, fmt::format("{}:{}: key \"{}\": expected a map such as {{tp: 8, pp: 4, dp: 2}}", source,
                                                    map.line, key));
  }
  planner::Strategy strategy;
  for (const auto& [name, value] : map.fields) {
    const bool scalar = value.kind == YamlValue::Kind::kScalar;
    const std::string word = scalar ? value.text : "";
    const std::string shown = scalar ? OneLine(word, kShown) : std::string("that is no single word");
    if (const auto wrong = SetVariable(name, word, shown, strategy)) {
      return Fail(Code::kInvalidArgument, fmt::format("{}:{}: key \"{}.{}\": {}", source, value.line, key,
                                                      OneLine(name, kShown), *wrong));
    }
  }
  return strategy;
}

}  // namespace weft::formats
