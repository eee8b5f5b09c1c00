#include "planner/collectives/reduction_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace weft::planner::inline collectives {
namespace {

/// Reduce-scatter and all-gather among the GPUs of a host.
Seconds InsideTime(const ReductionSite& site, Bytes bytes) {
  const int32_t g = site.gpus_per_host;
  if (g <= 1) return Seconds(0);
  return 2 * ((g - 1) * site.inside.latency + (bytes / site.inside.rate) * (g - 1) / g);
}

PlacedReduction OnGpus(const ReductionSite& site, Bytes bytes) {
  const int32_t h = site.hosts;
  const Seconds ring = 2 * (h - 1) * (site.nics.latency + (bytes / site.nics.rate) / h);
  return {ReductionPlace::kGpus, 0, ring, fmt::format("GPUs: a ring of {} hosts, {:.4g} ms", h, 1e3 * ring.count())};
}

/// k spare machines; 0: the hosts' own CPUs.
PlacedReduction OnCpus(const ReductionSite& site, int32_t k, Bytes bytes) {
  const int32_t h = site.hosts;
  const ServerShares shares = BestServerShares(h, k);
  const Seconds wire = SpareServerTime(h, k, bytes, site.nics.rate, site.nics.latency);
  const double busiest = std::max((h - 1) * shares.gpu_machine, h * shares.cpu_machine);
  const Seconds sums = (bytes / site.cpu_sum) * busiest;
  const Seconds latency = 2 * site.nics.latency;
  const ReductionPlace place = k > 0 ? ReductionPlace::kSpareCpus : ReductionPlace::kOwnCpus;
  return {place, k, std::max(wire, latency + sums),
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
  const bool inside = site.gpus_per_host == 1 || (site.gpus_per_host > 1 && site.inside.rate.value() > 0);
  if (site.hosts < 1 || !inside || !(site.nics.rate.value() > 0) || site.spare_machines < 0) {
    return Fail(Code::kInvalidArgument,
                fmt::format("place of a reduction: {} hosts of {} GPUs at {:g} bit/s inside and {:g} across, {} spare "
                            "machines, expected at least one host and GPU, positive rates and no less than 0 machines",
                            site.hosts, site.gpus_per_host, site.inside.rate.value(), site.nics.rate.value(),
                            site.spare_machines));
  }
  std::vector<PlacedReduction> places = {OnGpus(site, bytes)};
  if (site.cpu_sum.value() > 0) {
    places.push_back(OnCpus(site, 0, bytes));
    const int32_t k = std::min(site.spare_machines, site.hosts);
    if (k > 0) places.push_back(OnCpus(site, k, bytes));
  }
  if (site.switches.trees > 0 && site.switches.tree_rate.value() > 0) {
    WEFT_ASSIGN_OR_RETURN(const Seconds time, SwitchReductionTime(site.switches, 1, bytes, site.nics.rate));
    places.push_back({ReductionPlace::kSwitches, 0, time + 2 * site.nics.latency,
                      fmt::format("switches: {} trees, {:.4g} ms", site.switches.trees, 1e3 * time.count())});
  }
  for (PlacedReduction& place : places) place.time += InsideTime(site, bytes);
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
