// Which of the host's ports a flow uses: the one that NCCL chose, its home, while that works, else another, and its home
// again when it has been up for a while.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "netplugin/rdma/port.h"

namespace weft::net::rdma {

/// Not thread-safe: it belongs to who holds the flow.
class PortChoice {
 public:
  /// Ports at one distance from home take turns by `flow`, so that the flows of a port that fails spread.
  PortChoice(std::shared_ptr<Port> home, uint64_t flow);

  const std::shared_ptr<Port>& home() const { return ports_.front(); }
  /// The one at `port`, which must be one of these. Threads: any.
  const std::shared_ptr<Port>& Find(const Port* port) const { return ports_[IndexOf(port)]; }
  /// Ports that are up and not `current`.
  uint32_t Others(const Port& current) const;
  /// Whether it is worth setting a flow up anew: `current` is down and another is not, or home can be used again.
  bool BetterThan(const Port& current, uint64_t now) const;
  /// What to use from now on. `distrusted`: although it is up nothing gets through `current`.
  const std::shared_ptr<Port>& Choose(const Port& current, bool distrusted, uint64_t now);

 private:
  static constexpr uint64_t kDistrustNs = 60'000'000'000;  // how long no path from home is tried again, at least
  static constexpr uint64_t kLongestNs = 600'000'000'000;

  size_t IndexOf(const Port* port) const;
  bool HomeReady(uint64_t now) const;
  void Leave(bool distrusted, uint64_t now);

  std::vector<std::shared_ptr<Port>> ports_;  // home first
  const uint64_t rest_ns_;                    // how long home must have been up again
  uint64_t pause_ns_ = 0;                     // doubles while home fails again soon after each return
  uint64_t home_not_before_ = 0;
  uint64_t returned_ = 0;                     // 0: never
};

/// Tells each port which others of `ports` can take its flows over: of its kind of link, reaching the memory that it
/// reaches; the nearest on the PCI bus first. Does nothing where WEFT_RDMA_FAILOVER is 0.
/// `pci_paths`: of each port's device, resolved; empty where it is on no bus.
void SetStandbys(const std::vector<std::shared_ptr<Port>>& ports, const std::vector<std::string>& pci_paths);

}  // namespace weft::net::rdma
