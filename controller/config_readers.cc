#include "controller/config_readers.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <set>

#include "common/parse_units.h"

namespace weft::controller {

std::string At(const std::string& source, const YAML::Node& node) {
  return fmt::format("{}:{}", source, node.Mark().line + 1);
}

Reader Text(std::string& out) {
  return [&out](const std::string& value) -> Status {
    out = value;
    return Ok();
  };
}

Reader Switch(bool& out) {
  return [&out](const std::string& value) -> Status {
    if (value != "on" && value != "off") return Fail(Code::kInvalidArgument, "expected on or off");
    out = value == "on";
    return Ok();
  };
}

Reader Duration(Seconds& out) {
  return [&out](const std::string& value) -> Status {
    WEFT_ASSIGN_OR_RETURN(const Seconds time, ParseDuration(value));
    if (time.count() <= 0) return Fail(Code::kInvalidArgument, "expected a time above 0");
    out = time;
    return Ok();
  };
}

Reader DurationUpTo(Seconds& out, Seconds most) {
  return [&out, most](const std::string& value) -> Status {
    Seconds time{0};
    WEFT_RETURN_IF_ERROR(Duration(time)(value));
    if (time > most) return Fail(Code::kInvalidArgument, fmt::format("expected at most {}", FormatDuration(most)));
    out = time;
    return Ok();
  };
}

Status ReadMap(const std::string& source, const YAML::Node& node, const std::string& prefix,
               const std::map<std::string, Reader>& readers,
               const std::map<std::string, std::function<Status(const YAML::Node&)>>& blocks) {
  if (!node.IsMap()) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: {}: expected a map of keys", At(source, node),
                                                    prefix.empty() ? "the file" : prefix));
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    const std::string where =
        fmt::format("{}: {}{}{}", At(source, entry.first), prefix, prefix.empty() ? "" : ".", key);
    if (!seen.insert(key).second) return Fail(Code::kInvalidArgument, where + ": the key is there twice");
    if (const auto block = blocks.find(key); block != blocks.end()) {
      WEFT_RETURN_IF_ERROR(block->second(entry.second));
      continue;
    }
    const auto reader = readers.find(key);
    if (reader == readers.end()) {
      std::vector<std::string> known;
      for (const auto& [name, unused] : readers) known.push_back(name);
      for (const auto& [name, unused] : blocks) known.push_back(name);
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: unknown key, expected one of {}", where, fmt::join(known, ", ")));
    }
    if (!entry.second.IsScalar()) return Fail(Code::kInvalidArgument, where + ": expected one value");
    if (const Status status = reader->second(entry.second.Scalar()); !status) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: \"{}\": {}", where, entry.second.Scalar(), status.error().message()));
    }
  }
  return Ok();
}

}  // namespace weft::controller
