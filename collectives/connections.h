// One rank's connections over a plugin, one per ordered pair of ranks, and the memory registered on each.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/net_plugin.h"
#include "collectives/program.h"

namespace weft::collectives {

/// A plugin's send or receive comm with its registrations. The owner is Connections.
class Connection {
 public:
  Connection(NetPlugin& plugin, void* comm) : plugin_(plugin), comm_(comm) {}

  void* comm() const { return comm_; }

  /// The plugin's handle for [data, data + bytes), registered at first use and kept; the least used of too many goes.
  /// Requires: no request in flight when it is a new one.
  [[nodiscard]] Result<void*> Register(void* data, size_t bytes);
  /// Drops registrations that overlap [data, data + bytes).
  void Forget(const void* data, size_t bytes);
  void ForgetAll();

 private:
  struct Registration {
    std::byte* data;
    size_t bytes;
    void* mhandle;
    uint64_t used;
  };
  static constexpr size_t kMaxRegistrations = 64;

  NetPlugin& plugin_;
  void* comm_;
  std::vector<Registration> registrations_;
  uint64_t clock_ = 0;
};

/// Opens pairs when asked and closes all at the end.
class Connections {
 public:
  Connections(NetPlugin& plugin, Bootstrap& bootstrap, int device)
      : plugin_(plugin), bootstrap_(bootstrap), device_(device) {}
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections() { CloseAll(); }

  /// Opens those of `pairs` (of all ranks, ascending) that are not open yet. Collective: the same pairs on all ranks.
  /// Errors: kDeadlineExceeded or kUnavailable naming the peers that could not be reached.
  [[nodiscard]] Status Open(std::span<const RankPair> pairs, Seconds timeout);

  /// Requires: the pair was opened.
  Connection& To(int32_t peer) { return sends_.at(peer); }
  Connection& From(int32_t peer) { return receives_.at(peer); }

  void Forget(const void* data, size_t bytes);
  /// Also gives up what is in flight: afterwards the plugin touches no buffer.
  void CloseAll();

 private:
  struct Incoming;
  struct Outgoing;
  Status Listen(std::vector<Incoming>* incoming, std::vector<uint8_t>* blob);
  Status Progress(std::vector<Incoming>* incoming, std::vector<Outgoing>* outgoing, Seconds timeout);
  Status FindHandles(const std::vector<RankPair>& fresh, const std::vector<std::vector<uint8_t>>& blobs,
                     std::vector<Outgoing>* outgoing) const;

  NetPlugin& plugin_;
  Bootstrap& bootstrap_;
  int device_;
  std::vector<RankPair> open_;  // of all ranks, ascending
  std::map<int32_t, Connection> sends_;
  std::map<int32_t, Connection> receives_;
};

}  // namespace weft::collectives
