// When the plugins' profiler faces record, and how much: by the file `profile` in the run directory, which an operator
// writes and removes while jobs run ("off", "collectives", "steps" or "kernels"), and for a while at steps for a job in
// which a connection stands still or a rank has not come to a collective.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "netplugin/abi/segment.h"

namespace weft::agent {

/// The level of that name, blanks around it ignored; nullopt for any other text.
std::optional<abi::ProfileLevel> ParseProfileLevel(const std::string& text);

/// Not thread-safe.
class ProfileSwitch {
 public:
  static constexpr uint64_t kReadEveryNs = 1'000'000'000;
  static constexpr uint64_t kTroubleNs = 30'000'000'000;  ///< how long a job in trouble is watched closely
  static constexpr uint64_t kLeaseNs = 10'000'000'000;    ///< of what is written into a segment

  explicit ProfileSwitch(std::string path) : path_(std::move(path)) {}

  /// Reads the file if it is time. True if it was: levels are to be written again, their lease runs out.
  bool Due(uint64_t now_ns);
  void Trouble(const std::string& job, uint64_t now_ns) { trouble_[job] = now_ns + kTroubleNs; }
  /// What to write for `job`; nullopt: leave it to the process itself.
  std::optional<abi::ProfileLevel> Level(const std::string& job, uint64_t now_ns) const;

 private:
  const std::string path_;
  uint64_t next_read_ns_ = 0;
  std::string refused_;  // said once
  std::optional<abi::ProfileLevel> level_;
  std::map<std::string, uint64_t> trouble_;  // job to when it is over
};

}  // namespace weft::agent
