// A listening socket and the connections that have not found their flow yet. It lives as long as its listenComm or any
// flow that came through it, because later lanes of a flow arrive where the first one did.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "netplugin/background.h"
#include "netplugin/tcp/socket.h"
#include "netplugin/tcp/wire.h"

namespace weft::net {

class RecvComm;

/// A connection whose hello is being read.
struct Arrival {
  Fd fd;
  Address peer;
  LaneHello hello{};
  uint32_t hello_bytes = 0;
  uint64_t deadline = 0;
};

class Listener final : public BackgroundTask {
 public:
  /// Listens on `address` with a port of the kernel's choice. nullptr (errno set) on failure.
  static std::shared_ptr<Listener> Open(const Address& address, Background& background);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const Address& address() const { return address_; }
  uint64_t cookie() const { return cookie_; }

  /// A connection that opens a new flow, if one is there. Threads: any.
  std::unique_ptr<Arrival> TakeFlow();

  /// The version of a rank that has this listener's handle and another version of the wire format; 0: none has called. Threads: any.
  uint16_t other_version();

  /// From now on (until RemoveFlow returned) further lanes of the flow are attached to `flow`. Threads: any.
  void AddFlow(RecvComm* flow);
  void RemoveFlow(RecvComm* flow);

  void Sweep(const Tick& tick) override;
  void Watch(std::vector<pollfd>* fds) override;

 private:
  // How long a connection may keep its hello to itself, and how long a lane waits for its flow or its place.
  static constexpr uint64_t kPatienceNs = 5'000'000'000;
  static constexpr size_t kMostStrangers = 256;

  Listener(Fd fd, Background& background);
  void Pump(uint64_t now);
  void AcceptAll(uint64_t now);
  /// True when the arrival needs no further look: refused, or moved on to new_flows_ or lanes_.
  bool ReadHello(Arrival* arrival, uint64_t now);
  bool AttachLane(Arrival* arrival, uint64_t now);

  Background& background_;
  const Fd fd_;
  const Address address_;
  const uint64_t cookie_;

  std::mutex mutex_;  // guards the rest; taken before a RecvComm's lanes_mutex_, never the other way round
  std::map<uint64_t, RecvComm*> flows_;
  std::list<Arrival> strangers_;  // hello incomplete
  std::list<Arrival> lanes_;      // of flows that are not there yet, or whose place is not free yet
  std::deque<std::unique_ptr<Arrival>> new_flows_;
  uint16_t other_version_ = 0;
  bool accept_failed_ = false;    // do not spin on a full descriptor table: wait for the next sweep
};

}  // namespace weft::net
