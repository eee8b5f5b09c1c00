// The header of a safetensors file: 8 bytes of length (little endian), that many bytes of JSON, then the tensors' bytes. Only the
// header is read here, as hostile input; who reads the bytes knows from it where they are.
//
//   {"wte.weight": {"dtype": "F32", "shape": [256, 64], "data_offsets": [0, 65536]}, "__metadata__": {"format": "pt"}, …}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace weft::formats {

enum class StoredType : uint8_t { kFloat64, kFloat32, kFloat16, kBfloat16, kOther };
/// "F64", "F32", "F16", "BF16", "another type".
std::string_view StoredTypeName(StoredType type);
/// Of an element; 0 for kOther.
int64_t BytesOf(StoredType type);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kFloat32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  ///< in the file, in bytes
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

/// Largest header that is read, in bytes: that of some 100,000 tensors.
inline constexpr int64_t kMostSafetensorsHeader = int64_t{16} << 20;

/// Bytes of the header's JSON, from the file's first 8. Errors: kInvalidArgument naming `source` for fewer bytes, a header beyond
/// kMostSafetensorsHeader, or one that the file of `file_bytes` does not hold.
[[nodiscard]] Result<int64_t> SafetensorsHeaderBytes(std::string_view first, int64_t file_bytes, std::string_view source);

/// The tensors of a file, in the order of their bytes. They fill it from the header's end to its own, without hole or overlap.
/// Errors: kInvalidArgument naming `source`, tensor, value and what was expected.
[[nodiscard]] Result<std::vector<StoredTensor>> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes,
                                                                       std::string_view source);

/// The file's first bytes, length and JSON, for tensors whose begin and end count from there; padded to a multiple of 8. begin
/// and end are moved to where they lie in the file. Requires: types other than kOther.
std::string WriteSafetensorsHeader(std::vector<StoredTensor>* tensors);

}  // namespace weft::formats
