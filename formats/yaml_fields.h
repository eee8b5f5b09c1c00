// YAML as this project writes it: one map per file, `version: 1` in it, no key twice, no key unknown, quantities with
// units. The library that parses YAML stays in the .cc file. Internal to formats/ and to the daemons' configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::formats {

struct YamlValue {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;                                            ///< from 1
  std::string text;                                        ///< of a scalar
  std::vector<YamlValue> items;                            ///< of a list
  std::vector<std::pair<std::string, YamlValue>> fields;   ///< of a map, in order of the file
};

/// The one document of `text`. Errors: kInvalidArgument as "SOURCE:LINE:COLUMN: …" for malformed YAML, a key that stands
/// twice, a key that is no scalar, and more than 100,000 values (aliases count where they are used).
[[nodiscard]] Result<YamlValue> ParseYaml(std::string_view text, std::string_view source);

/// Reads the fields of one map and keeps the first error, so that a reader lists its fields without a branch after each.
class YamlFields {
 public:
  /// `place` is put in front of every key in messages: "groups[0].". A map with a place is part of a file and has no
  /// `version` of its own.
  YamlFields(const YamlValue& map, std::string_view source, std::string place = "");

  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  std::string Text(std::string_view key);                       ///< required, not empty
  std::string Text(std::string_view key, std::string otherwise);
  int64_t Integer(std::string_view key, int64_t least, int64_t most);
  int64_t Integer(std::string_view key, int64_t least, int64_t most, int64_t otherwise);
  double Number(std::string_view key, double least, double most, double otherwise);
  BitsPerSecond Rate(std::string_view key);
  Seconds Duration(std::string_view key, Seconds otherwise);
  Bytes Amount(std::string_view key, Bytes otherwise);
  std::vector<std::string> TextList(std::string_view key);      ///< empty when the key is not there
  const std::vector<YamlValue>& List(std::string_view key);     ///< of anything; empty when the key is not there
  const YamlValue* Value(std::string_view key);                 ///< of any kind; null when the key is not there

  /// Reports `what` as the error of the value of `key`.
  void Reject(std::string_view key, std::string_view what);
  /// The same for a place of its own: an item of a list, two keys together.
  void RejectAt(int line, const std::string& what);
  /// Takes over the error of a part that was read with fields of its own.
  void Adopt(const Error& error) {
    if (!error_) error_ = error.message();
  }

  const std::string& place() const { return place_; }

  /// The first error until now.
  [[nodiscard]] Status FirstError() const;
  /// The first error: of a field, of `version` (must be 1), or a key that nobody asked for.
  [[nodiscard]] Status Finish();

 private:
  const YamlValue* Find(std::string_view key) const;
  const YamlValue* Scalar(std::string_view key, bool required, std::string_view expected = "a value");

  const YamlValue& map_;
  std::string source_;
  std::string place_;
  std::set<std::string, std::less<>> asked_;
  std::optional<std::string> error_;
};

}  // namespace weft::formats
