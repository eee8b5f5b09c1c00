#include "formats/calibration_yaml.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "formats/one_line.h"
#include "formats/read_file.h"
#include "formats/yaml_fields.h"

namespace weft::formats {
namespace {

/// The scalars of one entry, by key, each to be asked for once.
class Entry {
 public:
  Entry(const YamlValue& value, std::string_view source) : source_(source), line_(value.line) {
    if (value.kind != YamlValue::Kind::kMap) Reject("an entry", "a map such as {name: …, value: …}");
    for (const auto& [key, field] : value.fields) {
      if (field.kind != YamlValue::Kind::kScalar) Reject(key, "one value");
      fields_[key] = field.text;
    }
  }

  std::string Text(const std::string& key) {
    const auto found = fields_.find(key);
    if (found == fields_.end()) {
      Reject(key, "a value: it is missing");
      return "";
    }
    std::string text = std::move(found->second);
    fields_.erase(found);
    return text;
  }

  double Number(const std::string& key) {
    const std::string text = Text(key);
    double value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size()) Reject(key, "a number");
    return value;
  }

  bool Flag(const std::string& key) {
    const std::string text = Text(key);
    if (text != "true" && text != "false") Reject(key, "true or false");
    return text == "true";
  }

  void Reject(const std::string& key, std::string_view expected) {
    if (error_.empty()) error_ = fmt::format("{}:{}: {}: expected {}", source_, line_, key, expected);
  }

  Status Finish() {
    if (!fields_.empty()) Reject(fields_.begin()->first, "no such key");
    return error_.empty() ? Ok() : Status(Fail(Code::kInvalidArgument, error_));
  }

 private:
  std::string source_;
  int line_;
  std::map<std::string, std::string> fields_;
  std::string error_;
};

Result<planner::CalibrationConstant> ReadConstant(const YamlValue& value, std::string_view source) {
  Entry entry(value, source);
  planner::CalibrationConstant constant;
  constant.name = entry.Text("name");
  constant.value = entry.Number("value");
  constant.least = entry.Number("least");
  constant.most = entry.Number("most");
  constant.fitted = entry.Flag("fitted");
  constant.source = entry.Text("source");
  if (!(constant.value >= constant.least && constant.value <= constant.most)) {
    entry.Reject(constant.name, fmt::format("{} to {}, is {}", constant.least, constant.most, constant.value));
  }
  WEFT_RETURN_IF_ERROR(entry.Finish());
  return constant;
}

}  // namespace

Result<planner::Calibration> ParseCalibrationYaml(std::string_view text, std::string_view source) {
  WEFT_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, source));
  if (root.kind != YamlValue::Kind::kMap) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: expected a map with version and constants", source));
  }
  std::vector<planner::CalibrationConstant> constants;
  bool version = false;
  for (const auto& [key, value] : root.fields) {
    const bool known = key == "version" || key == "constants";
    if (!known) return Fail(Code::kInvalidArgument, fmt::format("{}:{}: {}: unknown key", source, value.line, key));
    if (key == "version") {
      version = value.text == "1";
      continue;
    }
    if (value.kind == YamlValue::Kind::kNull) continue;
    if (value.kind != YamlValue::Kind::kList) {
      return Fail(Code::kInvalidArgument, fmt::format("{}:{}: {}: expected a list", source, value.line, key));
    }
    for (const YamlValue& item : value.items) {
      WEFT_ASSIGN_OR_RETURN(auto constant, ReadConstant(item, source));
      constants.push_back(std::move(constant));
    }
  }
  if (!version) return Fail(Code::kInvalidArgument, fmt::format("{}: version: expected 1", source));
  return planner::Calibration(std::move(constants));
}

Result<planner::Calibration> ReadCalibrationYaml(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseCalibrationYaml(text, path);
}

Result<std::vector<planner::MeasuredConstant>> ReadMeasuredConstants(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const planner::Calibration read, ReadCalibrationYaml(path));
  const planner::Calibration compiled;
  std::vector<planner::MeasuredConstant> measured;
  for (const planner::CalibrationConstant& c : read.constants()) {
    measured.push_back({.name = c.name, .value = c.value});
    if (const auto why = compiled.WhyNot(measured.back())) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: constant {}: {}", path, OneLine(c.name, 60), *why));
    }
  }
  return measured;
}

std::string WriteCalibrationYaml(std::span<const planner::CalibrationConstant> constants) {
  std::string text = "version: 1\nconstants:\n";
  for (const planner::CalibrationConstant& c : constants) {
    text += fmt::format("  - {{name: {}, value: {:.6g}, least: {:.6g}, most: {:.6g}, fitted: {}, source: \"{}\"}}\n", c.name, c.value, c.least,
                        c.most, c.fitted, c.source);
  }
  return text;
}

}  // namespace weft::formats
