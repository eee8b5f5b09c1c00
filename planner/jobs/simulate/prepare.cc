#include "planner/jobs/simulate/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {
namespace {

constexpr int32_t kMostClasses = 64, kMostDraws = 1000;

tl::unexpected<Error> Wrong(std::string message) { return Fail(Code::kInvalidArgument, std::move(message)); }

bool Finite(Seconds time) { return std::isfinite(time.count()) && time.count() >= 0; }

Status CheckRestart(const Scenario& scenario, const ScenarioRestart& restart, size_t number) {
  const auto wrong = [&](const std::string& what) { return Wrong(fmt::format("restart {} of job \"{}\": {}", number, restart.job, what)); };
  const auto job = std::ranges::find(scenario.jobs, restart.job, &ScenarioJob::name);
  if (job == scenario.jobs.end()) return wrong("must be a job of the scenario");
  if (!job->sizes.empty()) return wrong("it waits for hosts, must be a job of given hosts");
  if (!Finite(restart.at) || restart.at < job->arrival || restart.at >= scenario.duration) {
    return wrong(fmt::format("at {} s, must be from its arrival, {} s, on and before the end, {} s", restart.at.count(), job->arrival.count(),
                             scenario.duration.count()));
  }
  if (restart.way == job->way) return Ok();
  if (std::ranges::find(job->others, restart.way, &ScenarioWay::name) != job->others.end()) return Ok();
  std::string ways = job->way;
  for (const ScenarioWay& way : job->others) ways += ", " + way.name;
  return wrong(fmt::format("way \"{}\", must be one of {}", restart.way, ways));
}

Status CheckScenario(const Scenario& scenario) {
  if (scenario.jobs.empty()) return Wrong("0 jobs, must be at least 1");
  if (!Finite(scenario.duration) || scenario.duration.count() == 0) {
    return Wrong(fmt::format("duration {} s, must be positive", scenario.duration.count()));
  }
  if (!Finite(scenario.restart)) return Wrong(fmt::format("restart {} s, must not be negative", scenario.restart.count()));
  if (scenario.classes < 1 || scenario.classes > kMostClasses) {
    return Wrong(fmt::format("{} classes, must be 1 to {}", scenario.classes, kMostClasses));
  }
  if (scenario.draws < 1 || scenario.draws > kMostDraws) {
    return Wrong(fmt::format("{} draws, must be 1 to {}", scenario.draws, kMostDraws));
  }
  if (scenario.restarts.size() > kMostRestarts) {
    return Wrong(fmt::format("{} restarts, must be at most {}", scenario.restarts.size(), kMostRestarts));
  }
  for (size_t i = 0; i < scenario.restarts.size(); ++i) WEFT_RETURN_IF_ERROR(CheckRestart(scenario, scenario.restarts[i], i + 1));
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    const ScenarioFault& fault = scenario.faults[i];
    if (!fault.link.valid() || fault.link.index() >= scenario.topology.links().size()) {
      return Wrong(fmt::format("fault {}: link {}, must be one of the topology's {}", i + 1, fault.link.value(),
                               scenario.topology.links().size()));
    }
    const double rate = fault.capacity.value();
    if (!Finite(fault.at) || !std::isfinite(rate) || rate < 0) {
      return Wrong(fmt::format("fault {} of link {}: {} bits/s at {} s, neither may be negative or infinite", i + 1,
                               scenario.topology.LinkName(fault.link), rate, fault.at.count()));
    }
  }
  return Ok();
}

Status CheckFlow(const Topology& topology, const ScenarioFlow& flow) {
  for (const NodeId end : {flow.from, flow.to}) {
    if (!end.valid() || end.index() >= topology.nodes().size()) {
      return Wrong(fmt::format("node {}, must be one of the topology's {}", end.value(), topology.nodes().size()));
    }
    const Node& node = topology.node(end);
    if (node.kind != NodeKind::kHost && node.kind != NodeKind::kGpu) {
      return Wrong(fmt::format("node \"{}\" is no host and no GPU", node.name));
    }
  }
  if (flow.from == flow.to) return Wrong(fmt::format("from \"{}\" to itself", topology.node(flow.from).name));
  if (flow.bytes.count() <= 0) return Wrong(fmt::format("{} bytes, must be positive", flow.bytes.count()));
  return Ok();
}

Status CheckBursts(const ScenarioWay& way) {
  if (way.bursts.size() > kMostBursts) return Wrong(fmt::format("{} bursts, must be at most {}", way.bursts.size(), kMostBursts));
  BurstTimes before;
  for (size_t b = 0; b < way.bursts.size(); ++b) {
    const BurstTimes& burst = way.bursts[b];
    if (!Finite(burst.release) || burst.release < before.release) {
      return Wrong(fmt::format("burst {}: release {} s, must be at least the {} s of the burst before", b + 1, burst.release.count(),
                               before.release.count()));
    }
    const Seconds least = std::max(before.needed, burst.release);
    if (!Finite(burst.needed) || burst.needed < least || burst.needed > way.compute) {
      return Wrong(fmt::format("burst {}: needed {} s, must be {} s to the compute of {} s", b + 1, burst.needed.count(),
                               least.count(), way.compute.count()));
    }
    before = burst;
  }
  for (size_t f = 0; f < way.flows.size(); ++f) {
    const std::vector<Bytes>& parts = way.flows[f].per_burst;
    if (parts.size() != way.bursts.size()) {
      return Wrong(fmt::format("flow {}: bytes of {} bursts, must be those of all {}", f + 1, parts.size(), way.bursts.size()));
    }
    if (parts.empty()) continue;
    Bytes left = way.flows[f].bytes;
    for (const Bytes part : parts) {
      left = part.count() >= 0 && part <= left ? left - part : Bytes(-1);
      if (left.count() < 0) break;
    }
    if (left.count() != 0) {
      return Wrong(fmt::format("flow {}: bursts do not add up to its {} bytes", f + 1, way.flows[f].bytes.count()));
    }
  }
  return Ok();
}

Status CheckWay(const Topology& topology, const ScenarioWay& way) {
  if (!Finite(way.compute)) return Wrong(fmt::format("compute {} s, must not be negative", way.compute.count()));
  if (way.bursts.empty() && (!Finite(way.release) || way.release > way.compute)) {
    return Wrong(fmt::format("release {} s, must be 0 to its compute of {} s", way.release.count(), way.compute.count()));
  }
  WEFT_RETURN_IF_ERROR(CheckBursts(way));
  if (way.flows.empty() && way.compute.count() == 0) return Wrong("neither computes nor sends");
  Bytes left = kMostJobBytes;
  for (size_t f = 0; f < way.flows.size(); ++f) {
    const Status checked = CheckFlow(topology, way.flows[f]);
    if (!checked) return Fail(checked.error().WithContext(fmt::format("flow {}", f + 1)));
    if (way.flows[f].bytes > left) {
      return Wrong(fmt::format("flow {}: {} bytes, all flows of a job together must be at most {}", f + 1,
                               way.flows[f].bytes.count(), kMostJobBytes.count()));
    }
    left -= way.flows[f].bytes;
  }
  return Ok();
}

Status CheckJob(const Scenario& scenario, const ScenarioJob& job) {
  if (!(job.gpus > 0) || !std::isfinite(job.gpus)) return Wrong(fmt::format("{} GPUs, must be positive", job.gpus));
  if (!(job.work >= 0) || !std::isfinite(job.work)) return Wrong(fmt::format("{} GPU seconds of work, must not be negative", job.work));
  if (!Finite(job.arrival) || job.arrival >= scenario.duration) {
    return Wrong(fmt::format("arrival {} s, must be 0 to below the duration of {} s", job.arrival.count(),
                             scenario.duration.count()));
  }
  if (job.iterations < 0) return Wrong(fmt::format("{} iterations, must not be negative", job.iterations));
  if (!Finite(job.deadline)) return Wrong(fmt::format("deadline {} s, must not be negative", job.deadline.count()));
  if (job.deadline.count() > 0 && job.iterations == 0) return Wrong("a deadline without a number of iterations, must have both");
  for (const size_t place : job.places) {
    if (place >= scenario.places.size()) return Wrong(fmt::format("place {}, must be one of {}", place, scenario.places.size()));
  }
  if (job.others.size() >= kMostWays) {
    return Wrong(fmt::format("{} ways to run it, must be at most {}", job.others.size() + 1, kMostWays));
  }
  return Ok();
}

/// All ways to run the job, its own first.
std::vector<ScenarioWay> WaysOf(const ScenarioJob& job) {
  std::vector<ScenarioWay> ways{{job.way, job.compute, job.release, job.flows, job.bursts}};
  ways.insert(ways.end(), job.others.begin(), job.others.end());
  return ways;
}

Status CheckSizes(const Scenario& scenario, const ScenarioJob& job) {
  if (!job.flows.empty() || !job.others.empty()) return Wrong("flows or ways beside sizes, must have only those of its sizes");
  if (job.sizes.size() > kMostSizes) return Wrong(fmt::format("{} sizes, must be at most {}", job.sizes.size(), kMostSizes));
  int32_t before = 0;
  for (const ScenarioSize& size : job.sizes) {
    if (size.hosts <= before || static_cast<size_t>(size.hosts) > scenario.places.size()) {
      return Wrong(fmt::format("a size of {} hosts, must be more than the {} of the one before, at most the {} places", size.hosts, before,
                               scenario.places.size()));
    }
    if (!(size.gpus > 0) || !std::isfinite(size.gpus)) return Wrong(fmt::format("a size of {} GPUs, must be positive", size.gpus));
    if (size.ways.empty() || size.ways.size() > kMostWays) {
      return Wrong(fmt::format("{} ways on {} hosts, must be 1 to {}", size.ways.size(), size.hosts, kMostWays));
    }
    before = size.hosts;
  }
  return Ok();
}

Result<PreparedScenario> PrepareAll(const Scenario& scenario) {
  WEFT_RETURN_IF_ERROR(CheckScenario(scenario));
  JobPreparer preparer(scenario);
  PreparedScenario made{.best_capacity = preparer.best_capacity()};
  std::set<std::string> names;
  for (const ScenarioJob& job : scenario.jobs) {
    if (!names.insert(job.name).second) return Wrong(fmt::format("job \"{}\" appears twice", job.name));
    Result<PreparedJob> prepared = preparer.Prepare(job);
    if (!prepared) return Fail(prepared.error().WithContext(fmt::format("job \"{}\"", job.name)));
    made.jobs.push_back(std::move(*prepared));
  }
  return made;
}

}  // namespace

JobPreparer::JobPreparer(const Scenario& scenario) : scenario_(scenario), topology_(scenario.topology) {
  for (const Link& link : topology_.links()) best_capacity_.push_back(link.capacity);
  for (const ScenarioFault& fault : scenario.faults) {
    BitsPerSecond& best = best_capacity_[fault.link.index()];
    best = std::max(best, fault.capacity);
  }
  for (size_t l = 0; l < best_capacity_.size(); ++l) {
    topology_.SetHealth(LinkId(static_cast<int32_t>(l)), LinkHealth::kUp);
    topology_.SetCapacity(LinkId(static_cast<int32_t>(l)), best_capacity_[l]);
  }
}

Result<PreparedJob> JobPreparer::Prepare(const ScenarioJob& job) {
  WEFT_RETURN_IF_ERROR(CheckJob(scenario_, job));
  PreparedJob made{.key = KeyOf(job.name)};
  if (job.sizes.empty()) {
    WEFT_RETURN_IF_ERROR(PrepareWays(job.gpus, job.work, WaysOf(job), &made));
    return made;
  }
  WEFT_RETURN_IF_ERROR(CheckSizes(scenario_, job));
  for (const ScenarioSize& size : job.sizes) {
    PreparedJob sized;
    const Status prepared = PrepareWays(size.gpus, job.work, size.ways, &sized);
    if (!prepared) return Fail(prepared.error().WithContext(fmt::format("on {} hosts", size.hosts)));
    made.size_alone.push_back(sized.alone());
  }
  return made;
}

Status JobPreparer::PrepareWays(double gpus, double work, const std::vector<ScenarioWay>& ways, PreparedJob* made) {
  for (const ScenarioWay& way : ways) {
    Result<PreparedWay> prepared = PrepareWay(gpus, work, way);
    if (!prepared) return Fail(made->ways.empty() ? prepared.error() : prepared.error().WithContext(fmt::format("way \"{}\"", way.name)));
    made->ways.push_back(std::move(*prepared));
    if (made->ways.back().alone < made->alone()) made->best = made->ways.size() - 1;
  }
  return Ok();
}

Result<std::vector<CandidatePath>> JobPreparer::PathsBetween(NodeId from, NodeId to) {
  const auto [at, added] = paths_.try_emplace({from.value(), to.value()});
  if (!added) return at->second;
  for (auto& links : scenario_.topology.ShortestPaths(from, to)) at->second.push_back({std::move(links)});
  const auto alive = [&](const CandidatePath& path) {
    return std::all_of(path.links.begin(), path.links.end(), [&](LinkId link) { return best_capacity_[link.index()].value() > 0; });
  };
  if (at->second.empty() || std::none_of(at->second.begin(), at->second.end(), alive)) {
    return Wrong(fmt::format("from \"{}\" to \"{}\": {}", scenario_.topology.node(from).name,
                             scenario_.topology.node(to).name,
                             at->second.empty() ? "no path" : "no path that ever has capacity on all of its links"));
  }
  return at->second;
}

Result<PreparedWay> JobPreparer::PrepareWay(double gpus, double work, const ScenarioWay& way) {
  WEFT_RETURN_IF_ERROR(CheckWay(scenario_.topology, way));
  if (work > gpus * way.compute.count()) {
    return Wrong(fmt::format("{} GPU seconds of work, must be at most the {} that its GPUs compute", work, gpus * way.compute.count()));
  }
  PreparedWay made;
  made.routable = {.gpus = gpus, .compute = way.compute, .release = way.release, .flows = {}};
  for (size_t f = 0; f < way.flows.size(); ++f) {
    Result<std::vector<CandidatePath>> paths = PathsBetween(way.flows[f].from, way.flows[f].to);
    if (!paths) return Fail(paths.error().WithContext(fmt::format("flow {}", f + 1)));
    made.routable.flows.push_back({way.flows[f].bytes, std::move(*paths), way.flows[f].per_burst});
    AddSplits(&made.routable.flows.back(), best_capacity_);
  }
  made.routable.bursts = way.bursts;
  const PeriodicJob best = BestAlone(topology_, made.routable);
  made.alone = IterationAlone(best_capacity_, best);
  // The one burst that stands for several ends with the iteration, as they do.
  if (!way.bursts.empty()) {
    made.routable.release = std::clamp(made.alone - CommunicationAlone(best_capacity_, best), Seconds(0), way.compute);
  }
  return made;
}

Result<PreparedScenario> Prepare(const Scenario& scenario) {
  Result<PreparedScenario> prepared = PrepareAll(scenario);
  if (!prepared) return Fail(prepared.error().WithContext(fmt::format("scenario \"{}\"", scenario.name)));
  return prepared;
}

std::vector<size_t> UsablePaths(const RoutableFlow& flow, std::span<const BitsPerSecond> capacity) {
  std::vector<size_t> usable, all;  // the whole ones first, as they are
  for (size_t p = 0; p < flow.paths.size(); ++p) {
    const std::vector<LinkId>& links = flow.paths[p].links;
    all.push_back(p);
    if (std::all_of(links.begin(), links.end(), [&](LinkId l) { return capacity[l.index()].value() > 0; })) {
      usable.push_back(p);
    }
  }
  return usable.empty() ? all : usable;
}

}  // namespace weft::planner::jobs
