// A cable between two processes: each gets a network namespace of its own, which is gone when the process is, with one
// interface `fire0` in it. The cable can be pulled and plugged in again.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>

namespace weft::net::fire {

class Cable {
 public:
  static constexpr char kInterface[] = "fire0";

  /// In the process: moves it into a namespace of its own. False (errno set) where that is not permitted.
  static bool Isolate();

  /// Lays the cable between two processes that have isolated themselves: 10.99.0.1 and 10.99.0.2. False with the command
  /// that failed in `why`.
  bool Lay(std::array<pid_t, 2> processes, std::string* why);
  /// Plugs it in or pulls it. False if that did not work.
  bool Set(bool up);

 private:
  pid_t holder_ = 0;  // at whose end it is pulled
};

}  // namespace weft::net::fire
