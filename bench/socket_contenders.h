// The two processes of socket_loop and what each can move bytes with: a bare TCP socket, or a net plugin.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/result.h"
#include "netplugin/abi/nccl_net.h"

namespace weft::bench {

inline constexpr size_t kBatchBytes = 64 << 20;  ///< of each process's two buffers

/// What both processes see.
struct Shared {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> generation;
  std::atomic<bool> failed;
  uint8_t handles[2][nccl::kHandleMaxBytes];
  uint16_t port;
  double seconds[2];
  double cpu_seconds[2];
};

/// One of the two processes: side 0 sends in a stream, and begins in a ping-pong.
struct Side {
  Shared* shared;
  int number;
  std::string address = "127.0.0.1";  ///< IPv4; where side 0 listens with bare sockets
  char* source = nullptr;
  char* target = nullptr;

  /// Each ends both processes, with a message, if its argument is no success.
  void Check(const Status& status) const;
  void Check(bool good, const char* what) const;
  /// Until both are there.
  void Barrier() const;
};

[[noreturn]] void Die(Shared* shared, const std::string& what);

/// Moves `messages` messages of `bytes` bytes; both sides call the same.
class Contender {
 public:
  explicit Contender(const Side& side) : side_(side) {}
  virtual ~Contender() = default;
  virtual void Stream(size_t bytes, size_t messages) = 0;
  virtual void PingPong(size_t bytes, size_t messages) = 0;

 protected:
  const Side& side_;
};

/// One connection for both directions or, as plugins must, one for each; Nagle off and nothing else set. Not `blocking`:
/// polls, and yields when nothing moved.
std::unique_ptr<Contender> OpenBareSocket(const Side& side, bool blocking, bool pair);

/// A net plugin with one flow in each direction, driven by one thread that yields when nothing moved, as NCCL's does.
std::unique_ptr<Contender> OpenPluginFlows(const Side& side, const std::string& path);

}  // namespace weft::bench
