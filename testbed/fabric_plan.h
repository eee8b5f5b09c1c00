// The addressing plan of a namespace fabric: which namespaces, cables, devices and addresses a set of options means.
// Pure: it touches nothing, so that a test, a teardown and the program that attaches to a running fabric all derive the
// same names from the same few numbers. What it leaves out: how the plan becomes real (fabric_scripts.h, fabric.h).
//
//   host h5 on leaf2:  eth0 10.2.1.2/24, gateway 10.2.1.1;  mgmt0 172.31.<slot>.15/24, bridge at 172.31.<slot>.1
//   leaf1 -- spine2:   10.254.1.2/31 on leaf1's device "spine2", 10.254.1.3/31 on spine2's device "leaf1"
//   identities on lo:  leaf2 10.255.1.2, spine1 10.255.2.1
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::testbed {

/// What every port queues apart.
struct FabricClass {
  int dscp = 0;   ///< 0 to 63
  int share = 0;  ///< percent of a full port that it is guaranteed; 0: served after the classes before it, and hardly more than nothing

  friend bool operator==(const FabricClass&, const FabricClass&) = default;
};

struct FabricOptions {
  std::string id;                                ///< [a-z0-9]{1,16}; empty: derived from the process id
  int leaves = 2;                                ///< 1 to 64
  int spines = 2;                                ///< 1 to 64
  int hosts_per_leaf = 4;                        ///< 1 to 64; at most 240 hosts in all
  BitsPerSecond link_rate = MegabitsPerSecond(200);
  std::optional<BitsPerSecond> host_link_rate;   ///< host–leaf cables; default link_rate
  std::optional<BitsPerSecond> spine_link_rate;  ///< leaf–spine cables; default link_rate
  /// net.ipv4.fib_multipath_hash_seed of every switch, for reproducible draws; default: the kernel's own random seed.
  std::optional<uint32_t> hash_seed;
  /// 1 to 8 classes, served first first; what has another DSCP goes with the last.
  std::vector<FabricClass> classes{{26, 0}, {0, 0}};
  /// 10 µs to 10 ms: of its rate what an idle port sends at once, and a host's longest super-packet; default 5 and 4 ms, which cost the
  /// processors least. Where messages take a few milliseconds only a finer grain sends them at the rate.
  std::optional<Seconds> grain;
  /// 4 KiB to 64 MiB: what a port holds of each class (if fair, in each of its queues) before it drops; default 60 ms of its rate, 96 KiB at least. Small messages
  /// wait behind what large ones have in it: where both pass, a real port is nearer with a few milliseconds.
  std::optional<Bytes> queue;
  /// At every port each flow has a queue of its own in its class (one of 256, by its source port), and they are served in turn, as NICs
  /// serve queue pairs: a message does not wait behind what other flows have in the port.
  bool fair = false;

  friend bool operator==(const FabricOptions&, const FabricOptions&) = default;
};

/// A host: one namespace with `eth0` on the fabric and `mgmt0` on the unshaped management bridge.
struct FabricHost {
  std::string name;          ///< "h3"
  std::string netns;         ///< "weft-<id>-h3"
  std::string leaf;          ///< "leaf1"
  std::string data_address;  ///< "10.1.3.2", on eth0
  std::string gateway;       ///< "10.1.3.1", on the leaf
  std::string mgmt_address;  ///< "172.31.<slot>.13", on mgmt0
};

/// A leaf or spine switch. `identity` is the one address that it answers from (ICMP time exceeded), on whatever port
/// the probe came in.
struct FabricSwitch {
  std::string name;      ///< "leaf1"
  std::string netns;     ///< "weft-<id>-leaf1"
  std::string identity;  ///< "10.255.1.1"
};

/// One direction of a cable: the egress port of `from` towards `to`.
struct FabricLink {
  std::string from;
  std::string to;
  std::string netns;   ///< of `from`
  std::string device;  ///< in that namespace
  BitsPerSecond rate;  ///< as last set
};

/// One end of a cable. `address` and `prefix` are what is configured on `device`.
struct CableEnd {
  std::string node;
  std::string netns;
  std::string device;
  std::string address;
  std::string subnet;  ///< "10.1.3.0/24"
};

/// A veth pair. `a` is the lower end: host or leaf; `b` the upper one: leaf or spine.
struct Cable {
  CableEnd a;
  CableEnd b;
  BitsPerSecond rate;
};

struct FabricPlan {
  /// Errors: kInvalidArgument naming the option, its value and the accepted range.
  [[nodiscard]] static Result<FabricPlan> Make(const FabricOptions& options, int slot);

  FabricOptions options;
  int slot = 0;               ///< third byte of the management subnet, 1 to 254
  std::string bridge;         ///< in the root namespace
  std::string mgmt_gateway;   ///< the bridge's address, "172.31.<slot>.1"
  std::vector<FabricHost> hosts;      ///< by leaf: h1..hN on leaf1, and so on
  std::vector<FabricSwitch> leaves;
  std::vector<FabricSwitch> spines;
  std::vector<Cable> cables;          ///< host cables first, in order of hosts; then leaf by leaf over all spines
  std::vector<FabricLink> links;      ///< cable i is links 2i (a to b) and 2i+1 (b to a)

  /// All namespaces, hosts first.
  std::vector<std::string> Namespaces() const;
  /// The management bridge's port of `host` in the root namespace.
  std::string BridgePort(const FabricHost& host) const;
};

inline constexpr int kFirstSlot = 1;
inline constexpr int kLastSlot = 254;

/// Whether `id` is [a-z0-9]{1,16}. Errors: kInvalidArgument.
[[nodiscard]] Status CheckFabricId(std::string_view id);

}  // namespace weft::testbed
