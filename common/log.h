// Log lines of the daemons and tools, to stderr: time, level, component, a fixed text, then key=value pairs with the
// unit in the key. No log on a hot path. The plugin does not use this: it logs through NCCL's own function.
//
//   LogInfo("agent", "joined controller", {{"address", address}, {"epoch", epoch}});
//   2026-03-01T12:00:00.123 info  agent      joined controller address=10.0.0.1:7070 epoch=4
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace weft {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

/// One key=value pair; numbers are printed plainly, text is quoted where it holds a space.
class LogField {
 public:
  LogField(std::string_view key, std::string_view value);
  LogField(std::string_view key, const std::string& value) : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, const char* value) : LogField(key, std::string_view(value)) {}
  template <std::integral T>
  LogField(std::string_view key, T value) : key_(key), value_(std::to_string(value)) {}
  LogField(std::string_view key, double value);

  std::string_view key() const { return key_; }
  const std::string& value() const { return value_; }

 private:
  std::string_view key_;
  std::string value_;
};

/// Least level that is printed; kInfo at start. Threads: any.
void SetLogLevel(LogLevel level);

/// Writes one line. Threads: any; lines never mix.
void Log(LogLevel level, std::string_view component, std::string_view text,
         std::initializer_list<LogField> fields = {});

inline void LogDebug(std::string_view component, std::string_view text, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, component, text, fields);
}
inline void LogInfo(std::string_view component, std::string_view text, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, component, text, fields);
}
inline void LogWarn(std::string_view component, std::string_view text, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarn, component, text, fields);
}
inline void LogError(std::string_view component, std::string_view text, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, component, text, fields);
}

}  // namespace weft
