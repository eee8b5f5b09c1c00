#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/json_fields.h"

namespace weft::formats {
namespace {

using nlohmann::json;

constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr size_t kMostName = 256, kMostDimensions = 8;

struct KnownType {
  const char* name;
  StoredType type;
  int64_t bytes;
};
constexpr KnownType kTypes[] = {
    {"F64", StoredType::kFloat64, 8},   {"F32", StoredType::kFloat32, 4},   {"F16", StoredType::kFloat16, 2},
    {"BF16", StoredType::kBfloat16, 2}, {"I64", StoredType::kOther, 8},     {"U64", StoredType::kOther, 8},
    {"I32", StoredType::kOther, 4},     {"U32", StoredType::kOther, 4},     {"I16", StoredType::kOther, 2},
    {"U16", StoredType::kOther, 2},     {"I8", StoredType::kOther, 1},      {"U8", StoredType::kOther, 1},
    {"BOOL", StoredType::kOther, 1},    {"F8_E4M3", StoredType::kOther, 1}, {"F8_E5M2", StoredType::kOther, 1}};

/// A name that can stand in a message, and be looked up.
bool GoodName(const std::string& name) {
  return !name.empty() && name.size() <= kMostName &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

Result<StoredTensor> ParseTensor(const std::string& name, const json& object, std::string_view source) {
  if (!object.is_object()) return Fail(Code::kInvalidArgument, fmt::format("{}: tensor {}: expected an object", source, name));
  JsonFields f(object, source, name + ".");
  const std::string type = f.Text("dtype", "");
  const std::vector<int64_t> shape = f.Integers("shape", 0, kMostElements), at = f.Integers("data_offsets", 0, kMostElements);
  WEFT_RETURN_IF_ERROR(f.Finish());
  const auto known = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const KnownType& k) { return type == k.name; });
  if (known == std::end(kTypes)) {
    f.Reject("dtype", "unknown, expected F64, F32, F16, BF16, or an integer type");
    return Fail(f.Finish().error());
  }
  if (at.size() != 2 || at[0] > at[1]) f.Reject("data_offsets", "expected a begin and an end behind it");
  if (!f.Has("shape") || shape.size() > kMostDimensions) f.Reject("shape", "expected a list of up to 8 sizes");
  WEFT_RETURN_IF_ERROR(f.Finish());
  int64_t bytes = known->bytes;
  for (const int64_t size : shape) {
    if (size > 0 && bytes > kMostElements / size) f.Reject("shape", "more elements than a file has");
    WEFT_RETURN_IF_ERROR(f.Finish());
    bytes *= size;
  }
  if (at[1] - at[0] != bytes) {
    return Fail(Code::kInvalidArgument, fmt::format("{}: tensor {} lies in {} bytes, expected the {} of its shape and type",
                                                    source, name, at[1] - at[0], bytes));
  }
  return StoredTensor{.name = name, .type = known->type, .shape = shape, .begin = at[0], .end = at[1]};
}

}  // namespace

std::string_view StoredTypeName(StoredType type) {
  switch (type) {
    case StoredType::kFloat64:
      return "F64";
    case StoredType::kFloat32:
      return "F32";
    case StoredType::kFloat16:
      return "F16";
    case StoredType::kBfloat16:
      return "BF16";
    case StoredType::kOther:
      break;
  }
  return "another type";
}

int64_t BytesOf(StoredType type) {
  switch (type) {
    case StoredType::kFloat64:
      return 8;
    case StoredType::kFloat32:
      return 4;
    case StoredType::kFloat16:
    case StoredType::kBfloat16:
      return 2;
    case StoredType::kOther:
      break;
  }
  return 0;
}

Result<int64_t> SafetensorsHeaderBytes(std::string_view first, int64_t file_bytes, std::string_view source) {
  if (first.size() < 8 || file_bytes < 8) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: {} bytes, expected a safetensors file of at least 8", source, std::max<int64_t>(0, file_bytes)));
  }
  uint64_t bytes = 0;
  for (size_t i = 8; i-- > 0;) bytes = bytes << 8 | static_cast<unsigned char>(first[i]);
  const int64_t most = std::min(kMostSafetensorsHeader, file_bytes - 8);
  if (bytes > static_cast<uint64_t>(most)) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: a header of {} bytes, expected at most {} in a file of {}", source, bytes, most, file_bytes));
  }
  return static_cast<int64_t>(bytes);
}

Result<std::vector<StoredTensor>> ParseSafetensorsHeader(std::string_view text, int64_t file_bytes, std::string_view source) {
  WEFT_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, source));
  const int64_t data = 8 + static_cast<int64_t>(text.size());
  std::vector<StoredTensor> tensors;
  for (const auto& [name, object] : root.items()) {
    if (name == "__metadata__") continue;
    if (!GoodName(name)) {
      return Fail(Code::kInvalidArgument, fmt::format("{}: a tensor's name of {} bytes, expected 1 to {} printable ones", source,
                                                      name.size(), kMostName));
    }
    WEFT_ASSIGN_OR_RETURN(StoredTensor tensor, ParseTensor(name, object, source));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  int64_t end = 0;
  for (StoredTensor& tensor : tensors) {
    if (tensor.begin != end) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("{}: tensor {} begins at byte {}, expected {}, where the one before it ends", source, tensor.name,
                              tensor.begin, end));
    }
    end = tensor.end;
    tensor.begin += data, tensor.end += data;
  }
  if (data + end != file_bytes) {
    return Fail(Code::kInvalidArgument,
                fmt::format("{}: {} bytes, expected {} with all that its header says", source, file_bytes, data + end));
  }
  return tensors;
}

std::string WriteSafetensorsHeader(std::vector<StoredTensor>* tensors) {
  json root = {{"__metadata__", {{"format", "pt"}}}};
  for (const StoredTensor& t : *tensors) {
    root[t.name] = {{"dtype", StoredTypeName(t.type)}, {"shape", t.shape}, {"data_offsets", json::array({t.begin, t.end})}};
  }
  std::string text = root.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) file += static_cast<char>(text.size() >> shift & 0xff);
  file += text;
  for (StoredTensor& t : *tensors) {
    t.begin += static_cast<int64_t>(file.size());
    t.end += static_cast<int64_t>(file.size());
  }
  return file;
}

}  // namespace weft::formats
