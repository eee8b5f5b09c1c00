#include "controller/job_reduction.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/job_network.h"

namespace weft::controller {
namespace {

using planner::PlacedReduction;
using planner::ReductionPlace;

const PlacedReduction* Find(const std::vector<PlacedReduction>& places, ReductionPlace place) {
  const auto found = std::find_if(places.begin(), places.end(), [&](const auto& one) { return one.place == place; });
  return found == places.end() ? nullptr : &*found;
}

planner::ReductionSite SiteOf(const ReductionJob& job, const ReductionOptions& options) {
  planner::ReductionSite site;
  site.hosts = job.hosts;
  site.network = JobNetwork(job.cluster, job.ranks_per_host, job.node_rate,
                            job.nccl ? planner::CollectiveLibrary::kNccl : planner::CollectiveLibrary::kWeft);
  site.cpu_sum = options.cpu_sum;
  site.spare_machines = options.spare_machines;
  site.switches = options.switches;
  site.switches.trees = options.switches.trees > 0 ? 1 : 0;  // what one tree would be worth to it
  return site;
}

/// Whether one of the trees that are left goes to the job.
void DecideTree(const ReductionJob& job, const ReductionOptions& options, const std::vector<PlacedReduction>& places,
                ReductionDecision* decision) {
  const PlacedReduction* with = Find(places, ReductionPlace::kSwitches);
  if (with == nullptr) return;
  if (!job.nccl) {
    decision->why.push_back("reduction in the switches: not for weft-train, which sums on the hosts");
    return;
  }
  decision->has_switches = true;
  const PlacedReduction* without = Find(places, ReductionPlace::kGpus);
  const planner::TreeWish wish{.weight = static_cast<double>(job.hosts) * job.ranks_per_host, .without = without->time,
                               .with = with->time};
  const int32_t left = std::max(0, options.switches.trees - job.trees_held);
  decision->tree = planner::AssignTrees({&wish, 1}, left).front();
  const std::string gain = fmt::format("{:.4g} ms against {:.4g} ms on the GPUs", 1e3 * with->time.count(),
                                       1e3 * without->time.count());
  const std::string quota = fmt::format("{} of {} trees free", left, options.switches.trees);
  decision->why.push_back(fmt::format("reduction in the switches: {}; {}, {}",
                                      decision->tree ? "a tree is given to the job until it is released"
                                      : wish.with >= wish.without ? "no tree, the job would gain nothing"
                                                                  : "no tree is left",
                                      gain, quota));
}

}  // namespace

Result<ReductionDecision> DecideReduction(const ReductionJob& job, const ReductionOptions& options) {
  ReductionDecision decision;
  const planner::ReductionSite site = SiteOf(job, options);
  WEFT_ASSIGN_OR_RETURN(const std::vector<PlacedReduction> places, planner::PlaceReduction(site, job.gradients));
  if (places.size() == 1) return decision;  // there is nothing but GPUs
  DecideTree(job, options, places, &decision);
  const auto best = std::find_if(places.begin(), places.end(), [&](const PlacedReduction& place) {
    return place.place != ReductionPlace::kSwitches || decision.tree;
  });
  std::string text = fmt::format("sums of {} bytes of gradients: on the {}", job.gradients.count(),
                                 planner::ReductionPlaceName(best->place));
  for (const PlacedReduction& place : places) text += fmt::format("; {}", place.why);
  const bool on_cpus = best->place == ReductionPlace::kOwnCpus || best->place == ReductionPlace::kSpareCpus;
  if (on_cpus && (job.nccl || best->place == ReductionPlace::kSpareCpus)) {
    text += fmt::format("; {} can't, so that they stay on the GPUs", job.nccl ? "NCCL" : "weft-train");
  }
  decision.why.push_back(std::move(text));
  return decision;
}

void KeepTreeQuota(const std::string& job_id, const std::set<std::string>& holders, int32_t trees, v1::JobPlan* plan) {
  const auto tree = plan->mutable_environment()->find(kTreeVariable);
  if (tree == plan->mutable_environment()->end() || tree->second != "1") return;
  if (static_cast<int64_t>(holders.size() - holders.count(job_id)) < trees) return;
  tree->second = "0";
  plan->add_why("reduction in the switches: no tree after all: other jobs got the last ones while this one was planned");
}

Result<RankFabric> PlaceRanks(const planner::Topology& fabric, const std::vector<std::string>& hosts, int64_t per_host,
                              const planner::ClusterSpec& cluster) {
  using planner::LinkKind;
  using planner::NodeKind;
  RankFabric made;
  for (const std::string& host : hosts) {
    if (!fabric.FindNode(host)) return Fail(Code::kNotFound, fmt::format("no probe has shown host \"{}\" yet", host));
  }
  // A host that holds several ranks lets traffic through, as one rank's end it would not.
  for (const planner::Node& node : fabric.nodes()) {
    const bool holds = per_host > 1 && node.kind == NodeKind::kHost;
    made.topology.AddNode(node.name, holds ? NodeKind::kNic : node.kind);
  }
  for (const planner::Link& link : fabric.links()) {
    const LinkId id = made.topology.AddLink(link.from, link.to, link.line_rate, link.kind);
    made.topology.SetCapacity(id, link.capacity);
  }
  for (const std::string& host : hosts) {
    const NodeId node = *made.topology.FindNode(host);
    if (per_host == 1) {
      made.ranks.push_back(node);
      continue;
    }
    const NodeId inner = made.topology.AddNode(host + "/inner", NodeKind::kNvSwitch);
    for (int64_t i = 0; i < per_host; ++i) {
      const NodeId gpu = made.topology.AddNode(fmt::format("{}/{}", host, i), NodeKind::kGpu);
      made.topology.AddCable(gpu, inner, cluster.intra_node_rate, LinkKind::kNvlink);
      made.topology.AddCable(gpu, node, cluster.intra_node_rate, LinkKind::kPcie);
      made.ranks.push_back(gpu);
    }
  }
  return made;
}

}  // namespace weft::controller
