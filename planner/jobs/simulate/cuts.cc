// The cuts of a scenario: around everything below a tier, and links that nothing can avoid.
#include <algorithm>
#include <map>
#include <numeric>

#include "planner/jobs/simulate/bounds.h"

namespace weft::planner::inline jobs {
namespace {

/// Hops of every node from the nearest host or GPU.
std::vector<int> Levels(const Topology& topology) {
  std::vector<int> level(topology.nodes().size(), -1);
  for (size_t n = 0; n < level.size(); ++n) {
    const NodeKind kind = topology.nodes()[n].kind;
    if (kind == NodeKind::kHost || kind == NodeKind::kGpu) level[n] = 0;
  }
  for (int round = 0;; ++round) {
    bool reached = false;
    for (const Link& link : topology.links()) {
      if (level[link.from.index()] != round || level[link.to.index()] >= 0) continue;
      level[link.to.index()] = round + 1;
      reached = true;
    }
    if (!reached) return level;
  }
}

/// The component of every node when only nodes up to `highest` are left; -1 for the others.
std::vector<int32_t> Components(const Topology& topology, const std::vector<int>& level, int highest) {
  std::vector<int32_t> parent(level.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t n) {
    while (parent[static_cast<size_t>(n)] != n) n = parent[static_cast<size_t>(n)];
    return n;
  };
  const auto inside = [&](NodeId n) { return level[n.index()] >= 0 && level[n.index()] <= highest; };
  for (const Link& link : topology.links()) {
    if (highest == 0 || !inside(link.from) || !inside(link.to)) continue;  // hosts by themselves first
    const int32_t a = root(link.from.value()), b = root(link.to.value());
    parent[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }
  std::vector<int32_t> component(level.size(), -1);
  for (size_t n = 0; n < level.size(); ++n) {
    const NodeId node(static_cast<int32_t>(n));
    if (inside(node)) component[n] = root(node.value());
  }
  return component;
}

/// Room for the bytes of all jobs, ways and bursts.
void MakeRoom(const PreparedScenario& prepared, ScenarioCut* cut) {
  if (!cut->bytes.empty()) return;
  for (const PreparedJob& job : prepared.jobs) {
    cut->bytes.emplace_back(job.ways.size(), 0);
    cut->bursts.emplace_back();
    for (const PreparedWay& way : job.ways) cut->bursts.back().emplace_back(way.routable.bursts.size(), 0);
  }
}

void Add(Bytes bytes, const std::vector<Bytes>& per_burst, size_t j, size_t w, ScenarioCut* cut) {
  cut->bytes[j][w] += static_cast<double>(bytes.count());
  for (size_t b = 0; b < per_burst.size(); ++b) cut->bursts[j][w][b] += static_cast<double>(per_burst[b].count());
}

/// The cuts around every component, outwards and inwards.
void AddTier(const Scenario& scenario, const PreparedScenario& prepared, const std::vector<int32_t>& component,
             std::vector<ScenarioCut>* cuts) {
  std::map<std::pair<int32_t, bool>, ScenarioCut> made;
  const auto each = [&](NodeId from, NodeId to, const auto& add) {
    const int32_t a = component[from.index()], b = component[to.index()];
    if (a == b) return;
    for (const auto& [part, out] : {std::pair{a, true}, std::pair{b, false}}) {
      if (part < 0) continue;
      ScenarioCut& cut = made[{part, out}];
      MakeRoom(prepared, &cut);
      add(&cut);
    }
  };
  for (size_t l = 0; l < scenario.topology.links().size(); ++l) {
    const Link& link = scenario.topology.links()[l];
    each(link.from, link.to, [&](ScenarioCut* cut) { cut->links.push_back(LinkId(static_cast<int32_t>(l))); });
  }
  const auto add = [&](const std::vector<ScenarioFlow>& flows, size_t j, size_t w) {
    for (const ScenarioFlow& flow : flows) {
      each(flow.from, flow.to, [&](ScenarioCut* cut) { Add(flow.bytes, flow.per_burst, j, w, cut); });
    }
  };
  for (size_t j = 0; j < scenario.jobs.size(); ++j) {
    add(scenario.jobs[j].flows, j, 0);
    for (size_t w = 0; w < scenario.jobs[j].others.size(); ++w) add(scenario.jobs[j].others[w].flows, j, w + 1);
  }
  for (auto& [part, cut] : made) cuts->push_back(std::move(cut));
}

/// Links that all paths of a flow cross.
void AddForcedLinks(const PreparedScenario& prepared, std::vector<ScenarioCut>* cuts) {
  std::map<int32_t, ScenarioCut> made;
  const auto add = [&](const RoutableFlow& flow, size_t j, size_t w) {
    for (const LinkId link : flow.paths[0].links) {
      const bool forced = std::all_of(flow.paths.begin(), flow.paths.end(), [&](const CandidatePath& path) {
        return std::find(path.links.begin(), path.links.end(), link) != path.links.end();
      });
      if (!forced) continue;
      ScenarioCut& cut = made[link.value()];
      cut.links = {link};
      MakeRoom(prepared, &cut);
      Add(flow.bytes, flow.per_burst, j, w, &cut);
    }
  };
  for (size_t j = 0; j < prepared.jobs.size(); ++j) {
    for (size_t w = 0; w < prepared.jobs[j].ways.size(); ++w) {
      for (const RoutableFlow& flow : prepared.jobs[j].ways[w].routable.flows) add(flow, j, w);
    }
  }
  for (auto& [link, cut] : made) cuts->push_back(std::move(cut));
}

}  // namespace

std::vector<ScenarioCut> MakeCuts(const Scenario& scenario, const PreparedScenario& prepared) {
  std::vector<ScenarioCut> cuts;
  if (scenario.topology.nodes().empty()) return cuts;
  const std::vector<int> level = Levels(scenario.topology);
  const int highest = *std::max_element(level.begin(), level.end());
  for (int tier = 0; tier < std::max(1, highest); ++tier) {
    AddTier(scenario, prepared, Components(scenario.topology, level, tier), &cuts);
  }
  AddForcedLinks(prepared, &cuts);
  std::erase_if(cuts, [](const ScenarioCut& cut) {
    return std::ranges::all_of(cut.bytes, [](const std::vector<double>& ways) {
      return std::ranges::all_of(ways, [](double bytes) { return bytes == 0; });
    });
  });
  return cuts;
}

}  // namespace weft::planner::jobs
