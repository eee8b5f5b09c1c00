// The fields of one JSON object, read with the checks that this folder's readers share. The library that parses JSON stays
// in the .cc files. Internal to formats/.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/result.h"

namespace weft::formats {

/// The one object of `text`. Errors: kInvalidArgument naming `source` and line and column of malformed JSON; a key that
/// stands twice in one object, since readers differ in which one they take; nesting beyond 64; a value that is no object.
[[nodiscard]] Result<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view source);

/// Reads fields and keeps the first error, so that a reader can list them without a branch after each. After an error the
/// values are in range and mean nothing.
class JsonFields {
 public:
  /// `place` is put in front of every key in messages: "layers[3]." Requires: `object` is an object and outlives this.
  JsonFields(const nlohmann::json& object, std::string_view source, std::string place = "");

  /// Whether the key is there and not null.
  bool Has(const char* key) const;

  int64_t Integer(const char* key, int64_t least, int64_t most);
  int64_t Integer(const char* key, int64_t least, int64_t most, int64_t otherwise);
  double Number(const char* key, double least, double most, double otherwise);
  bool Boolean(const char* key, bool otherwise);
  std::string Text(const char* key, const std::string& otherwise);
  /// Three sizes: one integer for all, or a list of three.
  std::array<int64_t, 3> Triple(const char* key, int64_t least, int64_t most);
  std::array<int64_t, 3> Triple(const char* key, int64_t least, int64_t most, int64_t otherwise);
  /// How many entries the list has; they must be 0, 1, 2 … in this order. 0 when the key is missing.
  int64_t CountUp(const char* key, int64_t most);
  /// The list or object at `key`; nullptr, and an error, if it is something else.
  const nlohmann::json* List(const char* key);
  const nlohmann::json* Object(const char* key);

  /// Reports `key`'s value as an error unless it divides `dividend`, which is called `of`.
  void Divides(const char* key, int64_t divisor, const char* of, int64_t dividend);
  /// Reports "key "…": `what`" or, without a key, `what`.
  void Reject(const char* key, std::string_view what);
  void Reject(std::string_view what);

  bool failed() const { return !error_.empty(); }
  /// The first error, or success.
  [[nodiscard]] Status Finish() const;

 private:
  const nlohmann::json* Required(const char* key, std::string_view expected);

  const nlohmann::json& object_;
  std::string_view source_;
  std::string place_;
  std::string error_;
};

}  // namespace weft::formats
