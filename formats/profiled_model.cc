#include "formats/profiled_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/hf_config.h"
#include "formats/one_line.h"

namespace weft::formats {
namespace {

using nlohmann::json;

json OperatorJson(const planner::ModelOperator& o, int64_t element) {
  return {{"name", o.name}, {"type", o.type}, {"parameters", o.parameters}, {"parameter_bytes", o.parameters * element},
          {"forward_flops", o.flops.count()}, {"output_bytes", o.output.count()}};
}

json GroupJson(const planner::OperatorGroup& group, int64_t element) {
  json operators = json::array();
  for (const planner::ModelOperator& o : group.operators) operators.push_back(OperatorJson(o, element));
  return {{"name", group.name}, {"count", group.count}, {"activation_bytes", group.activations.count()}, {"operators", operators}};
}

}  // namespace

std::string WriteProfiledModel(const planner::ModelSpec& model, const planner::OperatorProfile& profile) {
  json config = json::parse(WriteHfConfig(model));
  json groups = json::array();
  for (const planner::OperatorGroup& group : profile.groups) groups.push_back(GroupJson(group, profile.element_bytes));
  config[std::string(kProfileKey)] = {{"version", 1}, {"source", profile.source}, {"input", profile.input},
                                      {"element_bytes", profile.element_bytes}, {"parameters", profile.Parameters()},
                                      {"parameter_bytes", profile.Parameters() * profile.element_bytes},
                                      {"forward_flops", profile.ForwardFlops().count()},
                                      {"activation_bytes", profile.Activations().count()},
                                      {"assumptions", profile.assumptions}, {"groups", groups}};
  return config.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::vector<std::string> ProfileLines(const planner::ModelSpec& model, const planner::OperatorProfile& profile) {
  int64_t layers = 0;
  for (const planner::OperatorGroup& group : profile.groups) layers += group.count;
  std::vector<std::string> lines = {
      fmt::format("{}: {} parameters ({} bytes); input {}: {:.6g} FLOPs forward, {} bytes of activations, {} groups of {} layers",
                  model.name, profile.Parameters(), profile.Parameters() * profile.element_bytes, fmt::join(profile.input, "x"),
                  profile.ForwardFlops().count(), profile.Activations().count(), profile.groups.size(), layers)};
  for (const std::string& assumption : profile.assumptions) lines.push_back("assumed: " + assumption);
  return lines;
}

Status WriteModelFile(const std::string& path, const std::string& text) {
  if (path.empty()) {
    std::fputs(text.c_str(), stdout);
    return Ok();
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? Ok() : Status(Fail(Code::kUnavailable, fmt::format("--out {}: cannot be written", path)));
}

Result<std::vector<int64_t>> ParseShape(std::string_view text) {
  constexpr size_t kMostDimensions = 8;
  constexpr int64_t kMostSize = int64_t{1} << 24, kMostElements = int64_t{1} << 31;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('x', begin), text.size());
    int64_t size = 0;
    const auto [stop, status] = std::from_chars(text.data() + begin, text.data() + end, size);
    const bool good = status == std::errc() && stop == text.data() + end && size >= 1 && size <= kMostSize;
    if (good) elements = elements > kMostElements / size ? kMostElements + 1 : elements * size;
    if (!good || shape.size() == kMostDimensions || elements > kMostElements) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("\"{}\": expected up to {} sizes such as 1x3x224x224, each from 1 to {}, {} elements at most",
                              OneLine(text, 60), kMostDimensions, kMostSize, kMostElements));
    }
    shape.push_back(size);
    begin = end + 1;
  }
  return shape;
}

std::optional<std::string> ProfileWarning(const json& config, const planner::ModelSpec& model) {
  const auto at = config.find(kProfileKey);
  if (at == config.end()) return std::nullopt;
  const int64_t counted = planner::ParameterCount(model);
  const bool said = at->is_object() && at->contains("parameters") && at->at("parameters").is_number_integer();
  if (said && at->at("parameters") == counted) return std::nullopt;
  return fmt::format("{}.parameters: {}, the model's other keys make {}: planned by these; run `weft profile` again", kProfileKey,
                     said ? at->at("parameters").dump() : "no whole number", counted);
}

}  // namespace weft::formats
