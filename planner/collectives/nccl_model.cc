#include "planner/collectives/nccl_model.h"

#include <algorithm>
#include <cmath>

#include "planner/collectives/tree_rate.h"

namespace weft::planner::inline collectives {
namespace {

using PerProtocol = std::array<double, 3>;                 // LL, LL128, Simple
using PerNodes = std::array<double, 3>;                    // 1, 2, more nodes
using PerGeneration = std::array<PerNodes, 4>;             // Volta, Ampere, Hopper, Blackwell

// ---- tables of tuning.cc, in its units: us and GB/s

constexpr PerProtocol kTreeBase = {6.8, 14, 8.4};
constexpr PerProtocol kRingBase = {6.6, 14, 8.4};

struct HardwareLatency {
  PerProtocol tree, ring;
  double nvls, nvls_tree;  // Simple only
};
constexpr HardwareLatency kNvlink = {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}, 25, 25};
constexpr HardwareLatency kPci = {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, 0, 0};
constexpr HardwareLatency kNet = {{5.0, 8.5, 14}, {2.7, 4.0, 14}, 18, 20.9};

constexpr PerGeneration kLlLimit = {{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr PerGeneration kRingLl128Limit = {{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}}};
constexpr PerGeneration kTreeLl128Limit = {{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr PerGeneration kTreeLimit = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr PerGeneration kNvlsTreeLimit = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 80}}};
constexpr std::array<double, 4> kNvlsEfficiency = {0, 0, 0.85, 0.74};

size_t Index(Protocol protocol) { return static_cast<size_t>(protocol); }

/// The table's formulae for one communicator and collective.
class Table {
 public:
  Table(const NcclGraph& graph, Collective collective)
      : g_(graph), collective_(collective), n_(graph.ranks), m_(graph.nodes), per_node_(graph.ranks / graph.nodes) {}

  bool Allowed(Algorithm algorithm, Protocol protocol) const {
    const bool reduces = collective_ == Collective::kAllReduce;
    const bool gathers = collective_ == Collective::kAllGather || collective_ == Collective::kReduceScatter;
    const bool multicast = g_.nvls && g_.nvswitch && g_.generation >= GpuGeneration::kHopper && g_.channels >= 2;
    switch (algorithm) {
      case Algorithm::kRing: return reduces || gathers || collective_ == Collective::kBroadcast;
      case Algorithm::kTree: return reduces;
      // NVLS across nodes needs CollNet.
      case Algorithm::kNvls: return protocol == Protocol::kSimple && multicast && m_ == 1 && (reduces || gathers);
      case Algorithm::kNvlsTree: return protocol == Protocol::kSimple && multicast && m_ > 1 && reduces;
      default: return false;
    }
  }

  double Bandwidth(Algorithm algorithm, Protocol protocol) const {
    const double steps = Steps();
    switch (algorithm) {
      case Algorithm::kTree: return TreeBus(protocol) * 0.5;
      case Algorithm::kRing: return RingBus(protocol) * n_ / steps;
      default: return SwitchBus(algorithm) * n_ / steps;
    }
  }

  double Latency(Algorithm algorithm, Protocol protocol) const {
    const size_t p = Index(protocol);
    const HardwareLatency& inside = g_.nvlink ? kNvlink : kPci;
    const double levels = std::floor(std::log2(m_));
    switch (algorithm) {
      case Algorithm::kTree:
        return kTreeBase[p] + 2 * ((per_node_ - 1) * inside.tree[p] + levels * Across(kNet.tree[p], protocol));
      case Algorithm::kRing: return kRingBase[p] + RingHops(protocol, inside);
      case Algorithm::kNvls: return inside.nvls;
      case Algorithm::kNvlsTree: return inside.nvls_tree + 2 * levels * Across(kNet.nvls_tree, protocol);
      default: return 0;
    }
  }

  /// Corrections that depend on the size.
  double Microseconds(const NcclEntry& entry, double bytes) const {
    double latency = entry.latency_us, bandwidth = entry.bandwidth_gbs;
    if (entry.algorithm == Algorithm::kTree) bandwidth *= TreeRateShare(entry.protocol, bytes);
    const bool long_ring = entry.algorithm == Algorithm::kRing && entry.protocol == Protocol::kSimple && m_ > 1 &&
                           collective_ == Collective::kAllReduce && bytes / (Channels() * n_) >= 64;
    if (long_ring) latency *= g_.generation < GpuGeneration::kAmpere ? 1.9 : 1.4;
    return latency + bytes / (1000 * bandwidth);
  }

  int32_t Channels() const { return g_.communicator_channels > 0 ? g_.communicator_channels : 2 * g_.channels; }

 private:
  double Limit(const PerGeneration& table) const {
    return table[static_cast<size_t>(g_.generation)][static_cast<size_t>(std::min(m_, 3) - 1)];
  }
  /// On one node the GPU's row, on more the CPU's.
  double LlLimit() const {
    if (m_ == 1) return Limit(kLlLimit);
    return kLlLimit[g_.amd_cpu ? 1 : 0][static_cast<size_t>(std::min(m_, 3) - 1)];
  }
  double Bus() const { return g_.channels * (m_ <= 2 ? g_.inside_gbs : g_.across_gbs); }

  double Steps() const {
    if (collective_ == Collective::kAllReduce) return 2.0 * (n_ - 1);
    return collective_ == Collective::kBroadcast ? n_ : n_ - 1;
  }

  double RingBus(Protocol protocol) const {
    const double bus = Bus();
    if (protocol == Protocol::kLl) return std::min(LlLimit(), bus / 2);
    if (protocol == Protocol::kLl128) return std::min(0.92 * bus, g_.channels * Limit(kRingLl128Limit));
    return bus;
  }

  double TreeBus(Protocol protocol) const {
    double bus = std::min(0.92 * Bus(), g_.channels * Limit(kTreeLimit));
    if (protocol == Protocol::kLl) bus = std::min(bus / 3.8, LlLimit());
    if (protocol == Protocol::kLl128) {
      bus = std::min(bus * (m_ == 1 ? 7.0 / 9 : 120.0 / 128), g_.channels * Limit(kTreeLl128Limit));
    }
    return g_.plain_tree || per_node_ == 1 ? 0.85 * bus : bus;
  }

  double SwitchBus(Algorithm algorithm) const {
    const bool tree = algorithm == Algorithm::kNvlsTree;
    const double efficiency = kNvlsEfficiency[static_cast<size_t>(g_.generation)];
    double inside = g_.inside_gbs * efficiency * (g_.channels - 1) / g_.channels;
    inside *= collective_ == Collective::kAllReduce ? 2 : (per_node_ - 1.0) / per_node_;
    if (m_ == 1) return g_.channels * inside;
    const double across = g_.across_gbs * (tree && m_ <= 2 ? 2 : 1);
    return g_.channels * std::min({inside, across, tree ? Limit(kNvlsTreeLimit) : inside});
  }

  /// The NIC's own latency counts twice for Simple, which flushes.
  double Across(double network, Protocol protocol) const {
    return network + g_.nic_latency_us * (protocol == Protocol::kSimple ? 2 : 1);
  }

  double RingHops(Protocol protocol, const HardwareLatency& inside) const {
    const size_t p = Index(protocol);
    if (collective_ == Collective::kBroadcast) {
      return m_ == 1 ? inside.ring[p] : Across(kNet.ring[p], protocol);
    }
    // With one GPU per node the ring's hops between nodes are as slow as the tree's.
    const double network = per_node_ == 1 ? kNet.tree[p] : kNet.ring[p];
    const double across_hops = m_ == 1 ? 0 : (collective_ == Collective::kAllReduce ? 2.0 : 1.0) * (m_ - 1);
    const double overhead = m_ == 1 ? 0 : (g_.amd_cpu ? 2.0 : 1.0) * (protocol == Protocol::kSimple ? 3 : 1);
    return (Steps() - across_hops) * std::max(inside.ring[p], overhead) + across_hops * Across(network, protocol);
  }

  const NcclGraph& g_;
  Collective collective_;
  int32_t n_, m_, per_node_;
};

}  // namespace

std::string_view NcclAlgorithmName(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kTree: return "Tree";
    case Algorithm::kRing: return "Ring";
    case Algorithm::kNvls: return "NVLS";
    case Algorithm::kNvlsTree: return "NVLSTree";
    default: return "";
  }
}

std::string_view NcclProtocolName(Protocol protocol) {
  constexpr std::array<std::string_view, 3> kNames = {"LL", "LL128", "Simple"};
  return kNames[static_cast<size_t>(protocol)];
}

std::vector<NcclEntry> NcclTable(const NcclGraph& graph, Collective collective, Bytes bytes) {
  std::vector<NcclEntry> entries;
  if (graph.ranks <= 1) return entries;
  const Table table(graph, collective);
  for (const auto algorithm : {Algorithm::kTree, Algorithm::kRing, Algorithm::kNvls, Algorithm::kNvlsTree}) {
    for (const auto protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
      if (!table.Allowed(algorithm, protocol)) continue;
      NcclEntry entry{algorithm, protocol, table.Latency(algorithm, protocol), table.Bandwidth(algorithm, protocol)};
      if (entry.bandwidth_gbs <= 0) continue;
      entry.time = Seconds(1e-6 * table.Microseconds(entry, static_cast<double>(bytes.count())));
      entries.push_back(entry);
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const NcclEntry& a, const NcclEntry& b) { return a.time < b.time; });
  return entries;
}

int32_t NcclChannels(const NcclGraph& graph, const NcclEntry& entry, Bytes bytes) {
  int32_t channels = graph.communicator_channels > 0 ? graph.communicator_channels : 2 * graph.channels;
  const bool ring = entry.algorithm == Algorithm::kRing;
  const bool slow_ring = ring && graph.channels * graph.inside_gbs <= 12;
  int64_t threshold = 8, threads = 640;
  if (entry.protocol == Protocol::kLl) {
    threads = 512;
    threshold = ring ? 8 * graph.ranks : 8;
  } else if (entry.protocol == Protocol::kSimple) {
    threads = slow_ring ? 256 : 512;
    threshold = 64;
  }
  while (channels > 1 && bytes.count() < channels * threads * threshold) --channels;
  return channels;
}

ChannelSpeed ChannelsOf(GpuGeneration generation, int32_t gpus, int32_t nics, BitsPerSecond nic_rate) {
  static constexpr std::array kAmpere = {48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0,
                                         7.0,  6.0,  5.0,  4.0,  3.0,  2.4,  1.2,  0.24, 0.12};
  static constexpr std::array kHopper = {48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5,
                                         15.0, 12.0, 6.0,  3.0,  2.4,  1.2,  0.24, 0.12};
  static constexpr std::array kBlackwell = {96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0,
                                            17.5, 15.0, 12.0, 6.0,  3.0,  2.4,  1.2,  0.24, 0.12};
  // The GPU's own way to its NIC: a x16 slot of the PCI generation that the GPU has.
  static constexpr std::array<double, 4> kSlot = {12, 24, 48, 48};
  const double most = std::min(nic_rate.bytes_per_second() / 1e9, kSlot[static_cast<size_t>(generation)]);
  const auto best = [&](const auto& speeds) {
    for (const double speed : speeds) {
      if (speed <= most) return speed;
    }
    return speeds.back();
  };
  double speed = 0;
  if (generation == GpuGeneration::kBlackwell) speed = best(kBlackwell);
  else speed = generation == GpuGeneration::kHopper ? best(kHopper) : best(kAmpere);
  ChannelSpeed found{std::min(gpus, nics), speed, speed};
  // Fast channels are split in two, except where Hopper and later have enough of them.
  const bool enough = generation >= GpuGeneration::kHopper && speed < 50 && found.channels > 4;
  if (speed >= 25 && !enough) found = {2 * found.channels, speed / 2, speed / 2};
  return found;
}

}  // namespace weft::planner::collectives
