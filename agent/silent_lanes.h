// Takes the bytes of silent lanes for the processes of all users (unsent_bytes.h), so that none can hold up the others: a user can make a
// system call on his own socket last as long as he likes, and memory that he keeps is the agent's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "agent/unsent_bytes.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace weft::agent {

/// Of one user.
struct SilentLaneLimits {
  double at_once = 256, per_s = 64;                     ///< lanes
  uint64_t kept_bytes = uint64_t{256} << 20;            ///< in files that are not emptied yet
  uint64_t kept_ns = 5'000'000'000;                     ///< until one is
  size_t users = 256;                                   ///< that are served at the same time
};

/// Threads: one at a time, but for the workers within.
class SilentLanes {
 public:
  /// `take`: TakeUnsent(), but for tests; called on a thread of its own, which may outlive this.
  explicit SilentLanes(std::function<Result<UnsentBytes>(int)> take = &TakeUnsent, const SilentLaneLimits& limits = {});
  ~SilentLanes();
  SilentLanes(const SilentLanes&) = delete;
  SilentLanes& operator=(const SilentLanes&) = delete;

  struct Answer {
    uint64_t connection = 0, token = 0;
    Result<UnsentBytes> taken;
  };

  /// Begins with the lane of a process of `uid`; after `until_ns` it is left alone. Errors: kResourceExhausted past the user's limits.
  Status Ask(uid_t uid, uint64_t connection, uint64_t token, UniqueFd lane, uint64_t until_ns, uint64_t now_ns);
  /// Becomes readable when there are answers.
  int event_fd() const;
  /// What is done by now. Empties files that were handed out long enough ago.
  std::vector<Answer> TakeAnswers(uint64_t now_ns);
  /// Milliseconds until the next file is to be emptied; -1: there is none.
  int NextMs(uint64_t now_ns) const;

 private:
  struct Shared;  // with the workers
  struct User {
    double left = 0;
    uint64_t counted_ns = 0, kept_bytes = 0;
  };
  struct Kept {
    UniqueFd file;
    uid_t uid = 0;
    uint64_t bytes = 0, until_ns = 0;
  };

  const SilentLaneLimits limits_;
  const std::shared_ptr<Shared> shared_;
  std::map<uid_t, User> users_;
  std::deque<Kept> kept_;
};

}  // namespace weft::agent
