// An RDMA fabric in memory for tests: devices behind the same function table that libibverbs fills, reliable queue
// pairs that execute in order of their own but in random order among each other, memory keys that are checked, and
// failures as hardware has them: before a write was carried out, or after, with only the acknowledgement lost.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "netplugin/rdma/port.h"
#include "netplugin/rdma/verbs.h"

namespace weft::net::rdma::testing {

class FakeFabric {
 public:
  /// `devices` of one active RoCE port each, with GID 3 = 10.0.0.(i + 1).
  FakeFabric(int devices, uint64_t seed);
  ~FakeFabric();

  std::shared_ptr<Port> OpenPort(int device, const RdmaEnvironment& environment, std::string* why);

  /// From now on one write in `one_in` fails its queue pair; 0: none does.
  void FailWrites(uint32_t one_in);
  /// All writes that leave through `udp_port` fail: a path that is broken. 0: none.
  void BreakPath(uint16_t udp_port);
  /// What leaves through `udp_port` is not carried out and does not fail: a path that takes it and says nothing. Acknowledgements leave
  /// through the port of the pair that is written to: then a write is carried out and its pair hears nothing more. 0: none.
  void SilencePath(uint16_t udp_port);
  /// Nothing gets from one device to the other any more, though both are up. `seen`: who connects is told.
  void Cut(int a, int b, bool seen = false);
  /// Undoes all cuts.
  void Mend();
  static constexpr size_t kLarge = 1 << 20;
  /// The device makes no more queue pairs, or registers no more memory in regions of kLarge and more.
  void RunOut(int device, bool of_pairs, bool of_memory);
  /// The next write is never carried out and never fails, nor does what its queue pair is given after it.
  void ForgetNextPair();
  /// While true, nothing that is posted goes anywhere.
  void Hold(bool hold);
  /// While true, what a failed pair had been given stays without a completion: a device that is slow to stop.
  void HoldFlushes(bool hold);
  /// Nothing gets anywhere until it is up again; what is posted meanwhile fails.
  void SetPort(int device, bool up);

  /// What went over the fabric.
  struct Counts {
    uint64_t writes = 0;
    uint64_t reads = 0;
    uint64_t failures = 0;
    uint64_t lost_acknowledgements = 0;
    uint64_t registered = 0;      ///< memory regions that are there now
    uint64_t access_errors = 0;   ///< writes outside registered memory
    uint64_t overruns = 0;        ///< of a completion queue
    std::map<int, uint64_t> writes_by_device;   ///< by whose they were
    std::map<uint16_t, uint64_t> bytes_by_port;
    std::map<uint16_t, uint8_t> class_by_port;
  };
  Counts counts();

 private:
  friend struct Calls;
  struct Device;
  struct Context;
  struct Pair;
  struct Queue;
  struct Memory;
  struct Send;

  void Pump();
  bool Deliver(Pair& pair);
  void Fail(Pair& pair, ibv_wc_status status);
  void Flush(Pair& pair);
  void Complete(ibv_cq* queue, const ibv_wc& completion);
  bool Reaches(const Context& context, uint32_t key, uint64_t address, uint64_t length) const;

  std::mutex mutex_;  // guards all of it: posted to and polled from several threads
  std::mt19937_64 random_;
  Verbs verbs_;
  std::string sysfs_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::map<uint32_t, Pair*> pairs_;
  std::map<uint32_t, Memory*> memory_;
  uint32_t last_number_ = 16;
  uint32_t last_key_ = 0x100;
  uint32_t fail_one_in_ = 0;
  uint16_t broken_port_ = 0, silent_port_ = 0;
  std::set<std::pair<int, int>> cut_, unroutable_;
  bool forget_ = false;
  bool hold_ = false, hold_flushes_ = false;
  Counts counts_;
};

}  // namespace weft::net::rdma::testing
