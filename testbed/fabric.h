// A real leaf–spine network on one machine: one network namespace per host and switch, one veth pair per cable, ports
// shaped by HTB with two DSCP classes, ECMP over all spines by the kernel's own 5-tuple hash (fib_multipath_hash_policy 3;
// fabric_scripts.cc says why not 1). Demo, tests and bench use it alike. The addressing plan is in fabric_plan.h; running programs inside is process.h's.
//
//   WEFT_RETURN_IF_ERROR(CanBuildFabric());
//   WEFT_ASSIGN_OR_RETURN(auto fabric, Fabric::Create({.link_rate = MegabitsPerSecond(200)}));
//   WEFT_ASSIGN_OR_RETURN(auto agent, Spawn({.argv = {"weft-agent"}, .netns = fabric->hosts()[0].netns}));
//   WEFT_RETURN_IF_ERROR(fabric->SetLinkRate("leaf1", "spine1", MegabitsPerSecond(50)));
//
// Nothing outlives its owner: the destructor tears the fabric down, a reaper process does so when the owner dies by any
// signal, and the next Create removes what both could not (the state files under /run/weft-testbed name the owners).
// What it leaves out: delay and loss. A full port queues as HTB's own leaf queue does (1,000 packets).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "testbed/class_counters.h"
#include "testbed/fabric_plan.h"
#include "testbed/fabric_scripts.h"
#include "testbed/fabric_state.h"
#include "testbed/reaper.h"

namespace weft::testbed {

/// Whether a fabric can be built here. Errors: kFailedPrecondition with one line that says what is missing (root,
/// iproute2, network namespaces, HTB, multipath hashing).
[[nodiscard]] Status CanBuildFabric();

/// What one egress port has sent since it was made, from the HTB classes' own counters in the namespace of `from`.
/// `bytes` counts Ethernet frames as they would be on a wire, without preamble and frame check sequence: each TCP segment
/// of a segmentation-offloaded packet counts its own 14 + 20 + 20 (+ 12 for timestamps) bytes of headers. A stream of
/// full segments therefore carries 1448 payload bytes in each 1514 counted.
struct LinkCounters {
  int64_t bytes = 0;           ///< both classes
  int64_t packets = 0;         ///< both classes; segments, not offloaded packets
  int64_t drops = 0;           ///< both classes, full queue
  int64_t priority_bytes = 0;  ///< of `bytes`, those in the first class, as a rule that of DSCP 26
};

/// A 5-tuple between two hosts' data addresses.
struct FlowTuple {
  std::string source;       ///< host name
  std::string destination;  ///< host name
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  std::string protocol = "tcp";  ///< or "udp"
};

/// Who knows that a cable is down. kStatic: only the two nodes on it; far switches go on sending into the hole, as with
/// static routes. kConverged: all leaves route around it, as a routing protocol would have after it has converged.
enum class Rerouting { kStatic, kConverged };

/// A fabric that is up. Threads: any, one call at a time is done.
class Fabric {
 public:
  /// Removes stale fabrics, then builds one; about 0.4 s for 2 x 2 x 8. Returns when every port is up and shaped.
  /// Errors: kInvalidArgument for the options; kAlreadyExists for a living fabric of this id; kFailedPrecondition with
  /// the failing command's own words.
  [[nodiscard]] static Result<std::unique_ptr<Fabric>> Create(const FabricOptions& options);
  /// Attaches to a running fabric without owning it: its destructor leaves it up. Links are reported at the rates that
  /// they were made with. Errors: kNotFound.
  [[nodiscard]] static Result<std::unique_ptr<Fabric>> Adopt(std::string_view id);
  /// Tears down the fabric `id`, whoever owns it. Errors: kNotFound.
  [[nodiscard]] static Status Remove(std::string_view id);
  /// Tears down the fabrics whose owner is gone; returns their ids.
  [[nodiscard]] static Result<std::vector<std::string>> CleanStale();
  /// State of every fabric on this machine, by id.
  [[nodiscard]] static Result<std::vector<FabricState>> List();

  /// Tears down if this object owns the fabric: processes inside get SIGTERM, after 1 s SIGKILL.
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// Gives up ownership: the fabric stays up until somebody calls Remove.
  [[nodiscard]] Status LeaveUp();

  const std::string& id() const { return plan_.options.id; }
  const FabricPlan& plan() const { return plan_; }
  const std::vector<FabricHost>& hosts() const { return plan_.hosts; }
  const std::vector<FabricSwitch>& leaves() const { return plan_.leaves; }
  const std::vector<FabricSwitch>& spines() const { return plan_.spines; }
  /// Address of the management bridge on this machine: where hosts reach a controller that listens in the root namespace.
  const std::string& mgmt_gateway() const { return plan_.mgmt_gateway; }
  /// All directed links at their present rates.
  std::vector<FabricLink> links() const;
  /// The namespace of a host or switch. Errors: kNotFound naming the node.
  [[nodiscard]] Result<std::string> NamespaceOf(std::string_view node) const;

  /// Counters of all links, in the order of links(). Errors: kFailedPrecondition naming the port.
  [[nodiscard]] Result<std::vector<LinkCounters>> ReadCounters();

  /// Sets the rate of the port of `from` towards `to`; packets in its queue stay. Errors: kNotFound without such a cable.
  [[nodiscard]] Status SetLinkRate(std::string_view from, std::string_view to, BitsPerSecond rate);
  /// Both directions of the cable.
  [[nodiscard]] Status SetCableRate(std::string_view a, std::string_view b, BitsPerSecond rate);
  /// Takes both ends of a cable down, or up again. Errors: kNotFound without such a cable.
  [[nodiscard]] Status SetLinkDown(std::string_view a, std::string_view b,
                                   Rerouting rerouting = Rerouting::kConverged);
  [[nodiscard]] Status SetLinkUp(std::string_view a, std::string_view b);

  /// The nodes that the kernel would send `flow` over, hosts included: {"h1","leaf1","spine2","leaf2","h5"}. Ground truth
  /// for tests and for the demo's verification, never for the product. Errors: kNotFound for a host;
  /// kFailedPrecondition where no route leads there.
  [[nodiscard]] Result<std::vector<std::string>> PathOf(const FlowTuple& flow) const;

 private:
  Fabric(FabricPlan plan, FabricState state);
  Status Build();
  Result<size_t> FindLink(std::string_view from, std::string_view to) const;
  Status ApplyRate(size_t link, BitsPerSecond rate);
  Status SetCableDevices(size_t cable, bool up);
  Status ApplyRoutes(std::span<const std::string> nodes);
  std::vector<std::string> AllSwitches() const;

  FabricState state_;
  bool owned_ = false;
  pid_t made_by_ = 0;  // a forked child's copy of this object must not tear down its parent's fabric
  Reaper reaper_;

  mutable std::mutex mutex_;  // guards what follows
  FabricPlan plan_;           // only the links' rates change
  std::vector<CableState> cable_states_;
  std::vector<ClassCounterReader> readers_;
};

}  // namespace weft::testbed
