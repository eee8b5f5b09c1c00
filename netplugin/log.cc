#include "netplugin/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace weft::net {
namespace {
// Relaxed: a function pointer with nothing behind it to publish.
std::atomic<nccl::Logger> g_logger{nullptr};

constexpr size_t kLineBytes = 500;
constexpr size_t kMostListed = 64;
constexpr size_t kLongestValue = 120;
}  // namespace

void SetLogger(nccl::Logger logger) { g_logger.store(logger, std::memory_order_relaxed); }

void Log(nccl::LogLevel level, const char* format, ...) {
  const nccl::Logger logger = g_logger.load(std::memory_order_relaxed);
  if (!logger) return;
  char text[kLineBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  logger(level, nccl::kLogInit | nccl::kLogNet, "weft", 0, "NET/Weft: %s", text);
}

void LogList(nccl::LogLevel level, const std::string& head, const std::vector<std::string>& entries) {
  std::string line = head;
  bool first = true;  // in its line
  const auto add = [&](const std::string& entry) {
    if (!first && line.size() + entry.size() + 2 >= kLineBytes) {
      Log(level, "%s,", line.c_str());
      line = "  ";
      first = true;
    }
    line += (first ? " " : ", ") + entry;
    first = false;
  };
  for (size_t i = 0; i < entries.size() && i < kMostListed; ++i) add(entries[i]);
  if (entries.size() > kMostListed) add("and " + std::to_string(entries.size() - kMostListed) + " more");
  Log(level, "%s", line.c_str());
}

std::string Setting(std::string_view name, std::string_view value) {
  std::string text = std::string(name) + "=\"" + std::string(value.substr(0, kLongestValue));
  return text + (value.size() > kLongestValue ? "...\"" : "\"");
}

}  // namespace weft::net
