#include "planner/joint_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "planner/cluster/master.h"

namespace weft::planner {
namespace {

constexpr size_t kCutsNamed = 4;

BitsPerSecond Leaving(const Topology& topology, const std::vector<bool>& inside) {
  double sum = 0;
  for (const Link& link : topology.links()) {
    if (inside[link.from.index()] && !inside[link.to.index()]) sum += link.capacity.value();
  }
  return BitsPerSecond(sum);
}

/// Both directions of one set of nodes.
void AddBoth(const Topology& topology, const std::string& what, std::vector<bool> inside, std::vector<TierCut>* cuts) {
  std::vector<bool> outside(inside.size());
  for (size_t i = 0; i < inside.size(); ++i) outside[i] = !inside[i];
  const BitsPerSecond out = Leaving(topology, inside), in = Leaving(topology, outside);
  cuts->push_back({"out of " + what, std::move(inside), out});
  cuts->push_back({"into " + what, std::move(outside), in});
}

bool IsEndpoint(const Node& node) { return node.kind == NodeKind::kHost || node.kind == NodeKind::kGpu; }

/// Bytes per iteration of `job` that must cross `cut`, whatever path they take.
double BytesOver(const TierCut& cut, const JointJob& job) {
  double bytes = 0;
  for (const JointFlow& flow : job.flows) {
    if (cut.inside[flow.from.index()] && !cut.inside[flow.to.index()]) bytes += static_cast<double>(flow.bytes.count());
  }
  return bytes;
}

}  // namespace

std::vector<TierCut> TierCuts(const Topology& topology) {
  const size_t n = topology.nodes().size();
  std::vector<std::set<size_t>> neighbours(n);
  for (const Link& link : topology.links()) {
    neighbours[link.from.index()].insert(link.to.index());
    neighbours[link.to.index()].insert(link.from.index());
  }
  std::vector<TierCut> cuts;
  std::set<std::vector<bool>> seen;
  for (size_t i = 0; i < n; ++i) {
    const Node& node = topology.node(NodeId(static_cast<int32_t>(i)));
    std::vector<bool> inside(n, false);
    inside[i] = true;
    std::string what = node.name;
    if (!IsEndpoint(node)) {
      bool any = false;
      for (const size_t neighbour : neighbours[i]) {
        const bool hangs = IsEndpoint(topology.node(NodeId(static_cast<int32_t>(neighbour)))) &&
                           neighbours[neighbour].size() == 1;
        if (hangs) inside[neighbour] = any = true;
      }
      if (!any) continue;  // no traffic starts or ends there
      what = "the hosts of " + node.name;
    }
    if (std::find(inside.begin(), inside.end(), false) == inside.end()) continue;
    if (seen.insert(inside).second) AddBoth(topology, what, std::move(inside), &cuts);
  }
  return cuts;
}

Result<JointBound> BoundJointly(const JointProblem& problem, const std::vector<bool>& modelled) {
  const std::vector<TierCut> cuts = TierCuts(problem.topology);
  MasterProblem master;
  for (const TierCut& cut : cuts) master.cuts.push_back(cut.capacity);
  std::vector<std::vector<Configuration>> pools;
  JointBound bound;
  bound.alone.assign(problem.jobs.size(), Seconds(0));
  double gpus = 0;
  for (size_t j = 0; j < problem.jobs.size(); ++j) {
    if (!modelled[j]) continue;
    const JointJob& job = problem.jobs[j];
    Configuration configuration{.name = "as it runs", .gpus = std::max<int64_t>(1, job.gpus), .compute = job.compute,
                                .loads = {}};
    double longest = 0;
    for (size_t c = 0; c < cuts.size(); ++c) {
      const double bytes = BytesOver(cuts[c], job);
      if (bytes <= 0) continue;
      if (!(cuts[c].capacity.value() > 0)) {
        return Fail(Code::kFailedPrecondition,
                    fmt::format("bound: job \"{}\" sends {:.0f} bytes {}, which has no capacity", job.name, bytes, cuts[c].name));
      }
      configuration.loads.push_back({c, bytes});
      longest = std::max(longest, bytes / cuts[c].capacity.bytes_per_second());
    }
    configuration.iteration = std::max(job.compute, job.release + Seconds(longest));
    bound.alone[j] = configuration.iteration;
    gpus += static_cast<double>(configuration.gpus);
    master.jobs.push_back({.name = job.name});
    pools.push_back({std::move(configuration)});
  }
  if (pools.empty()) return bound;
  master.source = FromPools(std::move(pools));
  master.moves = 0;  // one configuration each: there is nothing to round
  WEFT_ASSIGN_OR_RETURN(const MasterAnswer answer, SolveMaster(master));
  bound.gpu_use = answer.bound / gpus;
  std::vector<size_t> order;
  for (size_t c = 0; c < cuts.size(); ++c) {
    if (answer.cut_price[c] > 0) order.push_back(c);
  }
  const auto worth = [&](size_t c) { return answer.cut_price[c] * cuts[c].capacity.bytes_per_second(); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return worth(a) > worth(b); });
  for (const size_t c : order) {
    if (bound.tight.size() == kCutsNamed) break;
    bound.tight.push_back(cuts[c].name);
  }
  return bound;
}

}  // namespace weft::planner
