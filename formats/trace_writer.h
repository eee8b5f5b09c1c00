// The text of a Chrome trace, which chrome://tracing and Perfetto open.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "common/units.h"

namespace weft::formats {

/// Written event by event: a document in memory would take ten times the text.
class TraceWriter {
 public:
  void Add(const std::string& event) {
    text_ += text_.empty() ? "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" : ",\n";
    text_ += event;
  }

  void AddName(std::string_view what, int process, size_t thread, std::string_view name) {
    Add(fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "args": {{"name": {}}}}})", what, process,
                    thread, Quoted(name)));
  }

  std::string Take() { return std::move(text_) + "\n]}\n"; }

  static std::string Quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  }

  /// Microseconds, the unit of the format, to a thousandth of a nanosecond: integrals stay what they are.
  static std::string Stamp(Seconds at) { return fmt::format("{:.6f}", at.count() * 1e6); }

 private:
  std::string text_;
};

}  // namespace weft::formats
