// The fields of one JSON object, read with the checks that this folder's readers share. The library that parses JSON stays
// in the .cc files. Internal to formats/.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace weft::formats {

/// The one object of `text`. Errors: kInvalidArgument naming `source` and line and column of malformed JSON; a key that
/// stands twice in one object, since readers differ in which one they take; nesting beyond 64; a value that is no object.
[[nodiscard]] Result<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view source);

/// Reads fields and keeps the first error, so that a reader can list them without a branch after each. After an error the
/// values are in range and mean nothing. A key is read when any function here but Unread() was given it.
class JsonFields {
 public:
  /// `place` is put in front of every key in messages: "layers[3]." Requires: `object` is an object and outlives this.
  JsonFields(const nlohmann::json& object, std::string_view source, std::string place = "");

  /// Whether the key is there and not null.
  bool Has(const char* key) const;
  /// Whether the key is there, perhaps null.
  bool Holds(const char* key) const;
  bool IsNumber(const char* key) const;

  int64_t Integer(const char* key, int64_t least, int64_t most);
  int64_t Integer(const char* key, int64_t least, int64_t most, int64_t otherwise);
  double Number(const char* key, double least, double most);
  double Number(const char* key, double least, double most, double otherwise);
  bool Boolean(const char* key, bool otherwise);
  std::string Text(const char* key, const std::string& otherwise);
  /// Three sizes: one integer for all, or a list of three.
  std::array<int64_t, 3> Triple(const char* key, int64_t least, int64_t most);
  std::array<int64_t, 3> Triple(const char* key, int64_t least, int64_t most, int64_t otherwise);
  /// How many entries the list has; they must be 0, 1, 2 … in this order. 0 when the key is missing.
  int64_t CountUp(const char* key, int64_t most);
  /// How many entries the object has; `otherwise` when the key is missing.
  int64_t CountOf(const char* key, int64_t otherwise);
  /// Lists of one kind of value; empty when the key is missing.
  std::vector<int64_t> Integers(const char* key, int64_t least, int64_t most);
  std::vector<double> Numbers(const char* key, double least, double most);
  std::vector<std::string> Texts(const char* key);
  /// The list or object at `key`; nullptr, and an error, if it is something else.
  const nlohmann::json* List(const char* key);
  const nlohmann::json* Object(const char* key);

  /// The fields of the object at `key`; nothing when the key is missing, or holds something else, which is an error. What they
  /// find counts once it is adopted.
  std::optional<JsonFields> Inside(const char* key);
  /// Marks `key` as read.
  void Skip(const char* key);
  /// Reads a boolean of which only `planned` is planned for; another one is noted.
  void Expect(const char* key, bool planned);
  /// Keeps "key "…": `what`" for the user, who may go on.
  void Note(const char* key, std::string_view what);
  /// Takes over what `inner`, the fields of one of this object's objects, found: its error, notes and unread keys.
  void Adopt(const JsonFields& inner);

  /// Reports `key`'s value as an error unless it divides `dividend`, which is called `of`.
  void Divides(const char* key, int64_t divisor, const char* of, int64_t dividend);
  /// Reports "key "…": `what`" or, without a key, `what`.
  void Reject(const char* key, std::string_view what);
  void Reject(std::string_view what);

  /// Keys that were not read and hold something, with their place; of adopted objects too.
  std::vector<std::string> Unread() const;
  std::string_view source() const { return source_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool failed() const { return !error_.empty(); }
  /// The first error, or success.
  [[nodiscard]] Status Finish() const;

 private:
  template <typename T, typename Good>
  std::vector<T> ListOf(const char* key, const Good& good, std::string_view expected);
  const nlohmann::json* Required(const char* key, std::string_view expected);

  const nlohmann::json& object_;
  std::string_view source_;
  std::string place_;
  std::string error_;
  mutable std::set<std::string, std::less<>> read_;
  std::vector<std::string> unread_inside_, notes_;
};

}  // namespace weft::formats
