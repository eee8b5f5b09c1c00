#include "collectives/bootstrap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "collectives/bootstrap_wire.h"
#include "common/check.h"

namespace weft::collectives {

using wire::Deadline;
using wire::Frame;
using wire::FrameKind;

namespace {

Error Gone(int rank) { return Error(Code::kUnavailable, fmt::format("rank {} is gone", rank)); }

}  // namespace

/// Rank 0 holds one socket per other rank; every other rank holds only that to rank 0, in sockets_[0].
class Bootstrap::Impl {
 public:
  explicit Impl(const BootstrapOptions& options) : options_(options), sockets_(static_cast<size_t>(options.world)) {}
  /// Some ranks of `all`; without sockets of its own.
  Impl(const BootstrapOptions& options, Bootstrap& all, std::vector<int> members)
      : options_(options), all_(&all), members_(std::move(members)) {}
  ~Impl() { SendToAll({FrameKind::kGoodbye, {}}); }

  const BootstrapOptions& options() const { return options_; }
  bool root() const { return options_.rank.value() == 0; }
  Bootstrap* all() const { return all_; }
  const std::vector<int>& members() const { return members_; }
  std::mutex& mutex() { return mutex_; }

  Status JoinAsRoot(UniqueFd listener);
  Status JoinAsMember(const wire::Address& address);
  Result<std::vector<std::vector<uint8_t>>> GatherAtRoot(std::span<const uint8_t> mine);
  Result<std::vector<std::vector<uint8_t>>> GatherAtMember(std::span<const uint8_t> mine);
  Status CheckPeers(Seconds wait);
  void ReportFailure(int rank, const std::string& reason);

 private:
  void Welcome(UniqueFd socket, const Deadline& deadline);
  void SendToAll(const Frame& frame, int except = -1);
  std::vector<int> MissingRanks() const;
  tl::unexpected<Error> LoseAtRoot(int rank, Error error);
  Result<std::vector<uint8_t>> TakeGather(int rank, const Deadline& deadline);
  Status CheckSocket(int peer);

  BootstrapOptions options_;
  std::vector<UniqueFd> sockets_;  // by rank
  std::vector<Error> failure_;     // at most one: the first that was learnt
  Bootstrap* all_ = nullptr;       // of a group: whose ranks they are
  std::vector<int> members_;
  std::mutex mutex_;               // one call at a time
};

std::vector<int> Bootstrap::Impl::MissingRanks() const {
  std::vector<int> missing;
  for (int rank = 1; rank < options_.world; ++rank) {
    if (!sockets_[static_cast<size_t>(rank)]) missing.push_back(rank);
  }
  return missing;
}

void Bootstrap::Impl::SendToAll(const Frame& frame, int except) {
  // A peer that does not take a few bytes within a second is beyond being told.
  const Deadline deadline(Seconds(1));
  for (size_t peer = 0; peer < sockets_.size(); ++peer) {
    if (sockets_[peer] && static_cast<int>(peer) != except) {
      (void)wire::SendFrame(sockets_[peer].get(), frame, deadline);
    }
  }
}

/// Takes the newcomer in, or says to it why not. A stranger's bytes only close its own connection.
void Bootstrap::Impl::Welcome(UniqueFd socket, const Deadline& deadline) {
  auto hello = wire::ReceiveFrame(socket.get(), deadline.NoLaterThan(Seconds(5)));
  if (!hello || hello->kind != FrameKind::kHello) return;
  const auto numbers = wire::DecodeHello(hello->body);
  if (!numbers) return;
  std::string refusal;
  if (numbers->world != options_.world) {
    refusal = fmt::format("rank {} was told of {} ranks, rank 0 of {}", numbers->rank, numbers->world, options_.world);
  } else if (numbers->rank < 1 || numbers->rank >= options_.world) {
    refusal = fmt::format("rank {} does not exist among {} ranks", numbers->rank, options_.world);
  } else if (sockets_[static_cast<size_t>(numbers->rank)]) {
    refusal = fmt::format("rank {} has joined already", numbers->rank);
  }
  if (refusal.empty()) {
    sockets_[static_cast<size_t>(numbers->rank)] = std::move(socket);
  } else {
    (void)wire::SendFrame(socket.get(), wire::FailureFrame(Error(Code::kInvalidArgument, refusal)), deadline);
  }
}

Status Bootstrap::Impl::JoinAsRoot(UniqueFd listener) {
  const Deadline deadline(options_.timeout);
  while (!MissingRanks().empty()) {
    if (!wire::WaitFor(listener.get(), POLLIN, deadline)) {
      const std::string reason = fmt::format("rank {} did not join within {:g} s", fmt::join(MissingRanks(), ", "),
                                             options_.timeout.count());
      const Error error(Code::kDeadlineExceeded, reason);
      SendToAll(wire::FailureFrame(error));
      return Fail(error);
    }
    UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) continue;
      return Fail(ErrnoError("accept a rank", errno));
    }
    wire::TuneSocket(socket.get());
    Welcome(std::move(socket), deadline);
  }
  SendToAll({FrameKind::kWelcome, {}});
  return Ok();
}

Status Bootstrap::Impl::JoinAsMember(const wire::Address& address) {
  const Deadline deadline(options_.timeout);
  WEFT_ASSIGN_OR_RETURN(sockets_[0], wire::Connect(address, deadline));
  const int fd = sockets_[0].get();
  WEFT_RETURN_IF_ERROR(wire::SendFrame(fd, wire::HelloFrame({options_.rank.value(), options_.world}), deadline));
  auto reply = wire::ReceiveFrame(fd, deadline);
  if (!reply) {
    const Error error = std::move(reply).error();
    sockets_[0].reset();
    return error.code() == Code::kDeadlineExceeded
               ? Fail(Code::kDeadlineExceeded, fmt::format("rank 0 did not have all {} ranks within {:g} s",
                                                           options_.world, options_.timeout.count()))
               : Fail(Gone(0));
  }
  if (reply->kind == FrameKind::kWelcome) return Ok();
  sockets_[0].reset();
  if (reply->kind == FrameKind::kFailed) return Fail(wire::FailureOf(*reply));
  return Fail(Code::kInternal, "rank 0 answered out of turn");
}

tl::unexpected<Error> Bootstrap::Impl::LoseAtRoot(int rank, Error error) {
  sockets_[static_cast<size_t>(rank)].reset();
  SendToAll(wire::FailureFrame(error));
  failure_.assign(1, error);
  return Fail(std::move(error));
}

Result<std::vector<uint8_t>> Bootstrap::Impl::TakeGather(int rank, const Deadline& deadline) {
  auto frame = wire::ReceiveFrame(sockets_[static_cast<size_t>(rank)].get(), deadline);
  if (!frame) return LoseAtRoot(rank, Gone(rank));
  if (frame->kind == FrameKind::kGather) return std::move(frame->body);
  if (frame->kind == FrameKind::kFailed) return LoseAtRoot(rank, wire::FailureOf(*frame));
  return LoseAtRoot(rank, Error(Code::kUnavailable, fmt::format("rank {} has left", rank)));
}

Result<std::vector<std::vector<uint8_t>>> Bootstrap::Impl::GatherAtRoot(std::span<const uint8_t> mine) {
  const Deadline deadline(options_.timeout);
  std::vector<std::vector<uint8_t>> blobs(sockets_.size());
  blobs[0].assign(mine.begin(), mine.end());
  std::vector<int> waiting;
  for (int rank = 1; rank < options_.world; ++rank) waiting.push_back(rank);
  if (!MissingRanks().empty()) {
    return Fail(Code::kUnavailable, fmt::format("rank {} is gone", fmt::join(MissingRanks(), ", ")));
  }
  while (!waiting.empty()) {
    std::vector<pollfd> polls;
    for (const int rank : waiting) polls.push_back({sockets_[static_cast<size_t>(rank)].get(), POLLIN, 0});
    const int ready = poll(polls.data(), polls.size(), deadline.Milliseconds());
    if (ready < 0 && errno != EINTR) return Fail(ErrnoError("wait for the ranks", errno));
    if (ready == 0) {
      const std::string reason = fmt::format("rank {} did not take part in an exchange within {:g} s",
                                             fmt::join(waiting, ", "), options_.timeout.count());
      const Error error(Code::kDeadlineExceeded, reason);
      SendToAll(wire::FailureFrame(error));
      return Fail(error);
    }
    std::vector<int> still;
    for (size_t i = 0; i < polls.size(); ++i) {
      if (ready < 0 || polls[i].revents == 0) {
        still.push_back(waiting[i]);
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(blobs[static_cast<size_t>(waiting[i])], TakeGather(waiting[i], deadline));
    }
    waiting = std::move(still);
  }
  const Frame gathered = wire::GatheredFrame(blobs);
  for (int rank = 1; rank < options_.world; ++rank) {
    if (!wire::SendFrame(sockets_[static_cast<size_t>(rank)].get(), gathered, deadline)) {
      return LoseAtRoot(rank, Gone(rank));
    }
  }
  return blobs;
}

Result<std::vector<std::vector<uint8_t>>> Bootstrap::Impl::GatherAtMember(std::span<const uint8_t> mine) {
  if (!sockets_[0]) return Fail(Gone(0));
  const Deadline deadline(options_.timeout);
  const int fd = sockets_[0].get();
  // A failed send is no answer yet: rank 0 may have said why before it closed.
  (void)wire::SendFrame(fd, {FrameKind::kGather, {mine.begin(), mine.end()}}, deadline);
  auto reply = wire::ReceiveFrame(fd, deadline);
  if (!reply) {
    if (reply.error().code() == Code::kDeadlineExceeded) {
      return Fail(Code::kDeadlineExceeded,
                  fmt::format("rank 0 did not answer an exchange within {:g} s", options_.timeout.count()));
    }
    return Fail(Gone(0));
  }
  if (reply->kind == FrameKind::kGathered) return wire::DecodeGathered(reply->body, sockets_.size());
  if (reply->kind == FrameKind::kFailed) return Fail(wire::FailureOf(*reply));
  return Fail(Code::kUnavailable, "rank 0 has left");
}

/// Looks at what lies at the head of the peer's stream without taking data that belongs to a later exchange.
Status Bootstrap::Impl::CheckSocket(int peer) {
  UniqueFd& socket = sockets_[static_cast<size_t>(peer)];
  switch (wire::PeekFrame(socket.get())) {
    case wire::Peeked::kNothing: return Ok();
    case wire::Peeked::kClosed:
      if (root()) return LoseAtRoot(peer, Gone(peer));
      return Fail(Gone(peer));
    case wire::Peeked::kFailed: {
      auto frame = wire::ReceiveFrame(socket.get(), Deadline(Seconds(1)));
      Error error = frame ? wire::FailureOf(*frame) : Gone(peer);
      if (root()) return LoseAtRoot(peer, std::move(error));
      return Fail(std::move(error));
    }
    case wire::Peeked::kGoodbye: socket.reset(); return Ok();
  }
  return Ok();
}

Status Bootstrap::Impl::CheckPeers(Seconds wait) {
  const Deadline deadline(wait);
  while (true) {
    if (!failure_.empty()) return Fail(failure_.front());
    bool any = false;  // left to listen to
    // The dead first: what another rank says that it failed of may be only a consequence.
    for (const bool dead : {true, false}) {
      for (size_t peer = 0; peer < sockets_.size(); ++peer) {
        if (!sockets_[peer] || (dead && wire::PeekFrame(sockets_[peer].get()) != wire::Peeked::kClosed)) continue;
        if (auto status = CheckSocket(static_cast<int>(peer)); !status) {
          failure_.assign(1, status.error());
          return status;
        }
        any = any || sockets_[peer];
      }
    }
    if (deadline.Expired() || !any) return Ok();
    // Not on the sockets: bytes of a later exchange, which stay where they are, would end every wait at once.
    poll(nullptr, 0, std::min(deadline.Milliseconds(), 5));
  }
}

void Bootstrap::Impl::ReportFailure(int rank, const std::string& reason) {
  SendToAll(wire::FailureFrame(Error(Code::kUnavailable, fmt::format("rank {} failed: {}", rank, reason))));
}

Bootstrap::Bootstrap(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bootstrap::~Bootstrap() = default;

Result<Rendezvous> OpenRendezvous(const std::string& address) {
  WEFT_ASSIGN_OR_RETURN(const wire::Address parsed, wire::ParseAddress(address));
  WEFT_ASSIGN_OR_RETURN(UniqueFd listener, wire::Listen(parsed));
  WEFT_ASSIGN_OR_RETURN(const int port, wire::PortOf(listener.get()));
  const bool v6 = parsed.host.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + parsed.host + "]" : parsed.host;
  return Rendezvous{std::move(listener), fmt::format("{}:{}", host, port)};
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::Join(const BootstrapOptions& options) {
  UniqueFd listener(options.listener);
  if (options.world < 1 || options.rank.value() < 0 || options.rank.value() >= options.world) {
    return Fail(Code::kInvalidArgument, fmt::format("rank {} of {} ranks: expected a rank below the number of ranks",
                                                    options.rank.value(), options.world));
  }
  auto impl = std::make_unique<Impl>(options);
  if (options.world > 1) {
    const bool root = options.rank.value() == 0;
    if (!root || !listener) {
      WEFT_ASSIGN_OR_RETURN(const wire::Address address, wire::ParseAddress(options.address));
      if (address.port == "0") {
        return Fail(Code::kInvalidArgument,
                    fmt::format("rendezvous \"{}\": port 0, expected one that all ranks know", options.address));
      }
      if (!root) {
        WEFT_RETURN_IF_ERROR(impl->JoinAsMember(address));
        return std::unique_ptr<Bootstrap>(new Bootstrap(std::move(impl)));
      }
      WEFT_ASSIGN_OR_RETURN(listener, wire::Listen(address));
    }
    WEFT_RETURN_IF_ERROR(impl->JoinAsRoot(std::move(listener)));
  }
  return std::unique_ptr<Bootstrap>(new Bootstrap(std::move(impl)));
}

std::unique_ptr<Bootstrap> Bootstrap::Of(Bootstrap& all, std::vector<int> members) {
  const auto at = std::find(members.begin(), members.end(), all.rank().value());
  WEFT_CHECK(at != members.end() && all.impl_->all() == nullptr, "a group of this rank, among all ranks");
  BootstrapOptions options = all.impl_->options();
  options.rank = RankId(static_cast<int>(at - members.begin()));
  options.world = static_cast<int>(members.size());
  return std::unique_ptr<Bootstrap>(new Bootstrap(std::make_unique<Impl>(options, all, std::move(members))));
}

RankId Bootstrap::rank() const { return impl_->options().rank; }
int Bootstrap::world() const { return impl_->options().world; }

Result<std::vector<std::vector<uint8_t>>> Bootstrap::AllGather(std::span<const uint8_t> mine) {
  if (mine.size() > wire::kMaxBlobBytes) {
    return Fail(Code::kInvalidArgument, fmt::format("exchange of {} bytes: expected at most {} bytes per rank",
                                                    mine.size(), wire::kMaxBlobBytes));
  }
  if (impl_->all() != nullptr) {
    WEFT_ASSIGN_OR_RETURN(auto of_all, impl_->all()->AllGather(mine));
    std::vector<std::vector<uint8_t>> blobs;
    for (const int member : impl_->members()) blobs.push_back(std::move(of_all[static_cast<size_t>(member)]));
    return blobs;
  }
  if (world() == 1) return std::vector<std::vector<uint8_t>>{{mine.begin(), mine.end()}};
  const std::lock_guard lock(impl_->mutex());
  return impl_->root() ? impl_->GatherAtRoot(mine) : impl_->GatherAtMember(mine);
}

Result<std::vector<double>> Bootstrap::Largest(std::span<const double> mine) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(mine.data());
  WEFT_ASSIGN_OR_RETURN(const auto all, AllGather({bytes, mine.size_bytes()}));
  std::vector<double> largest(mine.begin(), mine.end()), theirs(mine.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != mine.size_bytes()) {
      return Fail(Code::kInternal, fmt::format("rank {} has told {} bytes of numbers, expected {}", rank, all[rank].size(),
                                               mine.size_bytes()));
    }
    std::memcpy(theirs.data(), all[rank].data(), mine.size_bytes());
    for (size_t i = 0; i < largest.size(); ++i) largest[i] = std::max(largest[i], theirs[i]);
  }
  return largest;
}

Status Bootstrap::CheckPeers(Seconds wait) {
  if (impl_->all() != nullptr) return impl_->all()->CheckPeers(wait);
  const std::lock_guard lock(impl_->mutex());
  return impl_->CheckPeers(wait);
}

void Bootstrap::ReportFailure(const Error& error) {
  if (impl_->all() != nullptr) return impl_->all()->ReportFailure(error);
  const std::lock_guard lock(impl_->mutex());
  impl_->ReportFailure(rank().value(), error.message());
}

}  // namespace weft::collectives
