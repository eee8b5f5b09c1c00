// What `weft perf --collective sendrecv` runs: pairs of ranks, one or many connections between each, one way, both ways
// at once, or there and back. It drives the plugin as NCCL's progress thread does: one thread looks after all
// connections in turn, keeps a few slices in flight on each, and yields the core when nothing moves.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/connections.h"
#include "collectives/net_plugin.h"
#include "common/result.h"
#include "common/units.h"

namespace weft::cli {

enum class FlowPattern {
  kOneWay,    ///< even ranks send to the odd ones above them
  kBothWays,  ///< both send at the same time
  kPingPong,  ///< the odd rank answers each message with one of the same size
};

struct FlowOptions {
  FlowPattern pattern = FlowPattern::kOneWay;
  int connections = 1;      ///< in each direction of each pair
  Bytes slice{512 << 10};   ///< messages are cut into pieces of so many bytes
  Seconds stall_timeout{60};
};

/// The rank that `rank` talks to.
inline int FlowPeer(int rank) { return rank ^ 1; }
inline bool FlowSends(FlowPattern pattern, int rank) { return pattern != FlowPattern::kOneWay || rank % 2 == 0; }
inline bool FlowReceives(FlowPattern pattern, int rank) { return pattern != FlowPattern::kOneWay || rank % 2 == 1; }

/// One rank's flows. One thread. After an error only the destructor may follow.
class FlowExchange {
 public:
  /// Requires: an even number of ranks; `plugin` and `bootstrap` outlive the exchange.
  FlowExchange(collectives::NetPlugin& plugin, collectives::Bootstrap& bootstrap, const FlowOptions& options);
  FlowExchange(const FlowExchange&) = delete;
  FlowExchange& operator=(const FlowExchange&) = delete;

  /// Opens the connections of all pairs. Collective. Errors: kDeadlineExceeded or kUnavailable naming the peer.
  [[nodiscard]] Status Open();

  /// Sends `messages` messages of `bytes` bytes over every connection and receives as many, as the pattern says.
  /// Connection c takes its data at input + c · bytes and leaves what comes at output + c · bytes, each message at the
  /// same place. Blocks until this rank's part is done. Requires: Open.
  /// Errors: kUnavailable or kDeadlineExceeded naming the peer, kInternal when another length arrives.
  [[nodiscard]] Status Run(std::byte* input, std::byte* output, int64_t bytes, int messages);

  /// Payload handed to the plugin so far.
  int64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct Piece {
    void* request;
    size_t bytes;
  };
  /// One direction of one connection.
  struct Stream {
    void* comm = nullptr;
    void* mhandle = nullptr;
    std::byte* base = nullptr;
    int64_t issued = 0;    // pieces of all messages of this run
    int64_t finished = 0;
    std::deque<Piece> flying;
  };
  struct Flow {
    Stream send;
    Stream receive;
  };

  Status Bind(std::byte* input, std::byte* output, size_t bytes);
  bool MaySend(const Flow& flow) const;
  Result<bool> Issue(Stream* stream, bool sends);
  Result<bool> Poll(Stream* stream, bool sends);
  Result<bool> Progress(Flow* flow);
  Status Loop();
  Status Idle();
  Status Fall(const Error& error);

  // Requests outstanding per connection; every plugin takes as many (v6 no more).
  static constexpr size_t kMaxFlying = 8;

  collectives::NetPlugin& plugin_;
  collectives::Bootstrap& bootstrap_;
  const FlowOptions options_;
  const int rank_;
  std::vector<std::unique_ptr<collectives::Connections>> connections_;  // each opens one connection per pair
  std::vector<Flow> flows_;

  // Of the present run.
  int64_t bytes_ = 0;
  int64_t pieces_per_message_ = 0;
  int64_t pieces_ = 0;
  int64_t bytes_sent_ = 0;
  bool idle_ = false;
  std::chrono::steady_clock::time_point idle_since_;
  std::chrono::steady_clock::time_point next_check_;
};

}  // namespace weft::cli
