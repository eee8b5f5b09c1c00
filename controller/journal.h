// What must survive a restart of the controller, in one SQLite file (WAL): jobs submitted and not yet released, the
// mode, the newest epoch of every job that any host may hold, and what iterations of the newest jobs took. Everything else comes back from the agents.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "controller/events.h"

namespace weft::controller {

/// Not thread-safe: one caller at a time.
class Journal {
 public:
  static constexpr int kSchemaVersion = 3;

  /// Opens or makes `state_dir`/controller.db; makes the folder if it is missing. Errors: kFailedPrecondition naming
  /// file and cause when it cannot be opened, is held by another controller, or has an unknown schema version.
  [[nodiscard]] static Result<std::unique_ptr<Journal>> Open(const std::string& state_dir);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// What happened before, as events of time 0: mode, epochs, jobs in order of submission.
  /// Errors: kDataLoss when a row cannot be read.
  [[nodiscard]] Result<std::vector<Event>> Replay();

  /// Runs to learn from, oldest first; one that cannot be read is left out. Errors: kFailedPrecondition when the file cannot be read.
  [[nodiscard]] Result<std::vector<v1::MeasuredRun>> Runs();

  /// A number above all that were given out before, `wanted` if that is: whatever became of the clock. One that cannot be written is
  /// given all the same. Errors: kFailedPrecondition when the file cannot be read.
  [[nodiscard]] Result<int64_t> NextIncarnation(int64_t wanted);

  // Each returns once the kernel has the change: a controller that crashes finds it again, a machine that loses power may not find the
  // newest (synchronous NORMAL), which agents then make good. Errors: kFailedPrecondition, e.g. a full disk.
  [[nodiscard]] Status Keep(const JobSubmitted& job);
  [[nodiscard]] Status Keep(const JobReleased& job);
  [[nodiscard]] Status Keep(const ModeSet& mode);
  [[nodiscard]] Status Keep(const KeepEpoch& epoch);
  [[nodiscard]] Status Keep(const ForgetEpoch& epoch);
  [[nodiscard]] Status Keep(const KeepStarted& job);
  [[nodiscard]] Status Keep(const KeepReleased& job);
  [[nodiscard]] Status Keep(const KeepPlan& job);
  /// In place of the job's earlier one, and of those that had to go (run_learning.h).
  [[nodiscard]] Status Keep(const KeepRun& run);

 private:
  class Database;
  explicit Journal(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

}  // namespace weft::controller
