#include "planner/collectives/measured_nccl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/collectives/ring.h"

namespace weft::planner::inline collectives {
namespace {

constexpr std::array kHostLinks = {
    HostLinkConstants{.name = "nvlink3", .bus = 205, .fast_share = 0.92, .base = 36, .step_fast = 3.3, .step_bulk = 13,
                      .source = "4 GPUs, all to all: ALCF Polaris nccl-tests record, NCCL 2.28; share: NCCL tuning.cc"},
    HostLinkConstants{.name = "nvlink3-switch", .bus = 245, .fast_share = 0.92, .base = 30, .step_fast = 1.9,
                      .step_bulk = 9,
                      .source = "aicb A100 run (bus, base), Azure NDm A100 v4 write-up (steps); step_fast: NCCL tuning.cc"},
    HostLinkConstants{.name = "nvlink4-switch", .bus = 360, .switch_bus = 474, .fast_share = 0.92, .base = 14,
                      .step_fast = 1.9, .step_bulk = 4.8, .switch_start = 130,
                      .source = "nccl-tests issue 290 (switch); steps and bus: NCCL tuning.cc and SimAI's table"},
    HostLinkConstants{.name = "nvlink5-switch", .bus = 672, .switch_bus = 843, .fast_share = 0.65, .base = 14,
                      .step_fast = 1.9, .step_bulk = 4.8, .switch_start = 120,
                      .source = "Vultr HGX B200 acceptance report; steps as nvlink4-switch"},
    HostLinkConstants{.name = "xgmi", .bus = 316, .fast_share = 0.72, .base = 8, .step_fast = 0.86, .step_bulk = 3.4,
                      .source = "RCCL single-node example, MI300X"},
    HostLinkConstants{.name = "pcie", .bus = 50, .fast_share = 1, .base = 14, .step_fast = 9.5, .step_bulk = 9.5,
                      .source = "Spectrum-X adaptive-routing test report, rows with routing off"},
    HostLinkConstants{.name = "none", .base = 14, .step_bulk = 4.8,
                      .source = "one GPU per host, nothing inside; base and step as nvlink4-switch"},
};

constexpr std::array kNetworks = {
    NetworkConstants{.name = "infiniband", .efficiency = 0.96, .gather_share = 0.8, .fast_share = 0.67, .hop = 22,
                     .source = "Azure NDm A100 v4 write-up, dstack and wutz H100 runs, Vultr B200 report (all-gather)"},
    NetworkConstants{.name = "roce", .efficiency = 0.87, .gather_share = 0.8, .fast_share = 0.93, .hop = 12,
                     .source = "OCI BM.GPU4.8 tutorial"},
};

constexpr std::string_view kSimAi = "aliyun/SimAI inputs/ratio, 8 GPUs per host";
constexpr std::array kEfficiency = {
    EfficiencyConstants{.fabric = "NVLink single node", .limit = 0.80, .fixed_mib = 18, .source = kSimAi},
    EfficiencyConstants{.fabric = "NVLink single node", .all_to_all = true, .limit = 0.77, .fixed_mib = 20,
                        .source = kSimAi},
    EfficiencyConstants{.fabric = "NIC-bound", .limit = 0.96, .fixed_mib = 14, .per_rank_mib = 1.75, .source = kSimAi},
    EfficiencyConstants{.fabric = "NVLink-bound multi-node", .limit = 0.88, .per_rank_mib = 0.7, .source = kSimAi},
    EfficiencyConstants{.fabric = "all-to-all", .all_to_all = true, .limit = 0.87, .fixed_mib = 10, .source = kSimAi},
};

template <typename Known>
auto Find(const Known& known, std::string_view name, std::string_view what)
    -> Result<typename Known::value_type> {
  std::string names;
  for (const auto& one : known) {
    if (one.name == name) return one;
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return Fail(Code::kNotFound, fmt::format("{} \"{}\": expected one of {}", what, name, names));
}

// Half of what the smallest messages carry are flags (LL), which arrive sooner: tree all-reduce on two hosts of 8 H100 has
// 25.2 against 48.5 us and 19.5 against 146.8 GB/s in NCCL 2.30's own table.
constexpr double kFlagStart = 25.2 / 48.5;
constexpr double kFlagShare = 19.5 / 146.8;

/// All times in microseconds, all rates in bytes per microsecond.
class Model {
 public:
  Model(const NcclCommunicator& c, Collective collective, double bytes)
      : c_(c), collective_(collective), bytes_(bytes), n_(c.ranks()) {}

  double Time() const {
    const double ring = RingBus() / BusBandwidthFactor(collective_, c_.ranks());
    const double share = std::max(1e-9, c_.hosts > 1 ? c_.network.fast_share : c_.link.fast_share);
    const double steps = collective_ == Collective::kSendRecv ? 0.5 : 1;
    const double start = Hops() + c_.link.base + 2 * (c_.gpus_per_host - 1) * c_.link.step_fast * steps;
    const double fast = std::min(start + bytes_ / (share * ring),
                                 kFlagStart * start + bytes_ / (kFlagShare * share * ring));
    double bulk = Hops() + c_.link.base + 2 * (n_ - 1) * c_.link.step_bulk * steps + bytes_ / ring;
    if (c_.link.switch_bus > 0 && collective_ == Collective::kAllReduce && c_.gpus_per_host > 1) {
      bulk = std::min(bulk, c_.link.switch_start + Hops() + bytes_ / SwitchRate());
    }
    return std::min(fast, bulk);
  }

 private:
  double Hops() const { return c_.hosts > 1 ? 2 * std::ceil(std::log2(c_.hosts)) * c_.network.hop : 0; }

  /// What the host's NICs carry: one per GPU at most.
  double NicRate() const {
    const double nics = std::min(c_.nics_per_host, c_.gpus_per_host);
    return nics * c_.nic_rate.bytes_per_second() / 1e6 * c_.network.efficiency;
  }

  /// What each member of a ring sends on average is bounded by every GPU's links and by the NICs of the host, which carry
  /// the ring once. All-to-all sends (n-p)/n of each GPU's data out, by p GPUs at a time.
  double RingBus() const {
    const double inside = c_.gpus_per_host > 1 ? c_.link.bus * 1e3 : 1e12;
    if (c_.hosts == 1) return inside;
    const bool reduces = collective_ == Collective::kAllReduce || collective_ == Collective::kReduceScatter;
    double nics = NicRate() * (reduces ? 1 : c_.network.gather_share);
    if (collective_ == Collective::kAllToAll) nics *= (n_ - 1) / (n_ - c_.gpus_per_host) / c_.gpus_per_host;
    if (collective_ == Collective::kSendRecv) nics /= c_.gpus_per_host;
    return std::min(inside, nics);
  }

  double SwitchRate() const {
    const double inside = c_.link.switch_bus * 1e3 / BusBandwidthFactor(Collective::kAllReduce, c_.gpus_per_host);
    // Between hosts the sum passes the switch's ports once more: 0.92 of the rate, in H100 runs on two hosts.
    return c_.hosts == 1 ? inside : std::min(0.92 * inside, NicRate());
  }

  const NcclCommunicator& c_;
  Collective collective_;
  double bytes_, n_;
};

}  // namespace

std::span<const EfficiencyConstants> EfficiencyTable() { return kEfficiency; }

Result<HostLinkConstants> FindHostLink(std::string_view name) { return Find(kHostLinks, name, "host link"); }
Result<NetworkConstants> FindNetwork(std::string_view name) { return Find(kNetworks, name, "network"); }

Seconds MeasuredNcclTime(const NcclCommunicator& communicator, Collective collective, Bytes bytes) {
  if (communicator.ranks() <= 1) return Seconds(0);
  return Seconds(1e-6 * Model(communicator, collective, static_cast<double>(bytes.count())).Time());
}

double Efficiency(const EfficiencyConstants& constants, int32_t ranks, Bytes bytes) {
  const double mib = static_cast<double>(bytes.count()) / (1 << 20);
  return 1 / (1 / constants.limit + (constants.fixed_mib + constants.per_rank_mib * ranks) / mib);
}

}  // namespace weft::planner::collectives
