#include "formats/checkpoint_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "formats/json_fields.h"

namespace weft::formats {
namespace {

using nlohmann::json;

constexpr int64_t kMostSteps = int64_t{1} << 48, kMostBytes = int64_t{1} << 60;
constexpr size_t kMostFiles = 100'000, kMostName = 128;

/// A file beside the one that names it.
bool PlainFile(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kMostName && name[0] != '.' && std::all_of(name.begin(), name.end(), good);
}

std::string Hex(uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<uint64_t> FromHex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

uint64_t HexField(JsonFields& f, const char* key) {
  const auto value = FromHex(f.Text(key, ""));
  if (!value) f.Reject(key, "expected 16 hexadecimal digits");
  return value.value_or(0);
}

Status NothingUnread(const JsonFields& f) {
  WEFT_RETURN_IF_ERROR(f.Finish());
  const std::vector<std::string> unread = f.Unread();
  return unread.empty()
             ? Ok()
             : Status(Fail(Code::kInvalidArgument, fmt::format("{}: an unknown key beside those of this version", f.source())));
}

Status ReadFiles(JsonFields& f, std::string_view source, CheckpointManifest* out) {
  const json* files = f.List("files");
  WEFT_RETURN_IF_ERROR(f.Finish());
  if (files == nullptr || files->size() > kMostFiles)
    return Fail(Code::kInvalidArgument, fmt::format("{}: key \"files\": expected a list of at most {}", source, kMostFiles));
  for (size_t i = 0; i < files->size(); ++i) {
    const json& entry = files->at(i);
    if (!entry.is_object())
      return Fail(Code::kInvalidArgument, fmt::format("{}: key \"files[{}]\": expected an object", source, i));
    JsonFields file(entry, source, fmt::format("files[{}].", i));
    out->files.push_back({.name = file.Text("name", ""), .bytes = file.Integer("bytes", 0, kMostBytes)});
    if (!PlainFile(out->files.back().name)) file.Reject("name", "expected the name of a file beside this one");
    WEFT_RETURN_IF_ERROR(NothingUnread(file));
  }
  return Ok();
}

}  // namespace

uint64_t TextDigest(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string WriteManifest(const CheckpointManifest& m) {
  json files = json::array(), sums = json::object();
  for (const CheckpointFile& file : m.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  for (const auto& [name, sum] : m.sums) sums[name] = Hex(sum);
  const json root = {{"version", CheckpointManifest::kVersion},
                     {"step", m.step},
                     {"files", files},
                     {"sums", sums},
                     {"training", Hex(m.training)}};
  return root.dump(1) + "\n";
}

std::string WriteTrainingState(const TrainingState& s) {
  const json root = {
      {"version", TrainingState::kVersion},
      {"step", s.step},
      {"data", {{"seed", Hex(s.seed)}, {"text", Hex(s.text_digest)}, {"sequence", s.sequence}, {"global_batch", s.global_batch}}},
      {"learning_rate", {{"peak", s.peak}, {"warm_up", s.warm_up}, {"decay", s.decay}, {"least", s.least}}}};
  return root.dump(1) + "\n";
}

std::string WriteHfIndex(const std::map<std::string, std::string>& file_of, int64_t bytes) {
  return json({{"metadata", {{"total_size", bytes}}}, {"weight_map", file_of}}).dump(1) + "\n";
}

Result<CheckpointManifest> ParseManifest(std::string_view text, std::string_view source) {
  WEFT_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, source));
  JsonFields f(root, source);
  CheckpointManifest m;
  f.Integer("version", CheckpointManifest::kVersion, CheckpointManifest::kVersion);
  m.step = f.Integer("step", 0, kMostSteps);
  m.training = HexField(f, "training");
  WEFT_RETURN_IF_ERROR(ReadFiles(f, source, &m));
  const json* sums = f.Object("sums");
  WEFT_RETURN_IF_ERROR(f.Finish());
  if (sums == nullptr) return Fail(Code::kInvalidArgument, fmt::format("{}: key \"sums\": missing, expected an object", source));
  for (const auto& [name, value] : sums->items()) {
    const auto sum = value.is_string() ? FromHex(value.get<std::string>()) : std::nullopt;
    if (!sum)
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: key \"sums\": expected 16 hexadecimal digits for each tensor", source));
    m.sums[name] = *sum;
  }
  WEFT_RETURN_IF_ERROR(NothingUnread(f));
  return m;
}

Result<TrainingState> ParseTrainingState(std::string_view text, std::string_view source) {
  WEFT_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, source));
  JsonFields f(root, source);
  TrainingState s;
  f.Integer("version", TrainingState::kVersion, TrainingState::kVersion);
  s.step = f.Integer("step", 0, kMostSteps);
  const json* data = f.Object("data");
  const json* rate = f.Object("learning_rate");
  WEFT_RETURN_IF_ERROR(f.Finish());
  if (data == nullptr || rate == nullptr)
    return Fail(Code::kInvalidArgument, fmt::format("{}: expected the keys \"data\" and \"learning_rate\"", source));
  JsonFields d(*data, source, "data."), r(*rate, source, "learning_rate.");
  s.seed = HexField(d, "seed");
  s.text_digest = HexField(d, "text");
  s.sequence = d.Integer("sequence", 1, kMostSteps);
  s.global_batch = d.Integer("global_batch", 1, kMostSteps);
  s.peak = r.Number("peak", 0, 1e300);
  s.least = r.Number("least", 0, 1e300);
  s.warm_up = r.Integer("warm_up", 0, kMostSteps);
  s.decay = r.Integer("decay", 0, kMostSteps);
  for (const JsonFields* fields : {&f, &d, &r}) WEFT_RETURN_IF_ERROR(NothingUnread(*fields));
  return s;
}

Result<std::vector<std::string>> ParseHfIndex(std::string_view text, std::string_view source) {
  WEFT_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, source));
  JsonFields f(root, source);
  const json* map = f.Object("weight_map");
  WEFT_RETURN_IF_ERROR(f.Finish());
  if (map == nullptr || map->empty())
    return Fail(Code::kInvalidArgument, fmt::format("{}: key \"weight_map\": expected the file of each tensor", source));
  std::set<std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !PlainFile(file.get<std::string>()))
      return Fail(Code::kInvalidArgument, fmt::format("{}: key \"weight_map\": expected names of files beside this one", source));
    files.insert(file.get<std::string>());
  }
  return std::vector<std::string>(files.begin(), files.end());
}

}  // namespace weft::formats
