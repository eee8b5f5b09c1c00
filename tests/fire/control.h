// What the processes of a fire run share: a page of anonymous shared memory that is made before they are forked. Who
// writes what is said at each field; everything is written by one process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "netplugin/abi/nccl_net.h"

namespace weft::net::fire {

inline constexpr uint32_t kMostConnections = 16;

/// One connection, from its sender's process to its receiver's. It lives many lives, one after the other.
struct ConnectionSlot {
  // Receiver.
  char handle[nccl::kHandleMaxBytes];
  std::atomic<uint32_t> listen_port{0};   ///< of `handle`
  /// Life that the receiver listens for: release, after `handle`. kNoMore: it listens no more.
  std::atomic<uint32_t> offered{0};
  // Sender.
  std::atomic<uint64_t> done_groups{0};   ///< sends that test() called done, up to the first that it did not, in groups
  std::atomic<uint32_t> sender_left{0};   ///< newest life that the sender has closed: release, after `done_groups`
  // Who breaks connections.
  std::atomic<uint32_t> hurt{0};          ///< newest life that may end with an error because one of its sockets was shut
};
inline constexpr uint32_t kNoMore = UINT32_MAX;

struct Report {
  std::atomic<uint64_t> messages{0};   ///< received, and every byte of them right
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> lives{0};      ///< of connections, ended as receiver
  std::atomic<uint64_t> cut_short{0};  ///< of these, with requests in flight
  std::atomic<uint64_t> errors{0};     ///< remote errors that were due
  std::atomic<uint64_t> groups{0};     ///< irecv calls with more than one buffer
  std::atomic<uint64_t> progress{0};   ///< changes while anything moves
  char failure[600] = {};              ///< what went wrong first; complete when `failed` is set
  std::atomic<bool> failed{false};
};

struct Control {
  std::atomic<bool> stop{false};        ///< parent: enough messages; no new life begins
  std::atomic<uint64_t> cable_down_ns{0};  ///< parent: when the cable was last down, CLOCK_MONOTONIC; 0: never
  std::array<Report, 2> reports;        ///< one per rank
  std::array<ConnectionSlot, kMostConnections> connections;
};

}  // namespace weft::net::fire
