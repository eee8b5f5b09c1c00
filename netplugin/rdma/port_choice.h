// Which of the host's ports a flow uses: the one that NCCL chose, its home, while that works, else another, and its home
// again when it has been up for a while.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "netplugin/rdma/port.h"

namespace weft::net::rdma {

/// Not thread-safe: it belongs to who holds the flow.
class PortChoice {
 public:
  /// Ports at one distance from home take turns by `flow`, so that the flows of a port that fails spread.
  PortChoice(std::shared_ptr<Port> home, uint64_t flow);

  const std::shared_ptr<Port>& home() const { return ports_.front().port; }
  /// The one at `port`, which must be one of these. Threads: any.
  const std::shared_ptr<Port>& Find(const Port* port) const { return ports_[IndexOf(port)].port; }
  /// Ports that can be used and are not `current`.
  uint32_t Others(const Port& current, uint64_t now) const;
  /// Whether it is worth setting a flow up anew: `current` cannot be used and another can, or home can be used again.
  bool BetterThan(const Port& current, uint64_t now) const;

  /// Why a flow is set up anew.
  enum class Reason : uint8_t {
    kOther,
    kNothingGetsThrough,  ///< though the port is up: take another
    kPeerGoesHome,        ///< to its own: home is taken again, if it may be reached now
  };
  /// What to use from now on.
  const std::shared_ptr<Port>& Choose(const Port& current, Reason reason, uint64_t now) const;
  /// Says that the flow has done so.
  void Moved(const Port& from, const Port& to, Reason reason, uint64_t now);
  /// It cannot be used although it is up: no resources. It is left alone for a while, longer each time.
  void Refused(const Port& port, uint64_t now);
  bool IsRefused(const Port& port, uint64_t now) const { return now < ports_[IndexOf(&port)].not_before; }

 private:
  static constexpr uint64_t kDistrustNs = 60'000'000'000;  // how long home is left of which no path led anywhere, at least
  static constexpr uint64_t kLongestNs = 600'000'000'000;
  static constexpr uint64_t kRefusedNs = 10'000'000'000;

  struct Candidate {
    std::shared_ptr<Port> port;
    uint64_t not_before = 0;  // refused until then
    uint32_t refusals = 0;    // one soon after another
  };

  size_t IndexOf(const Port* port) const;
  bool Usable(size_t i, uint64_t now) const { return !ports_[i].port->down() && now >= ports_[i].not_before; }
  /// Whether home can be used and has been up for long enough at `at`.
  bool HomeRested(uint64_t now, uint64_t at) const;
  void Leave(bool distrusted, uint64_t now);

  std::vector<Candidate> ports_;  // home first
  const uint64_t rest_ns_;        // how long home must have been up again
  uint32_t strikes_ = 0;          // how often home failed again soon after a return: each doubles the time away
  uint64_t home_not_before_ = 0;
  uint64_t left_ = 0, returned_ = 0;  // home; 0: never
};

/// Tells each port which others of `ports` can take its flows over: of its kind of link, reaching the memory that it
/// reaches; the nearest on the PCI bus first. Does nothing where WEFT_RDMA_FAILOVER is 0.
/// `pci_paths`: of each port's device, resolved; empty where it is on no bus.
void SetStandbys(const std::vector<std::shared_ptr<Port>>& ports, const std::vector<std::string>& pci_paths);

}  // namespace weft::net::rdma
