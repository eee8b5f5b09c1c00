#include "netplugin/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace weft::net {
namespace {
// Relaxed: a function pointer with nothing behind it to publish.
std::atomic<nccl::Logger> g_logger{nullptr};
}  // namespace

void SetLogger(nccl::Logger logger) { g_logger.store(logger, std::memory_order_relaxed); }

void Log(nccl::LogLevel level, const char* format, ...) {
  const nccl::Logger logger = g_logger.load(std::memory_order_relaxed);
  if (!logger) return;
  char text[500];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  logger(level, nccl::kLogInit | nccl::kLogNet, "weft", 0, "NET/Weft: %s", text);
}

}  // namespace weft::net
