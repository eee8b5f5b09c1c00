// listen, connect and accept over RDMA: the ends meet on a TCP connection, tell each other their queue pairs, and keep
// the connection for as long as the flow lives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "netplugin/comm.h"
#include "netplugin/devices.h"
#include "netplugin/rdma/recv_flow.h"
#include "netplugin/rdma/send_flow.h"

namespace weft::net::rdma {

/// What one end of a new flow needs to know of itself.
struct LocalEnd {
  uint32_t device = 0;
  std::shared_ptr<Port> port;
  Address address;            ///< where the ends meet; the TCP port is the kernel's choice
  uint64_t comm_id = 0;
  uint8_t traffic_class = 0;  ///< of the communicator
};

class RdmaListenComm final : public ListenComm {
 public:
  /// Listens, and fills NCCL's handle. nullptr (errno set) on failure.
  static std::unique_ptr<RdmaListenComm> Open(const Services& services, const LocalEnd& end, Handle* handle);

  int Accept(std::unique_ptr<Comm>* comm) override;

 private:
  /// A connection of which the hello, or the word that the sender is ready, is awaited.
  struct Arrival {
    std::unique_ptr<ControlChannel> control;
    Address peer;
    uint64_t deadline = 0;
    std::unique_ptr<QueuePairs> pairs;  // set once the hello was answered
    ControlMessage hello{};
  };
  static constexpr uint64_t kPatienceNs = 30'000'000'000;
  static constexpr size_t kMostStrangers = 256;

  RdmaListenComm(const Services& services, const LocalEnd& end, Fd fd);
  void AcceptAll(uint64_t now);
  /// False: the arrival is of no use any more.
  bool Advance(Arrival& arrival, uint64_t now, std::unique_ptr<Comm>* comm);
  bool Answer(Arrival& arrival);
  std::unique_ptr<Comm> Finish(Arrival& arrival);

  const Services services_;
  const LocalEnd end_;
  const Fd fd_;
  const Address address_;
  const uint64_t cookie_;
  std::vector<Arrival> arrivals_;
};

/// connect(): called again and again with the same handle, which carries a ticket.
class RdmaConnector {
 public:
  explicit RdmaConnector(const Services& services) : services_(services) {}

  /// One step; never waits for the peer. `*comm` stays nullptr while the connection is under way. Returns an NCCL
  /// code. Threads: any, one at a time per handle.
  int Step(Handle* handle, const LocalEnd& end, std::unique_ptr<Comm>* comm);

  /// Gives up what nobody has asked for in the last five minutes: NCCL never says that it has abandoned a connect. Each
  /// Step() does so. Returns how many are under way. Threads: any.
  size_t Collect(uint64_t now);

 private:
  struct Pending {
    uint64_t asked_ns = 0;  // when Step() last had it
    std::unique_ptr<ControlChannel> control;
    std::unique_ptr<QueuePairs> pairs;  // set once the hello was sent
    uint64_t flow = 0;
    uint8_t traffic_class = 0;
  };

  int Start(Handle* handle, const LocalEnd& end, Pending* pending);
  int SayHello(const Handle& handle, const LocalEnd& end, Pending* pending);
  int Finish(const Handle& handle, const LocalEnd& end, Pending* pending, const ControlMessage& welcome,
             std::unique_ptr<Comm>* comm);

  const Services services_;
  std::mutex mutex_;  // guards what follows
  std::map<uint64_t, std::unique_ptr<Pending>> under_way_;
  uint64_t last_ticket_ = 0;
};

/// The RDMA ports as devices of the plugin, or why there are none.
struct RdmaDevices {
  bool present = false;  ///< the host has active RDMA ports, whether or not they can be used
  std::vector<Device> devices;
  std::string why;
  bool excluded = false;  ///< NCCL_IB_HCA keeps an active port out
  std::vector<std::string> passed_over;  ///< ports that are there and not offered, as "DEVICE:PORT (why not)"
};

/// `meeting`: the address on which ends meet, of the first usable interface.
RdmaDevices FindRdmaDevices(const RdmaEnvironment& environment, const std::vector<Device>& meeting);

/// What the plugin offers: WEFT_TRANSPORT's choice; under auto RDMA where it is, and then nothing else: a cluster
/// whose RDMA does not work through this plugin is better served by NCCL's own. Logs what it took and what not.
std::vector<Device> ChooseDevices(const Environment& environment);

}  // namespace weft::net::rdma
