// What is known on disk of every fabric of this machine: one JSON file per fabric in /run/weft-testbed. A file is written
// before the first namespace is made and goes last, so that whatever exists is always named by one. All changes are made
// under one lock file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "testbed/fabric_plan.h"

namespace weft::testbed {

/// A process, told apart from a later one of the same pid by its start time.
struct Owner {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  ///< field 22 of /proc/<pid>/stat: clock ticks since boot

  friend bool operator==(const Owner&, const Owner&) = default;
};

/// The calling process.
[[nodiscard]] Result<Owner> Self();
/// Whether that very process runs; a zombie does not.
bool IsAlive(const Owner& owner);
/// Start time out of the text of /proc/<pid>/stat, or nothing for a process that is gone (state Z or X).
/// Errors: kInvalidArgument for text of another shape.
[[nodiscard]] Result<std::optional<uint64_t>> ParseProcStat(std::string_view text);

struct FabricState {
  FabricOptions options;       ///< id and rates filled in
  int slot = 0;
  std::optional<Owner> owner;  ///< nobody: stays until removed

  friend bool operator==(const FabricState&, const FabricState&) = default;
};

std::string FormatState(const FabricState& state);
/// Errors: kInvalidArgument naming `path`, the key and what was expected.
[[nodiscard]] Result<FabricState> ParseState(std::string_view path, std::string_view text);

/// The folder of state files.
class StateStore {
 public:
  explicit StateStore(std::string directory = "/run/weft-testbed") : directory_(std::move(directory)) {}

  /// Makes the folder and takes its lock; blocks while another process holds it. Released with the descriptor.
  [[nodiscard]] Result<UniqueFd> Lock() const;
  /// Requires: the lock. Replaces the file as a whole.
  [[nodiscard]] Status Write(const FabricState& state) const;
  /// Errors: kNotFound naming the fabric.
  [[nodiscard]] Result<FabricState> Read(std::string_view id) const;
  /// Requires: the lock. A file that is not there is no error.
  [[nodiscard]] Status Erase(std::string_view id) const;
  /// All fabrics, by id; none where the folder does not exist. Files that cannot be read as a state are skipped and
  /// named in `unreadable` if given.
  [[nodiscard]] Result<std::vector<FabricState>> List(std::vector<std::string>* unreadable = nullptr) const;

 private:
  std::string PathOf(std::string_view id) const;
  std::string directory_;
};

}  // namespace weft::testbed
