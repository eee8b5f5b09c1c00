// The part of Spawn around fork(2): everything that needs memory is made ready before it, since between fork and exec a
// child of a program with threads may only call what is async-signal-safe. Internal to process.cc.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "testbed/process.h"

namespace weft::testbed {

/// Program, arguments, environment and surroundings of a child, ready for exec.
class ChildImage {
 public:
  /// Errors: kInvalidArgument, kNotFound.
  [[nodiscard]] static Result<ChildImage> Make(const ProcessOptions& options);

  const char* path() const { return path_.c_str(); }
  /// Null-terminated; valid as long as this object.
  std::vector<char*> Argv() const { return Pointers(argv_); }
  std::vector<char*> Environment() const { return Pointers(environment_); }
  const std::string& name() const { return argv_.front(); }

  UniqueFd netns;  ///< none: the caller's
  bool own_sysfs = false;
  bool pinned = false;
  cpu_set_t cores{};
  bool die_with_parent = false;
  bool own_process_group = false;

 private:
  static std::vector<char*> Pointers(const std::vector<std::string>& strings);

  std::string path_;
  std::vector<std::string> argv_;
  std::vector<std::string> environment_;
};

/// A child's three streams, and the caller's ends of those that are pipes.
struct ChildStreams {
  /// `input` is what the child reads; none: /dev/null. Errors: those of open(2) and pipe(2), naming the file.
  [[nodiscard]] static Result<ChildStreams> Open(const ProcessOptions& options, UniqueFd input);

  int in = -1;
  int out = -1;
  int err = -1;
  UniqueFd out_pipe;
  UniqueFd err_pipe;
  std::vector<UniqueFd> owned;  ///< closed in the caller once the child has them
};

/// Forks and returns when the child's exec has succeeded. Errors: kNotFound, kFailedPrecondition and the like, naming the
/// step that failed.
[[nodiscard]] Result<pid_t> StartChild(const ChildImage& image, const ChildStreams& streams);

}  // namespace weft::testbed
