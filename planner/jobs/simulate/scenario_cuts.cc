#include "planner/jobs/simulate/scenario_cuts.h"

#include <algorithm>
#include <map>

namespace weft::planner::inline jobs {
namespace {

/// What flows send over each cut in one burst, or, without, in an iteration.
std::vector<CutLoad> LoadsOf(const FabricCuts& cuts, const std::vector<ScenarioFlow>& flows, const size_t* burst) {
  std::vector<CutTransfer> transfers;
  for (const ScenarioFlow& flow : flows) {
    const Bytes bytes = burst == nullptr ? flow.bytes : flow.per_burst[*burst];
    if (bytes.count() > 0) transfers.push_back({flow.from, flow.to, static_cast<double>(bytes.count())});
  }
  return cuts.Loads(transfers);
}

BoundWay WayOf(const FabricCuts& cuts, const RoutableJob& routable, const std::vector<ScenarioFlow>& flows) {
  BoundWay way{.compute = routable.compute, .release = routable.release, .bursts = routable.bursts, .loads = LoadsOf(cuts, flows, nullptr),
               .burst_loads = {}};
  for (size_t b = 0; b < way.bursts.size(); ++b) way.burst_loads.push_back(LoadsOf(cuts, flows, &b));
  return way;
}

/// Links of the flow's first path that are on all others too.
std::vector<LinkId> ForcedLinks(const RoutableFlow& flow) {
  std::vector<LinkId> forced;
  for (const LinkId link : flow.paths[0].links) {
    const bool everywhere = std::ranges::all_of(flow.paths, [&](const CandidatePath& path) {
      return std::ranges::find(path.links, link) != path.links.end();
    });
    if (everywhere) forced.push_back(link);
  }
  return forced;
}

}  // namespace

ScenarioCuts::ScenarioCuts(const Scenario& scenario, const PreparedScenario& prepared) : cuts_(scenario.topology) {
  for (size_t j = 0; j < prepared.jobs.size(); ++j) {
    BoundJob& job = jobs_.emplace_back();
    job.work = scenario.jobs[j].work;
    const std::vector<PreparedWay>& ways = prepared.jobs[j].ways;
    if (ways.empty()) continue;
    job.gpus = ways[0].routable.gpus;
    job.alone = prepared.jobs[j].alone();
    for (size_t w = 0; w < ways.size(); ++w) {
      job.ways.push_back(WayOf(cuts_, ways[w].routable, w == 0 ? scenario.jobs[j].flows : scenario.jobs[j].others[w - 1].flows));
    }
  }
  AddForcedLinks(prepared);
}

void ScenarioCuts::AddForcedLinks(const PreparedScenario& prepared) {
  std::map<int32_t, size_t> index;
  for (size_t j = 0; j < prepared.jobs.size(); ++j) {
    for (size_t w = 0; w < prepared.jobs[j].ways.size(); ++w) {
      BoundWay& way = jobs_[j].ways[w];
      std::map<size_t, double> bytes;
      std::vector<std::map<size_t, double>> per_burst(way.bursts.size());
      for (const RoutableFlow& flow : prepared.jobs[j].ways[w].routable.flows) {
        for (const LinkId link : ForcedLinks(flow)) {
          const auto [known, added] = index.try_emplace(link.value(), 2 * cuts_.cuts().size() + forced_.size());
          if (added) forced_.push_back(link);
          bytes[known->second] += static_cast<double>(flow.bytes.count());
          for (size_t b = 0; b < flow.per_burst.size(); ++b) per_burst[b][known->second] += static_cast<double>(flow.per_burst[b].count());
        }
      }
      for (const auto& [cut, sent] : bytes) {
        if (sent > 0) way.loads.push_back({cut, sent});
      }
      for (size_t b = 0; b < per_burst.size(); ++b) {
        for (const auto& [cut, sent] : per_burst[b]) {
          if (sent > 0) way.burst_loads[b].push_back({cut, sent});
        }
      }
    }
  }
}

std::vector<BitsPerSecond> ScenarioCuts::Capacities(std::span<const BitsPerSecond> links) const {
  std::vector<BitsPerSecond> capacity = cuts_.Capacities(links);
  for (const LinkId link : forced_) capacity.push_back(links[link.index()]);
  return capacity;
}

}  // namespace weft::planner::jobs
