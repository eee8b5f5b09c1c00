#include "common/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace weft {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

/// As --log-level calls them; spdlog's own name for one of them is another.
const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarn: return "warn";
    case LogLevel::kError: return "error";
  }
  return "error";
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("weft", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %v");
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

}  // namespace

LogField::LogField(std::string_view key, std::string_view value) : key_(key) {
  const bool quote = value.empty() || value.find_first_of(" \"=\n") != std::string_view::npos;
  if (!quote) {
    value_ = value;
    return;
  }
  value_ = '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') value_ += '\\';
    value_ += c == '\n' ? ' ' : c;
  }
  value_ += '"';
}

LogField::LogField(std::string_view key, double value) : key_(key), value_(fmt::format("{:.6g}", value)) {}

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

void Log(LogLevel level, std::string_view component, std::string_view text,
         std::initializer_list<LogField> fields) {
  if (!Logger().should_log(ToSpdlog(level))) return;
  std::string line = fmt::format("{:<5} {:<10} {}", NameOf(level), component, text);
  for (const LogField& field : fields) line += fmt::format(" {}={}", field.key(), field.value());
  Logger().log(ToSpdlog(level), line);
}

}  // namespace weft
