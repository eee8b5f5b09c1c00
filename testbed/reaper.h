// Taking a fabric down, by its owner or, when the owner died, by a process that waited for that.
#pragma once

#include <sys/types.h>

#include "common/result.h"
#include "testbed/fabric_state.h"

namespace weft::testbed {

/// Ends the processes inside, removes namespaces, bridge and ports, and last the state file. Does what it can: parts that
/// are not there are no error. Requires: the store's lock. Errors: kFailedPrecondition naming what is still there.
[[nodiscard]] Status TearDown(const StateStore& store, const FabricState& state);

/// A child process that tears down one fabric when its owner dies by any signal. It lives in a session of its own and
/// ignores SIGINT, SIGTERM and SIGHUP, so that a terminal cannot end it together with the owner.
class Reaper {
 public:
  Reaper() = default;
  Reaper(Reaper&& other) noexcept;
  Reaper& operator=(Reaper&& other) noexcept;
  /// Dismisses.
  ~Reaper();

  /// Requires: `state.owner` is the calling process, and the caller holds no lock on the store.
  /// Errors: those of fork(2).
  [[nodiscard]] static Result<Reaper> Start(const StateStore& store, const FabricState& state);
  /// Ends the reaper; the fabric stays.
  void Dismiss();

 private:
  pid_t pid_ = -1;
};

}  // namespace weft::testbed
