// For tests: what the plugin says to NCCL's logger. The logger is a plain function, so the lines are the process's.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "netplugin/abi/nccl_net.h"

namespace weft::net::testing {

class LogCapture {
 public:
  static void Clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }
  static std::vector<std::string> Lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  /// To be handed to an init, or to SetLogger(). Threads: any.
  [[gnu::format(printf, 5, 6)]] static void Logger(int, unsigned long, const char*, int, const char* format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const std::lock_guard lock(mutex_);
    lines_.push_back(text);
  }

 private:
  static inline std::mutex mutex_;  // guards lines_
  static inline std::vector<std::string> lines_;
};

}  // namespace weft::net::testing
