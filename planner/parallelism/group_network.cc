#include "planner/parallelism/group_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace weft::planner::inline parallelism {
namespace {

// What NCCL makes of a kind of link. Source: NCCL 2.30, src/graph/tuning.cc: hwLatencies (a step in LL, LL128 and Simple is 0.6,
// 1.9 and 4.0 us over NVLink, 1.0, 2.5 and 5.7 us over PCI), llMaxBws (what a ring of a node carries in LL). xGMI is taken as NVLink of
// the same year.
struct LinkKind {
  std::string_view device;              // begins the device's name
  std::string_view name;
  double ll_step, ll128_step;           // of a step of Simple; ll128_step 0: NCCL has no LL128 here
  double ll_gigabytes;                  // per second, on one node
};
constexpr double kLl = 0.6 / 4.0, kLl128 = 1.9 / 4.0;
constexpr std::array kLinkKinds = {
    LinkKind{"v100", "nvlink2", kLl, kLl128, 39},
    LinkKind{"a100", "nvlink3", kLl, kLl128, 87.7},
    LinkKind{"h100-pcie", "pcie", 1.0 / 5.7, 0, 141},
    LinkKind{"h", "nvlink4", kLl, kLl128, 141},
    LinkKind{"b", "nvlink5", kLl, kLl128, 282},
    LinkKind{"gb", "nvlink5", kLl, kLl128, 282},
    LinkKind{"mi300", "xgmi", kLl, kLl128, 141},
    LinkKind{"l40s", "pcie", 1.0 / 5.7, 0, 141},
    LinkKind{"p40", "pcie", 1.0 / 5.7, 0, 39},
    LinkKind{"rtx", "pcie", 1.0 / 5.7, 0, 282},
};
constexpr LinkKind kUnknownLink{"", "nvlink", kLl, kLl128, 87.7};

const LinkKind& FindLinkKind(std::string_view device) {
  for (const LinkKind& kind : kLinkKinds) {
    if (device.starts_with(kind.device)) return kind;
  }
  return kUnknownLink;
}

// Start of a collective in us, by Protocol. Source: tuning.cc: baseLatencies of rings.
constexpr std::array<double, kProtocols> kStarts = {6.6, 14, 8.4};
constexpr double kNvlsStart = 25e-6;  // tuning.cc: hwLatencies of NVLS, in s
// A ring's bandwidth in LL over two and over more nodes, byte/s. Source: tuning.cc, llMaxBws of Intel's processors.
constexpr double kLlTwoNodes = 39e9, kLlMoreNodes = 20.4e9;

/// `start`: of what NCCL believes a collective starts with; `ll_step`: s of a step between nodes in LL. LL128 needs no less than
/// Simple there.
void AddNcclProtocols(GroupNetwork& network, const LinkKind& kind, double start, double ll_step) {
  const auto early = [&](Protocol protocol, double step) -> EarlyProtocol& {
    EarlyProtocol& entry = network.early[static_cast<size_t>(protocol)];
    entry.start = start * 1e-6 * kStarts[static_cast<size_t>(protocol)];
    entry.intra_latency = step * network.intra_latency;
    entry.nic_latency = protocol == Protocol::kLl ? std::min(ll_step, network.nic_latency) : network.nic_latency;
    return entry;
  };
  EarlyProtocol& ll = early(Protocol::kLl, kind.ll_step);
  ll.stretch = 2;  // half of what it sends are flags
  ll.least_per_byte = {1e-9 / kind.ll_gigabytes, 1 / kLlTwoNodes, 1 / kLlMoreNodes};
  network.least_stretch = 2;
  network.has_early = true;
  network.has_ll128 = kind.ll128_step > 0;
  network.start = start * 1e-6 * kStarts[static_cast<size_t>(Protocol::kSimple)];
  if (!network.has_ll128) return;
  early(Protocol::kLl128, kind.ll128_step).stretch = 1 / 0.92;  // 120 of 128 bytes, and what polling costs, says tuning.cc
  network.least_stretch = 1 / 0.92;
}

/// Of the constants of its NICs.
std::string_view NicPrefix(const ClusterSpec& cluster) {
  switch (cluster.nic_kind) {
    case NicKind::kEfa: return "link.nic.efa";
    case NicKind::kEfaStaged: return "link.nic.efa.staged";
    case NicKind::kSlingshot: return "link.nic.slingshot";
    case NicKind::kPlain: break;
  }
  return "link.nic";
}

}  // namespace

std::string_view LinkKindOf(const ClusterSpec& cluster) {
  if (cluster.device.name.starts_with("cpu")) return "cpu";
  return cluster.gpus_per_node > 16 ? "nvl72" : FindLinkKind(cluster.device.name).name;
}

bool IsLinkKind(std::string_view name) {
  static constexpr auto kOthers =
      std::to_array<std::string_view>({"nvl72", "cpu", "nic", "nic.efa", "nic.efa.staged", "nic.slingshot"});
  return std::ranges::find(kOthers, name) != kOthers.end() || name == kUnknownLink.name ||
         std::ranges::any_of(kLinkKinds, [&](const LinkKind& kind) { return kind.name == name; });
}

GroupNetwork MakeGroupNetwork(const ClusterSpec& cluster, CollectiveLibrary library, const Calibration& calibration) {
  if (!cluster.measured.empty()) {
    ClusterSpec plain = cluster;
    plain.measured.clear();
    return MakeGroupNetwork(plain, library, calibration.With(cluster.measured));
  }
  const std::string link = fmt::format("link.{}", LinkKindOf(cluster));
  const auto gpus = static_cast<double>(cluster.gpus_per_node);
  const std::string_view nic = NicPrefix(cluster);
  const bool shared = cluster.gpus_per_node > 1 && cluster.SharesNics();
  const double goodput = calibration.Get(nic, "efficiency") * (shared ? calibration.Get(nic, "shared") : 1);
  GroupNetwork network{.gpus_per_node = cluster.gpus_per_node};
  network.intra_rate = cluster.intra_node_rate.bytes_per_second() * calibration.Get(link, "efficiency");
  network.direct_intra_rate = network.intra_rate * calibration.Get(link, "direct");
  // A GPU's rings leave by one NIC; EFA's plugin makes one of all that a GPU has.
  const bool spare = cluster.nic_kind != NicKind::kEfa && cluster.nics_per_node > cluster.gpus_per_node;
  const double nics = spare ? static_cast<double>(cluster.nics_per_node) : gpus;
  network.nic_rate = cluster.nic_rate.bytes_per_second() / nics * goodput;
  // Several NICs of one GPU all pass its slot.
  if (cluster.device.slot_rate.value() > 0) {
    network.nic_rate = std::min(network.nic_rate,
                                cluster.device.slot_rate.bytes_per_second() * calibration.Get("link.pcie", "efficiency"));
  }
  network.intra_latency = cluster.intra_latency.count() * calibration.Get(link, "latency");
  const double step = cluster.nic_latency.count() * calibration.Get(nic, "steps");
  network.nic_latency = step;
  network.direct_nic_share = shared ? calibration.Get(nic, "shared_direct") : 1;
  for (const FabricTier& tier : cluster.tiers) {
    if (tier.out.value() <= 0 || network.tiers == kMostTiers) continue;
    network.above[network.tiers++] = {tier.nodes * cluster.gpus_per_node, tier.out.bytes_per_second() / gpus * goodput};
  }
  network.single_ring = library == CollectiveLibrary::kWeft;
  if (network.single_ring || LinkKindOf(cluster) == "cpu") return network;
  network.nic_latency = step * calibration.Get(nic, "latency");
  network.peer_latency = step * calibration.Get(nic, "peer");
  AddNcclProtocols(network, FindLinkKind(cluster.device.name), calibration.Get(link, "start"), step * calibration.Get(nic, "ll"));
  network.switch_rate = network.intra_rate * calibration.Get(link, "multicast");
  network.switch_start = kNvlsStart;
  return network;
}

}  // namespace weft::planner::parallelism
