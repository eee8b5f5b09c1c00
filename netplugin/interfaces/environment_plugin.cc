#include "netplugin/interfaces/environment_plugin.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace weft::net {
namespace {

std::mutex g_mutex;  // guards the pointer; the values behind it are constant
// Owned; freed by CloseEnvironment() alone: NCCL may still ask while the program ends.
const NcclDefaults* g_defaults = nullptr;

bool ValidName(std::string_view name) {
  constexpr std::string_view kPrefix = "NCCL_";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return false;
  return std::ranges::all_of(name, [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
}

}  // namespace

NcclDefaults ParseNcclDefaults(std::string_view text, std::string* problem) {
  problem->clear();
  const auto refuse = [&](std::string_view part, const char* expected) {
    *problem = std::string(kDefaultsVariable) + ": \"" + std::string(part.substr(0, 80)) + "\": expected " + expected +
               "; all of it is refused";
    return NcclDefaults{};
  };
  if (text.empty()) return {};
  if (text.size() > kMaxDefaultsText) return refuse(text, "at most 4096 bytes");
  NcclDefaults defaults;
  while (true) {
    const size_t end = text.find(';');
    const std::string_view part = text.substr(0, end);
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    if (equals == std::string_view::npos || !ValidName(name)) return refuse(part, "NCCL_NAME=VALUE");
    if (std::ranges::any_of(defaults, [&](const auto& known) { return known.first == name; })) {
      return refuse(part, "each name once");
    }
    if (defaults.size() == kMaxDefaults) return refuse(part, "at most 64 names");
    defaults.emplace_back(name, part.substr(equals + 1));
    if (end == std::string_view::npos) return defaults;
    text.remove_prefix(end + 1);
  }
}

int OpenEnvironment(nccl::Logger logger) {
  const char* text = std::getenv(kDefaultsVariable);
  std::string problem;
  auto defaults = std::make_unique<const NcclDefaults>(ParseNcclDefaults(text ? text : "", &problem));
  const auto say = [logger](nccl::LogLevel level, const std::string& line) {
    if (logger) logger(level, nccl::kLogInit | nccl::kLogEnv, "weft", 0, "ENV/Weft: %s", line.c_str());
  };
  if (!problem.empty()) say(nccl::kLogWarn, problem);
  for (const auto& [name, value] : *defaults) {
    const char* own = std::getenv(name.c_str());
    say(nccl::kLogInfo, own ? name + "=" + own + " is the user's; the plan would have " + value
                            : name + "=" + value + " by the plan");
  }
  const std::lock_guard lock(g_mutex);
  if (!g_defaults) g_defaults = defaults.release();  // values that were given out stay
  return nccl::kSuccess;
}

int CloseEnvironment() {
  const std::lock_guard lock(g_mutex);
  delete g_defaults;
  g_defaults = nullptr;
  return nccl::kSuccess;
}

const char* GetVariable(const char* name) {
  if (!name) return nullptr;
  if (const char* own = std::getenv(name)) return own;
  const std::lock_guard lock(g_mutex);
  if (!g_defaults) return nullptr;
  const auto found = std::ranges::find_if(*g_defaults, [&](const auto& known) { return known.first == name; });
  return found == g_defaults->end() ? nullptr : found->second.c_str();
}

}  // namespace weft::net
