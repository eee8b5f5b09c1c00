#include "cli/demo/bound_ports.h"

#include <algorithm>
#include <map>

#include "common/check.h"

namespace weft::cli {
namespace {

constexpr int kLeaves = 2;

int NumberOf(const std::string& host) { return std::stoi(host.substr(1)) - 1; }

}  // namespace

BoundPorts::BoundPorts(const BoundFabric& fabric, const std::vector<CableFactor>& cables,
                       const std::vector<BackgroundFlow>& background)
    : hosts_per_leaf_(fabric.hosts_per_leaf) {
  const double goodput = fabric.goodput.bytes_per_second();
  rate_.assign(static_cast<size_t>(2 * kLeaves * hosts_per_leaf_), goodput);
  for (int from = 1; from <= kLeaves; ++from) {
    const int to = kLeaves + 1 - from;
    double cut = 0;
    for (int spine = 1; spine <= fabric.spines; ++spine) {
      double up = goodput, down = goodput;
      for (const CableFactor& cable : cables) {
        if (cable.spine != spine) continue;
        if (cable.leaf == from) up *= cable.factor;
        if (cable.leaf == to) down *= cable.factor;
      }
      for (const BackgroundFlow& flow : background) {
        if (flow.spine != spine || LeafOf(flow.from) != from || LeafOf(flow.to) != to) continue;
        up -= flow.rate.bytes_per_second();
        down -= flow.rate.bytes_per_second();
      }
      cut += std::max(0.0, std::min(up, down));
    }
    WEFT_CHECK(cut > 0, "a fabric that carries nothing");
    rate_.push_back(cut);
  }
}

int BoundPorts::LeafOf(const std::string& host) const { return NumberOf(host) / hosts_per_leaf_ + 1; }

planner::TaskCost BoundPorts::CostOf(std::span<const HostFlow> flows) const {
  struct Load {
    double bytes = 0, most = 0;  // of all flows, and of the largest
  };
  std::map<int32_t, Load> loads;
  const auto add = [&](int32_t port, double bytes) {
    Load& load = loads[port];
    load.bytes += bytes;
    load.most = std::max(load.most, bytes);
  };
  for (const HostFlow& flow : flows) {
    if (flow.from == flow.to) continue;
    add(2 * NumberOf(flow.from), flow.bytes);
    add(2 * NumberOf(flow.to) + 1, flow.bytes);
    const int leaf = LeafOf(flow.from);
    if (leaf != LeafOf(flow.to)) add(2 * kLeaves * hosts_per_leaf_ + leaf - 1, flow.bytes);
  }
  planner::TaskCost cost;
  for (const auto& [port, load] : loads) cost.duration = std::max(cost.duration, Seconds(load.bytes / rate_[static_cast<size_t>(port)]));
  if (cost.duration <= Seconds(0)) return cost;
  for (const auto& [port, load] : loads) {
    const double whole = rate_[static_cast<size_t>(port)] * cost.duration.count();
    cost.use.push_back({port, load.bytes / whole, load.most / whole});
  }
  return cost;
}

planner::TaskCost BoundPorts::OnCore(size_t job, Seconds took) const {
  return {.duration = took, .use = {{static_cast<int32_t>(rate_.size() + job), 1}}};
}

}  // namespace weft::cli
