#include "cli/perf_flows.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

namespace weft::cli {
namespace {

using collectives::Connections;
using collectives::RankPair;
using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPeerCheckPeriod{20};
// How long a rank that sees a broken connection listens for which rank it was that died.
constexpr Seconds kCulpritWait{0.5};

}  // namespace

FlowExchange::FlowExchange(collectives::NetPlugin& plugin, collectives::Bootstrap& bootstrap,
                           const FlowOptions& options)
    : plugin_(plugin), bootstrap_(bootstrap), options_(options), rank_(bootstrap.rank().value()),
      flows_(static_cast<size_t>(options.connections)) {}

Status FlowExchange::Open() {
  std::vector<RankPair> pairs;
  for (int32_t rank = 0; rank < bootstrap_.world(); ++rank) {
    if (FlowSends(options_.pattern, rank)) pairs.push_back({rank, FlowPeer(rank)});
  }
  for (Flow& flow : flows_) {
    auto connections = std::make_unique<Connections>(plugin_, bootstrap_, 0);
    if (auto status = connections->Open(pairs, options_.stall_timeout); !status) return Fall(status.error());
    if (FlowSends(options_.pattern, rank_)) flow.send.comm = connections->To(FlowPeer(rank_)).comm();
    if (FlowReceives(options_.pattern, rank_)) flow.receive.comm = connections->From(FlowPeer(rank_)).comm();
    connections_.push_back(std::move(connections));
  }
  return Ok();
}

/// Gives every stream its memory and starts it anew.
Status FlowExchange::Bind(std::byte* input, std::byte* output, size_t bytes) {
  for (size_t i = 0; i < flows_.size(); ++i) {
    for (const bool sends : {true, false}) {
      Stream& stream = sends ? flows_[i].send : flows_[i].receive;
      if (stream.comm == nullptr) continue;
      auto& connection = sends ? connections_[i]->To(FlowPeer(rank_)) : connections_[i]->From(FlowPeer(rank_));
      stream.base = (sends ? input : output) + i * bytes;
      WEFT_ASSIGN_OR_RETURN(stream.mhandle, connection.Register(stream.base, bytes));
      stream.issued = stream.finished = 0;
    }
  }
  return Ok();
}

/// There and back: the even rank sends message m when answer m-1 is there whole, the odd one when message m is.
bool FlowExchange::MaySend(const Flow& flow) const {
  if (options_.pattern != FlowPattern::kPingPong) return true;
  const int64_t message = flow.send.issued / pieces_per_message_;
  return flow.receive.finished >= (rank_ % 2 == 0 ? message : message + 1) * pieces_per_message_;
}

/// Hands one piece to the plugin; false when it cannot take it now.
Result<bool> FlowExchange::Issue(Stream* stream, bool sends) {
  const int64_t offset = stream->issued % pieces_per_message_ * options_.slice.count();
  const auto bytes = static_cast<size_t>(std::min(options_.slice.count(), bytes_ - offset));
  void* request = nullptr;
  // The tag is the sender's rank, as with NCCL.
  const Status status =
      sends ? plugin_.Send(stream->comm, stream->base + offset, bytes, rank_, stream->mhandle, &request)
            : plugin_.Receive(stream->comm, stream->base + offset, bytes, FlowPeer(rank_), stream->mhandle, &request);
  WEFT_RETURN_IF_ERROR(status);
  if (request == nullptr) return false;
  if (sends) bytes_sent_ += static_cast<int64_t>(bytes);
  ++stream->issued;
  stream->flying.push_back({request, bytes});
  return true;
}

/// Takes back what is finished. Completion is in order on a connection, so that only the oldest need be asked.
Result<bool> FlowExchange::Poll(Stream* stream, bool sends) {
  bool any = false;
  while (!stream->flying.empty()) {
    const Piece piece = stream->flying.front();
    bool done = false;
    size_t arrived = 0;
    WEFT_RETURN_IF_ERROR(plugin_.Test(piece.request, &done, &arrived));
    if (!done) break;
    if (!sends && arrived != piece.bytes && arrived != collectives::kBytesUnknown) {
      return Fail(Code::kInternal, fmt::format("{} bytes arrived, expected {}", arrived, piece.bytes));
    }
    stream->flying.pop_front();
    ++stream->finished;
    any = true;
  }
  return any;
}

Result<bool> FlowExchange::Progress(Flow* flow) {
  bool any = false;
  for (const bool sends : {false, true}) {
    Stream& stream = sends ? flow->send : flow->receive;
    if (stream.comm == nullptr) continue;
    while (stream.issued < pieces_ && stream.flying.size() < kMaxFlying && (!sends || MaySend(*flow))) {
      WEFT_ASSIGN_OR_RETURN(const bool issued, Issue(&stream, sends));
      if (!issued) break;
      any = true;
    }
    WEFT_ASSIGN_OR_RETURN(const bool polled, Poll(&stream, sends));
    any = any || polled;
  }
  return any;
}

Status FlowExchange::Idle() {
  const auto now = Steady::now();
  if (!idle_) {
    idle_ = true;
    idle_since_ = now;
    next_check_ = now + kPeerCheckPeriod;
  } else if (now >= next_check_) {
    next_check_ = now + kPeerCheckPeriod;
    WEFT_RETURN_IF_ERROR(bootstrap_.CheckPeers(Seconds(0)));
    if (now - idle_since_ > options_.stall_timeout) {
      return Fail(Code::kDeadlineExceeded, fmt::format("no progress for {:g} s", options_.stall_timeout.count()));
    }
  }
  sched_yield();
  return Ok();
}

Status FlowExchange::Loop() {
  const auto finished = [this](const Stream& stream) { return stream.comm == nullptr || stream.finished == pieces_; };
  while (true) {
    bool progress = false;
    bool done = true;
    for (Flow& flow : flows_) {
      if (finished(flow.send) && finished(flow.receive)) continue;
      WEFT_ASSIGN_OR_RETURN(const bool moved, Progress(&flow));
      progress = progress || moved;
      done = done && finished(flow.send) && finished(flow.receive);
    }
    if (done) return Ok();
    if (progress) {
      idle_ = false;
    } else {
      WEFT_RETURN_IF_ERROR(Idle());
    }
  }
}

/// Tells the others, and finds out whether another rank was the cause. Nothing is in flight afterwards.
Status FlowExchange::Fall(const Error& error) {
  Error failed = error.WithContext(fmt::format("rank {}: with rank {}", rank_, FlowPeer(rank_)));
  if (error.code() == Code::kUnavailable) {
    const Status culprit = bootstrap_.CheckPeers(kCulpritWait);
    if (!culprit && culprit.error().message() != error.message()) {
      failed = Error(culprit.error().code(), fmt::format("{} ({})", culprit.error().message(), failed.message()));
    }
  }
  connections_.clear();
  bootstrap_.ReportFailure(failed);
  return Fail(failed);
}

Status FlowExchange::Run(std::byte* input, std::byte* output, int64_t bytes, int messages) {
  bytes_ = bytes;
  pieces_per_message_ = (bytes + options_.slice.count() - 1) / options_.slice.count();
  pieces_ = pieces_per_message_ * messages;
  if (pieces_ == 0) return Ok();
  if (auto status = Bind(input, output, static_cast<size_t>(bytes)); !status) return Fall(status.error());
  idle_ = false;
  const Status status = Loop();
  return status ? Ok() : Fall(status.error());
}

}  // namespace weft::cli
