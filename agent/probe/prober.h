// The thread that finds paths: sockets.h moves the bytes, tracer.h says which and when.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include "agent/probe/sockets.h"
#include "agent/probe/tracer.h"
#include "common/result.h"

namespace weft::agent {

/// Sends what `tracer` wants, once, and feeds it what came within its wake time or until `wake` is readable.
/// `longest` bounds the wait. Errors: kFailedPrecondition from the sockets; a probe that cannot be sent is no error.
[[nodiscard]] Status ProbeTurn(PathTracer& tracer, ProbeSockets& sockets, int wake, Seconds longest);

/// Whether nobody on this host holds TCP port `port` of `address` for itself (a listener, for one).
bool PortIsFree(Ipv4 address, uint16_t port);

/// Sources, counters and reports as of tracer.h. Threads: any.
class PathProber {
 public:
  using OnReport = std::function<void(const TraceReport&)>;

  /// `on_report` is called on the prober's thread. Errors: kFailedPrecondition without CAP_NET_RAW.
  [[nodiscard]] static Result<std::unique_ptr<PathProber>> Start(const TracerOptions& options, OnReport on_report);
  ~PathProber();

  /// A new flow or new lanes of a known one; `target.candidates` is filled in here.
  void Track(TraceTarget target);
  void Forget(uint64_t flow);
  /// As PathTracer.
  void ProbeAgain(uint64_t flow);
  void SetRate(double per_s);
  /// The flows whose paths are wanted first, in place of those named before.
  void SetCarrying(std::set<uint64_t> flows);
  /// As PathTracer.
  void SetClasses(std::vector<uint8_t> dscp);
  /// As PathTracer, after the last turn.
  std::vector<DscpRewrite> rewrites() const;
  TracerCounters counters() const;
  /// Whether the last turn worked.
  bool working() const { return failures_.load(std::memory_order_relaxed) == 0; }

 private:
  struct Forgotten {
    uint64_t flow;
  };
  struct Carrying {
    std::set<uint64_t> flows;
  };
  struct Again {
    uint64_t flow;
  };
  struct Rate {
    double per_s;
  };
  struct Classes {
    std::vector<uint8_t> dscp;
  };
  using Message = std::variant<TraceTarget, Forgotten, Carrying, Again, Rate, Classes>;

  PathProber(const TracerOptions& options, OnReport on_report, ProbeSockets sockets, UniqueFd wake);
  void Run(const std::stop_token& stop);
  void Post(Message message);
  void ReadInbox(PathTracer& tracer);

  const TracerOptions options_;
  const OnReport on_report_;
  ProbeSockets sockets_;  // the thread's alone
  UniqueFd wake_;         // eventfd

  mutable std::mutex mutex_;
  std::vector<Message> inbox_;         // guarded by mutex_
  std::vector<DscpRewrite> rewrites_;  // likewise

  // Copies for other threads; each is a number by itself, so relaxed order suffices.
  std::atomic<double> rate_{0};  // newest that was asked for
  std::atomic<uint64_t> sent_{0}, answered_{0}, silent_{0};
  std::atomic<int> failures_{0};  // in a row; written by the thread, read alone for display

  std::jthread thread_;  // last: uses all of the above
};

}  // namespace weft::agent
