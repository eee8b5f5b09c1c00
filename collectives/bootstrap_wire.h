// What bootstrap.cc says over its sockets: frames of a kind and a body, and the few socket calls around them, each with
// a deadline. Both ends are untrusted: lengths are bounded and counts checked.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "common/units.h"

namespace weft::collectives::wire {

inline constexpr size_t kMaxBlobBytes = size_t{16} << 20;
inline constexpr size_t kMaxBodyBytes = size_t{1} << 30;

enum class FrameKind : uint32_t { kHello = 1, kWelcome, kGather, kGathered, kFailed, kGoodbye };

struct Frame {
  FrameKind kind;
  std::vector<uint8_t> body;
};

struct Hello {
  int32_t rank;
  int32_t world;
};

struct Address {
  std::string host;
  std::string port;
};

/// A point in time that waits are measured against.
class Deadline {
 public:
  explicit Deadline(Seconds wait)
      : end_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(wait)) {}

  bool Expired() const { return std::chrono::steady_clock::now() >= end_; }
  /// Left, rounded up, for poll(); 0 when expired.
  int Milliseconds() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
  }
  Deadline NoLaterThan(Seconds wait) const {
    Deadline other(wait);
    other.end_ = std::min(other.end_, end_);
    return other;
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

/// "host:port" or "[v6]:port". Errors: kInvalidArgument.
[[nodiscard]] Result<Address> ParseAddress(const std::string& text);
[[nodiscard]] Result<UniqueFd> Listen(const Address& address);
[[nodiscard]] Result<int> PortOf(int fd);
/// Tries until the deadline: the other side may not listen yet.
[[nodiscard]] Result<UniqueFd> Connect(const Address& address, const Deadline& deadline);
void TuneSocket(int fd);
/// Whether `events` came before the deadline.
[[nodiscard]] bool WaitFor(int fd, short events, const Deadline& deadline);

[[nodiscard]] Status SendFrame(int fd, const Frame& frame, const Deadline& deadline);
/// Errors: kUnavailable when the peer closed or sent nonsense, kDeadlineExceeded.
[[nodiscard]] Result<Frame> ReceiveFrame(int fd, const Deadline& deadline);

enum class Peeked { kNothing, kClosed, kFailed, kGoodbye };
/// What is at the head of the stream, left there; data of an exchange counts as nothing.
Peeked PeekFrame(int fd);

Frame HelloFrame(Hello hello);
std::optional<Hello> DecodeHello(const std::vector<uint8_t>& body);
Frame FailureFrame(const Error& error);
Error FailureOf(const Frame& frame);
Frame GatheredFrame(const std::vector<std::vector<uint8_t>>& blobs);
[[nodiscard]] Result<std::vector<std::vector<uint8_t>>> DecodeGathered(const std::vector<uint8_t>& body, size_t ranks);

}  // namespace weft::collectives::wire
