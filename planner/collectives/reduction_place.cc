#include "planner/collectives/reduction_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace weft::planner::inline collectives {
namespace {

Group AllOf(const ReductionSite& site) { return {site.hosts * site.network.gpus_per_node, 1}; }

/// Of a host's NICs together.
BitsPerSecond HostRate(const ReductionSite& site) {
  return BitsPerSecond(8 * site.network.nic_rate * static_cast<double>(site.network.gpus_per_node));
}

PlacedReduction OnGpus(const ReductionSite& site, Bytes bytes) {
  const Seconds time(HierarchicalAllReduceTime(site.network, AllOf(site), static_cast<double>(bytes.count())));
  return {ReductionPlace::kGpus, 0, time, fmt::format("GPUs: between {} hosts, {:.4g} ms", site.hosts, 1e3 * time.count())};
}

/// The sum inside a host before, and the gather after what others do between hosts.
Seconds InsideTime(const ReductionSite& site, Bytes bytes) {
  return Seconds(2 * GatherTime(site.network, {site.network.gpus_per_node, 1}, static_cast<double>(bytes.count())));
}

PlacedReduction InSwitches(const ReductionSite& site, Bytes bytes) {
  GroupNetwork network = site.network;
  const double trees = site.switches.trees * site.switches.tree_rate.bytes_per_second();
  network.nic_rate = std::min(network.nic_rate, trees / static_cast<double>(network.gpus_per_node));
  const Seconds time = Seconds(SwitchSumTime(network, AllOf(site), static_cast<double>(bytes.count()))) +
                       2 * site.switches.levels * site.switches.hop_latency;
  return {ReductionPlace::kSwitches, 0, time, fmt::format("switches: {} trees, {:.4g} ms", site.switches.trees, 1e3 * time.count())};
}

/// k spare machines; 0: the hosts' own CPUs.
PlacedReduction OnCpus(const ReductionSite& site, int32_t k, Bytes bytes) {
  const int32_t h = site.hosts;
  const ServerShares shares = BestServerShares(h, k);
  const Seconds latency(2 * site.network.nic_latency);
  const Seconds wire = SpareServerTime(h, k, bytes, HostRate(site), Seconds(site.network.nic_latency));
  const double busiest = std::max((h - 1) * shares.gpu_machine, h * shares.cpu_machine);
  const Seconds sums = (bytes / site.cpu_sum) * busiest;
  const ReductionPlace place = k > 0 ? ReductionPlace::kSpareCpus : ReductionPlace::kOwnCpus;
  return {place, k, InsideTime(site, bytes) + std::max(wire, latency + sums),
          fmt::format("{}: {} machines, {:.4g} ms on the wire, {:.4g} ms of sums", ReductionPlaceName(place),
                      k > 0 ? k : h, 1e3 * wire.count(), 1e3 * sums.count())};
}

}  // namespace

std::string_view ReductionPlaceName(ReductionPlace place) {
  switch (place) {
    case ReductionPlace::kGpus: return "GPUs";
    case ReductionPlace::kOwnCpus: return "own CPUs";
    case ReductionPlace::kSpareCpus: return "spare CPUs";
    case ReductionPlace::kSwitches: return "switches";
  }
  return "";
}

Result<std::vector<PlacedReduction>> PlaceReduction(const ReductionSite& site, Bytes bytes) {
  const GroupNetwork& network = site.network;
  const bool inside = network.gpus_per_node == 1 || (network.gpus_per_node > 1 && network.intra_rate > 0);
  if (site.hosts < 1 || !inside || !(network.nic_rate > 0) || site.spare_machines < 0) {
    return Fail(Code::kInvalidArgument,
                fmt::format("place of a reduction: {} hosts of {} GPUs at {:g} byte/s inside and {:g} across, {} spare "
                            "machines, expected at least one host and GPU, positive rates and no less than 0 machines",
                            site.hosts, network.gpus_per_node, network.intra_rate, network.nic_rate, site.spare_machines));
  }
  std::vector<PlacedReduction> places = {OnGpus(site, bytes)};
  if (site.cpu_sum.value() > 0) {
    places.push_back(OnCpus(site, 0, bytes));
    const int32_t k = std::min(site.spare_machines, site.hosts);
    if (k > 0) places.push_back(OnCpus(site, k, bytes));
  }
  if (site.switches.trees > 0 && site.switches.tree_rate.value() > 0) {
    places.push_back(InSwitches(site, bytes));
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const PlacedReduction& a, const PlacedReduction& b) { return a.time < b.time; });
  return places;
}

std::vector<bool> AssignTrees(std::span<const TreeWish> jobs, int32_t trees) {
  const auto gain = [&](size_t j) { return jobs[j].weight * (jobs[j].without - jobs[j].with).count(); };
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return gain(a) > gain(b); });
  std::vector<bool> gets(jobs.size(), false);
  for (const size_t j : order) {
    if (trees <= 0 || !(gain(j) > 0)) break;
    gets[j] = true;
    --trees;
  }
  return gets;
}

}  // namespace weft::planner::collectives
