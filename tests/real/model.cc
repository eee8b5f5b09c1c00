#include "tests/real/model.h"

#include <algorithm>
#include <random>

#include "common/check.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/flows/priority.h"
#include "planner/flows/time_shift.h"

namespace weft::real {
namespace {

// A gated job must be able to catch up: its period is longer than it needs by this much.
constexpr double kPeriodMargin = 0.03;
// How late a burst may begin and still go at once, of the period. Whoever comes later waits for the next window and loses
// most of a period: right while jobs move into place, and dear once a rank has stumbled.
constexpr double kTightShare = 0.125, kWideShare = 0.5;
constexpr int32_t kClasses = 2;  // of the fabric

NodeId Find(const planner::Topology& topology, const std::string& name) {
  const auto node = topology.FindNode(name);
  WEFT_CHECK(node.has_value(), name);
  return *node;
}

/// A job that its gate holds to `period`: it waits before its first burst.
planner::PeriodicJob Held(const Model& model, planner::PeriodicJob job, Seconds period) {
  const Seconds wait = period - planner::IterationAlone(model.capacity, job);
  job.compute += wait;
  job.release += wait;
  for (planner::PeriodicBurst& burst : job.bursts) {
    burst.times.release += wait;
    burst.times.needed += wait;
  }
  return job;
}

std::vector<bool> Meeting(const std::vector<planner::PeriodicJob>& jobs) {
  std::vector<size_t> order(jobs.size());
  for (size_t j = 0; j < order.size(); ++j) order[j] = j;
  std::vector<bool> meets(jobs.size(), false);
  for (const planner::Contention& pair : planner::Contentions(jobs, order)) {
    meets[pair.first] = meets[pair.second] = true;
  }
  return meets;
}

}  // namespace

Model MakeModel(const testbed::FabricOptions& fabric, const std::vector<JobSpec>& jobs, BitsPerSecond goodput, bool divided) {
  Model model;
  model.topology = planner::LeafSpine(fabric.leaves, fabric.spines, fabric.hosts_per_leaf, goodput);
  const double uplink = fabric.spine_link_rate.value_or(fabric.link_rate) / fabric.host_link_rate.value_or(fabric.link_rate);
  for (size_t l = 0; l < model.topology.links().size(); ++l) {
    const planner::Link& link = model.topology.links()[l];
    const bool inner = model.topology.node(link.from).kind == planner::NodeKind::kSwitch && model.topology.node(link.to).kind == planner::NodeKind::kSwitch;
    if (inner) model.topology.SetCapacity(LinkId(static_cast<int32_t>(l)), goodput * uplink);
  }
  for (const planner::Link& link : model.topology.links()) model.capacity.push_back(link.capacity);
  for (const JobSpec& spec : jobs) {
    planner::RoutableJob job{.gpus = static_cast<double>(spec.hosts.size()), .compute = spec.compute,
                             .release = spec.compute, .flows = {}};
    for (const JobSpec::Flow& one : FlowsOf(spec)) {
      planner::RoutableFlow flow{.bytes = one.bytes, .paths = {}, .per_burst = one.per_burst};
      const NodeId from = Find(model.topology, spec.hosts[one.from]);
      const NodeId to = Find(model.topology, spec.hosts[one.to]);
      for (auto& path : model.topology.ShortestPaths(from, to)) flow.paths.push_back({std::move(path)});
      if (divided) planner::AddSplits(&flow, model.capacity);
      job.flows.push_back(std::move(flow));
    }
    for (const JobSpec::Burst& burst : spec.bursts) job.bursts.push_back(burst.times);
    model.jobs.push_back(std::move(job));
  }
  return model;
}

std::string SpineOf(const Model& model, size_t job, size_t flow, size_t path) {
  for (const LinkId link : model.jobs[job].flows[flow].paths[path].links) {
    const std::string& to = model.topology.node(model.topology.link(link).to).name;
    if (to.starts_with("spine")) return to;
  }
  return "";
}

planner::JobPaths AllOver(const Model& model, int spine) {
  const std::string wanted = "spine" + std::to_string(spine);
  planner::JobPaths paths;
  for (size_t j = 0; j < model.jobs.size(); ++j) {
    paths.emplace_back();
    for (size_t f = 0; f < model.jobs[j].flows.size(); ++f) {
      size_t path = 0;
      while (path + 1 < model.jobs[j].flows[f].paths.size() && SpineOf(model, j, f, path) != wanted) ++path;
      paths.back().push_back(path);
    }
  }
  return paths;
}

std::vector<planner::PeriodicJob> OnPaths(const Model& model, const planner::JobPaths& paths) {
  std::vector<planner::PeriodicJob> jobs;
  for (size_t j = 0; j < model.jobs.size(); ++j) jobs.push_back(planner::OnPaths(model.jobs[j], paths[j]));
  return jobs;
}

std::vector<int32_t> PlanClasses(const Model& model, const planner::JobPaths& paths) {
  const std::vector<planner::PeriodicJob> jobs = OnPaths(model, paths);
  return planner::ClassesByValue(jobs, planner::CorrectedIntensity(model.capacity, jobs), kClasses);
}

Shifts PlanShifts(const Model& model, const planner::JobPaths& paths) {
  std::vector<planner::PeriodicJob> jobs = OnPaths(model, paths);
  Shifts shifts{.period = Seconds(0), .gated = Meeting(jobs), .shift = {}, .tight = Seconds(0),
                .wide = Seconds(0), .score = 1};
  Seconds busy{0}, slowest{0};
  int64_t gated = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (!shifts.gated[j]) continue;
    ++gated;
    busy += planner::CommunicationAlone(model.capacity, jobs[j]);
    slowest = std::max(slowest, planner::IterationAlone(model.capacity, jobs[j]));
  }
  shifts.period = slowest * (1 + kPeriodMargin);
  shifts.tight = shifts.period * kTightShare;
  shifts.wide = shifts.period * kWideShare;
  const Seconds padding = gated > 0 ? std::max(Seconds(0), (shifts.period - busy) / static_cast<double>(gated)) : busy;
  std::vector<planner::ShiftJob> patterns;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const planner::PeriodicJob held = Held(model, jobs[j], shifts.period);
    planner::ShiftJob pattern = planner::PatternOf(model.capacity, shifts.gated[j] ? held : jobs[j]);
    if (!shifts.gated[j]) pattern.uses.clear();
    for (planner::LinkUse& use : pattern.uses) {
      // The padding goes before the burst: a burst ends with its period, and may not wrap around.
      planner::Burst& burst = use.bursts.front();
      burst.begin = std::max(Seconds(0), burst.begin - padding);
      for (planner::Burst& each : use.bursts) each.rate = model.capacity[use.link.index()];
    }
    patterns.push_back(std::move(pattern));
  }
  const planner::ShiftPlan plan = planner::PlanTimeShifts(model.capacity, patterns);
  shifts.shift = plan.shift;
  for (const planner::ShiftedLink& link : plan.links) shifts.score = std::min(shifts.score, link.score);
  return shifts;
}

Seconds FirstBurst(const Model& model, const planner::PeriodicJob& job, Seconds period) {
  return period - (planner::IterationAlone(model.capacity, job) - planner::TimesOf(job).front().release);
}

Shifts DrawPhases(const Model& model, const planner::JobPaths& paths, uint32_t seed) {
  const std::vector<planner::PeriodicJob> jobs = OnPaths(model, paths);
  Shifts shifts;
  shifts.gated.assign(jobs.size(), true);
  for (const planner::PeriodicJob& job : jobs) {
    shifts.period = std::max(shifts.period, planner::IterationAlone(model.capacity, job) * (1 + kPeriodMargin));
  }
  shifts.tight = shifts.wide = shifts.period * kTightShare;
  std::mt19937 random(seed);
  for (size_t j = 0; j < jobs.size(); ++j) {
    shifts.shift.push_back(shifts.period * (static_cast<double>(random()) / static_cast<double>(std::mt19937::max())));
  }
  return shifts;
}

std::vector<Seconds> Predict(const Model& model, const Decision& decision, const std::vector<Seconds>& starts,
                             Seconds horizon) {
  std::vector<planner::PeriodicJob> jobs = OnPaths(model, decision.paths);
  Seconds slowest{0};
  for (size_t j = 0; j < jobs.size(); ++j) {
    if (decision.shifts && decision.shifts->gated[j]) jobs[j] = Held(model, jobs[j], decision.shifts->period);
    jobs[j].start = starts[j];
    slowest = std::max(slowest, planner::IterationAlone(model.capacity, jobs[j]));
  }
  const planner::PeriodicSimulator simulator(model.capacity, jobs, {.warmup = 0, .measured = horizon / slowest});
  return simulator.Run(decision.classes).iteration;
}

}  // namespace weft::real
