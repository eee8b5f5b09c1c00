#include "cli/demo/bound.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"
#include "common/parse_units.h"

namespace weft::cli {
namespace {

using planner::Topology;

NodeId Find(const Topology& topology, const std::string& name) {
  const auto node = topology.FindNode(name);
  WEFT_CHECK(node.has_value(), name);
  return *node;
}

void Limit(Topology& topology, const std::string& from, const std::string& to, BitsPerSecond by, double factor) {
  const auto link = topology.FindLink(Find(topology, from), Find(topology, to));
  WEFT_CHECK(link.has_value(), from + "->" + to);
  const BitsPerSecond left = topology.link(*link).capacity * factor - by;
  topology.SetCapacity(*link, std::max(left, BitsPerSecond(1)));
}

std::string LeafOf(const BoundFabric& fabric, const std::string& host) {
  return fmt::format("leaf{}", (std::stoi(host.substr(1)) - 1) / fabric.hosts_per_leaf + 1);
}

}  // namespace

Bound ComputeBound(const BoundFabric& fabric, const std::vector<BoundJob>& jobs,
                   const std::vector<CableFactor>& cables, const std::vector<ForeignFlow>& foreign) {
  planner::FlowProblem problem;
  problem.topology =
      planner::LeafSpine(fabric.leaves, fabric.spines, fabric.hosts_per_leaf, fabric.goodput);
  for (const CableFactor& cable : cables) {
    const std::string leaf = fmt::format("leaf{}", cable.leaf), spine = fmt::format("spine{}", cable.spine);
    Limit(problem.topology, leaf, spine, BitsPerSecond(0), cable.factor);
    Limit(problem.topology, spine, leaf, BitsPerSecond(0), cable.factor);
  }
  for (const ForeignFlow& flow : foreign) {
    const std::string spine = fmt::format("spine{}", flow.spine);
    Limit(problem.topology, LeafOf(fabric, flow.from), spine, flow.rate, 1);
    Limit(problem.topology, spine, LeafOf(fabric, flow.to), flow.rate, 1);
  }
  uint64_t key = 1;
  for (const BoundJob& job : jobs) {
    for (size_t rank = 0; rank < job.hosts.size(); ++rank) {
      planner::FlowDemand demand;
      demand.key = key++;
      demand.job = job.name;
      demand.demand = fabric.goodput;
      const NodeId from = Find(problem.topology, job.hosts[rank]);
      const NodeId to = Find(problem.topology, job.hosts[(rank + 1) % job.hosts.size()]);
      for (auto& path : problem.topology.ShortestPaths(from, to)) demand.paths.push_back({std::move(path)});
      problem.flows.push_back(std::move(demand));
    }
  }
  Bound bound;
  bound.utilisation = planner::ChoosePaths(problem).bottleneck_bound;
  bound.rate = fabric.goodput / std::max(1.0, bound.utilisation);
  for (const BoundJob& job : jobs) {
    bound.iterations.push_back(planner::PredictIteration(job.iteration, bound.rate).iteration);
  }
  return bound;
}

std::string ExplainBound(const BoundJob& job, const Bound& bound) {
  const auto& it = job.iteration;
  const auto predicted = planner::PredictIteration(it, bound.rate);
  Bytes total;
  for (const auto& bucket : it.buckets) total += bucket.bytes;
  return fmt::format(
      "{}: bucket i starts at max(ready_i, end of i-1) and takes 2(n-1)/n S_i / rate; optimizer after the last; "
      "compute {} (of it {} after backward), {} in {} buckets, n = {}, rate = {} = goodput / {:.3f}: communication {}, "
      "iteration {}",
      job.name, FormatDuration(it.compute), FormatDuration(it.after_backward), FormatBytes(total), it.buckets.size(),
      it.ranks, FormatRate(bound.rate), std::max(1.0, bound.utilisation), FormatDuration(predicted.communication),
      FormatDuration(predicted.iteration));
}

}  // namespace weft::cli
