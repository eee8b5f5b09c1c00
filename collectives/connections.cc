#include "collectives/connections.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>

#include "netplugin/abi/nccl_net.h"

namespace weft::collectives {
namespace {

using Handle = std::array<uint8_t, nccl::kHandleMaxBytes>;

// What a rank contributes to the exchange: one byte, then its handles, or the reason why it has none.
constexpr uint8_t kHandles = 0;
constexpr uint8_t kFailure = 1;

}  // namespace

Result<void*> Connection::Register(void* data, size_t bytes) {
  for (Registration& registration : registrations_) {
    if (registration.data == data && registration.bytes == bytes) {
      registration.used = ++clock_;
      return registration.mhandle;
    }
  }
  if (registrations_.size() >= kMaxRegistrations) {
    const auto oldest = std::min_element(registrations_.begin(), registrations_.end(),
                                         [](const auto& a, const auto& b) { return a.used < b.used; });
    WEFT_RETURN_IF_ERROR(plugin_.Deregister(comm_, oldest->mhandle));
    registrations_.erase(oldest);
  }
  void* mhandle = nullptr;
  WEFT_RETURN_IF_ERROR(plugin_.Register(comm_, data, bytes, &mhandle));
  registrations_.push_back({static_cast<std::byte*>(data), bytes, mhandle, ++clock_});
  return mhandle;
}

void Connection::Forget(const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  std::erase_if(registrations_, [&](const Registration& registration) {
    const bool overlaps = registration.data < begin + bytes && begin < registration.data + registration.bytes;
    // A plugin that cannot let go has nothing that we could do about it.
    if (overlaps) (void)plugin_.Deregister(comm_, registration.mhandle);
    return overlaps;
  });
}

void Connection::ForgetAll() {
  for (const Registration& registration : registrations_) (void)plugin_.Deregister(comm_, registration.mhandle);
  registrations_.clear();
}

struct Connections::Incoming {
  int32_t from;
  void* listen_comm = nullptr;
  void* comm = nullptr;
};

struct Connections::Outgoing {
  int32_t to;
  Handle handle{};  // connect keeps its state in it: it must not move
  void* comm = nullptr;
};

/// Listens once per incoming pair; `blob` is what the others must know.
Status Connections::Listen(std::vector<Incoming>* incoming, std::vector<uint8_t>* blob) {
  blob->assign(1, kHandles);
  for (Incoming& pair : *incoming) {
    Handle handle{};
    WEFT_RETURN_IF_ERROR(plugin_.Listen(device_, handle.data(), &pair.listen_comm));
    blob->insert(blob->end(), handle.begin(), handle.end());
  }
  return Ok();
}

/// Each rank's blob has one handle per rank that sends to it, ascending.
Status Connections::FindHandles(const std::vector<RankPair>& fresh, const std::vector<std::vector<uint8_t>>& blobs,
                                std::vector<Outgoing>* outgoing) const {
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    if (!blobs[rank].empty() && blobs[rank][0] == kFailure) {
      return Fail(Code::kUnavailable, fmt::format("rank {} cannot listen: {}", rank,
                                                  std::string(blobs[rank].begin() + 1, blobs[rank].end())));
    }
  }
  for (Outgoing& pair : *outgoing) {
    const auto position = std::count_if(fresh.begin(), fresh.end(), [&](const RankPair& other) {
      return other.to == pair.to && other.from < bootstrap_.rank().value();
    });
    const std::vector<uint8_t>& blob = blobs[static_cast<size_t>(pair.to)];
    const size_t at = 1 + static_cast<size_t>(position) * pair.handle.size();
    if (blob.size() < at + pair.handle.size()) {
      return Fail(Code::kInternal, fmt::format("rank {} sent no handle for rank {}: the ranks run different schedules",
                                               pair.to, bootstrap_.rank().value()));
    }
    std::memcpy(pair.handle.data(), blob.data() + at, pair.handle.size());
  }
  return Ok();
}

Status Connections::Progress(std::vector<Incoming>* incoming, std::vector<Outgoing>* outgoing, Seconds timeout) {
  const auto start = std::chrono::steady_clock::now();
  auto next_check = start;
  while (true) {
    std::string waiting;
    for (Outgoing& pair : *outgoing) {
      if (pair.comm != nullptr) continue;
      if (auto status = plugin_.Connect(device_, pair.handle.data(), &pair.comm); !status) {
        return Fail(status.error().WithContext(fmt::format("connect to rank {}", pair.to)));
      }
      if (pair.comm == nullptr) waiting += fmt::format("{}to rank {}", waiting.empty() ? "" : ", ", pair.to);
    }
    for (Incoming& pair : *incoming) {
      if (pair.comm != nullptr) continue;
      if (auto status = plugin_.Accept(pair.listen_comm, &pair.comm); !status) {
        return Fail(status.error().WithContext(fmt::format("accept from rank {}", pair.from)));
      }
      if (pair.comm == nullptr) waiting += fmt::format("{}from rank {}", waiting.empty() ? "" : ", ", pair.from);
    }
    if (waiting.empty()) return Ok();
    const auto now = std::chrono::steady_clock::now();
    if (now - start > timeout) {
      return Fail(Code::kDeadlineExceeded, fmt::format("no connection {} within {:g} s", waiting, timeout.count()));
    }
    if (now >= next_check) {
      WEFT_RETURN_IF_ERROR(bootstrap_.CheckPeers(Seconds(0)));
      next_check = now + std::chrono::milliseconds(20);
    }
    sched_yield();
  }
}

Status Connections::Open(std::span<const RankPair> pairs, Seconds timeout) {
  std::vector<RankPair> fresh;
  std::set_difference(pairs.begin(), pairs.end(), open_.begin(), open_.end(), std::back_inserter(fresh));
  if (fresh.empty()) return Ok();
  const int32_t rank = bootstrap_.rank().value();
  std::vector<Incoming> incoming;
  std::vector<Outgoing> outgoing;
  for (const RankPair& pair : fresh) {
    if (pair.to == rank) incoming.push_back({.from = pair.from});
    if (pair.from == rank) outgoing.push_back({.to = pair.to});
  }
  std::vector<uint8_t> blob;
  Status status = Listen(&incoming, &blob);
  if (!status) {
    blob.assign(1, kFailure);
    blob.insert(blob.end(), status.error().message().begin(), status.error().message().end());
  }
  // The exchange happens also after a failure: the others wait for it.
  auto blobs = bootstrap_.AllGather(blob);
  if (status && !blobs) status = Fail(blobs.error());
  if (status) status = FindHandles(fresh, *blobs, &outgoing);
  if (status) status = Progress(&incoming, &outgoing, timeout);
  for (const Incoming& pair : incoming) {
    if (pair.listen_comm != nullptr) (void)plugin_.CloseListen(pair.listen_comm);
    if (pair.comm != nullptr) receives_.emplace(pair.from, Connection(plugin_, pair.comm));
  }
  for (const Outgoing& pair : outgoing) {
    if (pair.comm != nullptr) sends_.emplace(pair.to, Connection(plugin_, pair.comm));
  }
  std::vector<RankPair> all;
  std::set_union(open_.begin(), open_.end(), fresh.begin(), fresh.end(), std::back_inserter(all));
  open_ = std::move(all);
  return status;
}

void Connections::Forget(const void* data, size_t bytes) {
  for (auto& [peer, connection] : sends_) connection.Forget(data, bytes);
  for (auto& [peer, connection] : receives_) connection.Forget(data, bytes);
}

void Connections::CloseAll() {
  // Closing cannot usefully fail: the peers learn of it either way.
  for (auto& [peer, connection] : sends_) {
    connection.ForgetAll();
    (void)plugin_.CloseSend(connection.comm());
  }
  for (auto& [peer, connection] : receives_) {
    connection.ForgetAll();
    (void)plugin_.CloseReceive(connection.comm());
  }
  sends_.clear();
  receives_.clear();
}

}  // namespace weft::collectives
