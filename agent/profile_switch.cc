#include "agent/profile_switch.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "common/log.h"

namespace weft::agent {

std::optional<abi::ProfileLevel> ParseProfileLevel(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return std::nullopt;
  const std::string word = text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
  constexpr const char* kNames[] = {"off", "collectives", "steps", "kernels"};
  for (uint32_t i = 0; i < std::size(kNames); ++i) {
    if (word == kNames[i]) return static_cast<abi::ProfileLevel>(i);
  }
  return std::nullopt;
}

bool ProfileSwitch::Due(uint64_t now_ns) {
  if (now_ns < next_read_ns_) return false;
  next_read_ns_ = now_ns + kReadEveryNs;
  std::erase_if(trouble_, [now_ns](const auto& job) { return job.second <= now_ns; });
  std::ifstream file(path_);
  if (!file) {
    level_.reset();
    refused_.clear();
    return true;
  }
  std::string text(32, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  level_ = ParseProfileLevel(text);
  if (!level_ && text != refused_) {
    LogWarn("agent", "refused profile level", {{"file", path_}, {"expected", "off, collectives, steps or kernels"}});
    refused_ = text;
  }
  return true;
}

std::optional<abi::ProfileLevel> ProfileSwitch::Level(const std::string& job, uint64_t now_ns) const {
  const auto trouble = trouble_.find(job);
  if (trouble == trouble_.end() || trouble->second <= now_ns) return level_;
  // Who says "off" means it.
  if (level_ == abi::ProfileLevel::kOff) return level_;
  return std::max(level_.value_or(abi::ProfileLevel::kOff), abi::ProfileLevel::kSteps);
}

}  // namespace weft::agent
