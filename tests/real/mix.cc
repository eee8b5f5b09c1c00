#include "tests/real/mix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/scenario_models.h"
#include "formats/scenario_yaml.h"
#include "planner/fabric/testing/leaf_spine.h"

namespace weft::real {
namespace {

constexpr BitsPerSecond kHostRate = MegabitsPerSecond(40);
constexpr Seconds kMeanCompute{0.7};        // of the scaled jobs
constexpr Seconds kSimulated{120};          // for the decision
constexpr int32_t kFabricClasses = 2;

}  // namespace

planner::ScenarioWay WayOf(const planner::ScenarioJob& job, size_t way) {
  return way == 0 ? planner::ScenarioWay{job.way, job.compute, job.release, job.flows, job.bursts} : job.others[way - 1];
}

testbed::FabricOptions Shape::At(BitsPerSecond rate, testbed::FabricOptions options) const {
  options.leaves = leaves;
  options.spines = spines;
  options.hosts_per_leaf = hosts / leaves;
  options.link_rate = rate;
  options.spine_link_rate = rate * (spine_rate / host_rate);
  return options;
}

Result<Shape> ShapeOf(const planner::Topology& topology) {
  Shape shape;
  for (const planner::Node& node : topology.nodes()) {
    shape.leaves += node.name.starts_with("leaf") ? 1 : 0;
    shape.spines += node.name.starts_with("spine") ? 1 : 0;
    shape.hosts += node.kind == planner::NodeKind::kHost ? 1 : 0;
  }
  const auto rate = [&](const char* from, const char* to) {
    const auto a = topology.FindNode(from), b = topology.FindNode(to);
    const auto link = a && b ? topology.FindLink(*a, *b) : std::nullopt;
    return link ? topology.link(*link).line_rate : BitsPerSecond(0);
  };
  shape.host_rate = rate("h1", "leaf1");
  shape.spine_rate = rate("leaf1", "spine1");
  if (shape.host_rate.value() > 0 && shape.spine_rate.value() > 0 && shape.hosts % shape.leaves == 0) return shape;
  return Fail(Code::kInvalidArgument, "cluster: expected a leaf-spine of plain hosts");
}

namespace {

/// Both directions of a job of two hosts as a ring all-reduce sends them: the mean of the two.
Status Symmetric(std::vector<planner::ScenarioFlow>* flows, const std::string& job) {
  if (flows->size() != 2 || (*flows)[0].from != (*flows)[1].to || (*flows)[0].to != (*flows)[1].from) {
    return Fail(Code::kInvalidArgument, fmt::format("job \"{}\": {} flows, expected one each way between two hosts", job, flows->size()));
  }
  planner::ScenarioFlow &a = (*flows)[0], &b = (*flows)[1];
  a.bytes = b.bytes = Bytes(0);
  for (size_t i = 0; i < a.per_burst.size(); ++i) {
    a.per_burst[i] = b.per_burst[i] = Bytes((a.per_burst[i].count() + b.per_burst[i].count()) / 2);
    a.bytes += a.per_burst[i];
  }
  b.bytes = a.bytes;
  return Ok();
}

/// Times by `slower`, bytes so that they take as much longer on links of `goodput` in place of `rate`.
void Scale(double slower, double narrower, Seconds* compute, Seconds* release, std::vector<planner::ScenarioFlow>* flows,
           std::vector<planner::BurstTimes>* bursts) {
  *compute *= slower, *release *= slower;
  for (planner::BurstTimes& burst : *bursts) burst.release *= slower, burst.needed *= slower;
  for (planner::ScenarioFlow& flow : *flows) {
    flow.bytes = Bytes(0);
    for (Bytes& part : flow.per_burst) {
      // A ring of two ranks halves it: an even number.
      part = Bytes(2 * std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(part.count()) * slower * narrower / 2)));
      flow.bytes += part;
    }
  }
}

/// The scenario at the rates of the fabric, so that the mean compute is kMeanCompute.
Result<planner::Scenario> Miniature(planner::Scenario scenario, const Shape& shape, BitsPerSecond goodput) {
  double sum = 0;
  for (const planner::ScenarioJob& job : scenario.jobs) sum += job.compute.count();
  const double slower = kMeanCompute.count() * static_cast<double>(scenario.jobs.size()) / sum, narrower = goodput / shape.host_rate;
  for (planner::ScenarioJob& job : scenario.jobs) {
    WEFT_RETURN_IF_ERROR(Symmetric(&job.flows, job.name));
    Scale(slower, narrower, &job.compute, &job.release, &job.flows, &job.bursts);
    for (planner::ScenarioWay& way : job.others) {
      WEFT_RETURN_IF_ERROR(Symmetric(&way.flows, job.name));
      Scale(slower, narrower, &way.compute, &way.release, &way.flows, &way.bursts);
    }
    job.work *= slower * (1 - 1e-9);
    job.iterations = 0;
  }
  planner::Topology scaled = planner::LeafSpine(shape.leaves, shape.spines, shape.hosts / shape.leaves, goodput);
  for (size_t l = 0; l < scaled.links().size(); ++l) {
    const planner::Link& link = scaled.links()[l];
    const bool inner = scaled.node(link.from).kind == planner::NodeKind::kSwitch && scaled.node(link.to).kind == planner::NodeKind::kSwitch;
    if (inner) scaled.SetCapacity(LinkId(static_cast<int32_t>(l)), goodput * (shape.spine_rate / shape.host_rate));
  }
  // Nodes stand in another order there.
  const auto there = [&](NodeId node) { return *scaled.FindNode(scenario.topology.node(node).name); };
  for (planner::ScenarioJob& job : scenario.jobs) {
    for (planner::ScenarioFlow& flow : job.flows) flow.from = there(flow.from), flow.to = there(flow.to);
    for (planner::ScenarioWay& way : job.others) {
      for (planner::ScenarioFlow& flow : way.flows) flow.from = there(flow.from), flow.to = there(flow.to);
    }
  }
  scenario.topology = std::move(scaled);
  scenario.classes = kFabricClasses;
  scenario.windows = planner::ScenarioWindows::kNone;
  scenario.duration = kSimulated;
  return scenario;
}

/// Which of its ways a job ran: several may have one name and other hosts first.
Result<size_t> RanIn(const planner::Topology& topology, const planner::ScenarioJob& job, const planner::SimulatedJob& ran) {
  // Links of a divided flow's paths stand in no order.
  const auto fits = [&](const planner::ScenarioFlow& flow, const std::vector<LinkId>& path) {
    return std::ranges::any_of(path, [&](LinkId link) { return topology.link(link).from == flow.from; }) &&
           std::ranges::any_of(path, [&](LinkId link) { return topology.link(link).to == flow.to; });
  };
  for (size_t w = 0; w <= job.others.size(); ++w) {
    const planner::ScenarioWay way = WayOf(job, w);
    if (!ran.way.empty() && way.name != ran.way) continue;
    if (std::ranges::equal(way.flows, ran.paths, fits)) return w;
  }
  return Fail(Code::kInternal, fmt::format("job \"{}\" ran in none of its ways", job.name));
}

/// A job of two hosts in one of its ways, replayed.
JobSpec SpecOf(const planner::Scenario& scenario, const planner::ScenarioJob& job, size_t way) {
  const planner::ScenarioWay chosen = WayOf(job, way);
  JobSpec spec{.name = job.name,
               .hosts = {scenario.topology.node(chosen.flows[0].from).name, scenario.topology.node(chosen.flows[0].to).name},
               .compute = chosen.compute, .bytes = chosen.flows[0].bytes};
  for (size_t b = 0; b < chosen.bursts.size(); ++b) spec.bursts.push_back({chosen.bursts[b], chosen.flows[0].per_burst[b]});
  return spec;
}

/// The path of the model with the same links, by their names.
Result<size_t> PathLike(const Model& model, const planner::RoutableFlow& flow, const planner::Topology& topology, const std::vector<LinkId>& links) {
  std::set<std::string> names;
  for (const LinkId link : links) names.insert(topology.LinkName(link));
  for (size_t p = 0; p < flow.paths.size(); ++p) {
    std::set<std::string> here;
    for (const LinkId link : flow.paths[p].links) here.insert(model.topology.LinkName(link));
    if (here == names) return p;
  }
  return Fail(Code::kInternal, "a path of the simulation is none of the fabric's");
}

Result<Decision> DecisionOf(const Model& model, const planner::Scenario& scenario, const planner::SimulationReport& report) {
  Decision decision;
  for (size_t j = 0; j < report.jobs.size(); ++j) {
    decision.classes.push_back(report.jobs[j].traffic_class);
    decision.paths.emplace_back();
    for (size_t f = 0; f < report.jobs[j].paths.size(); ++f) {
      WEFT_ASSIGN_OR_RETURN(const size_t path, PathLike(model, model.jobs[j].flows[f], scenario.topology, report.jobs[j].paths[f]));
      decision.paths.back().push_back(path);
    }
  }
  return decision;
}

/// Goodput of jobs that iterate in these times.
double Goodput(const planner::Scenario& scenario, const std::function<Seconds(size_t)>& iteration) {
  double work = 0, gpus = 0;
  for (size_t j = 0; j < scenario.jobs.size(); ++j) {
    work += scenario.jobs[j].work / iteration(j).count();
    gpus += scenario.jobs[j].gpus;
  }
  return work / gpus;
}

}  // namespace

Result<MixOutcome> RunPolicy(ExperimentOptions experiment, const planner::Scenario& scenario, planner::SimulationPolicy policy,
                             const SpecMaker& spec_of) {
  WEFT_ASSIGN_OR_RETURN(const planner::SimulationReport report, planner::Simulate(scenario, policy));
  MixOutcome made;
  experiment.jobs.clear();
  for (size_t j = 0; j < scenario.jobs.size(); ++j) {
    const planner::SimulatedJob& ran = report.jobs[j];
    WEFT_ASSIGN_OR_RETURN(const size_t way, RanIn(scenario.topology, scenario.jobs[j], ran));
    experiment.jobs.push_back(spec_of(j, way, ran));
    made.strategies.push_back(WayOf(scenario.jobs[j], way).name);
    made.hosts.push_back(experiment.jobs.back().hosts);
    made.foretold.push_back(ran.iteration);
  }
  made.foretold_goodput = Goodput(scenario, [&](size_t j) { return made.foretold[j]; });
  experiment.divided = true;
  WEFT_ASSIGN_OR_RETURN(const auto running, Experiment::Start(experiment));
  WEFT_RETURN_IF_ERROR(running->Launch());
  WEFT_ASSIGN_OR_RETURN(const Decision decision, DecisionOf(running->model(), scenario, report));
  WEFT_ASSIGN_OR_RETURN(made.outcome, running->Run(std::string(planner::PolicyName(policy)), decision));
  WEFT_ASSIGN_OR_RETURN(made.ending, running->Finish());
  made.goodput = Goodput(scenario, [&](size_t j) { return made.outcome.jobs[j].measured; });
  made.simulated = Goodput(scenario, [&](size_t j) { return made.outcome.jobs[j].simulated; });
  return made;
}

Result<std::vector<MixOutcome>> RunMix(const MixOptions& options, const std::function<void(const MixOutcome&)>& done) {
  WEFT_ASSIGN_OR_RETURN(formats::ScenarioFile file, formats::ReadScenarioYaml(options.scenario));
  std::vector<cli::ModelPlan> plans;
  WEFT_ASSIGN_OR_RETURN(const bool feasible, cli::PlanModels(&file, nullptr, &plans));
  if (!feasible) return Fail(Code::kInvalidArgument, fmt::format("{}: a model fits nowhere", options.scenario));
  WEFT_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(file.scenario.topology));
  ExperimentOptions experiment;
  experiment.fabric = shape.At(kHostRate, experiment.fabric);
  experiment.installation = options.installation;
  // What a flow alone moves over a host's link: of two hosts below one leaf, so that only these count.
  experiment.jobs = {{.name = "alone", .hosts = {"h1", "h2"}, .compute = Seconds(0.1), .bytes = Bytes(400'000)}};
  WEFT_ASSIGN_OR_RETURN(auto measured, Experiment::Start(experiment));
  const BitsPerSecond goodput = measured->goodput();
  measured.reset();                      // its fabric makes room for the next one
  WEFT_ASSIGN_OR_RETURN(const planner::Scenario scenario, Miniature(std::move(file.scenario), shape, goodput));
  experiment.goodput = goodput;
  experiment.phase = options.phase;
  experiment.draws = options.draws;
  const auto spec_of = [&](size_t job, size_t way, const planner::SimulatedJob&) {
    return SpecOf(scenario, scenario.jobs[job], way);
  };
  std::vector<MixOutcome> outcomes;
  for (const planner::SimulationPolicy policy : options.policies) {
    WEFT_ASSIGN_OR_RETURN(MixOutcome made, RunPolicy(experiment, scenario, policy, spec_of));
    done(made);
    outcomes.push_back(std::move(made));
  }
  return outcomes;
}

std::string MixText(const std::vector<MixOutcome>& outcomes, double tie) {
  std::string text;
  size_t pairs = 0, agree = 0;
  for (const MixOutcome& one : outcomes) {
    for (size_t j = 0; j < one.outcome.jobs.size(); ++j) {
      const JobOutcome& job = one.outcome.jobs[j];
      text += fmt::format("{:14} {:4} class {}  over {:15} measured {:6.3f} s  simulated {:6.3f} s  {:+6.1f} %  {} iterations, {}\n", one.outcome.policy,
                          job.name, job.traffic_class, fmt::format("{}", fmt::join(job.spines, " ")), job.measured.count(), job.simulated.count(),
                          100 * job.error(), job.iterations, one.strategies[j]);
    }
    text += fmt::format("{:14} goodput measured {:.2f} %, simulated {:.2f} %\n", one.outcome.policy, 100 * one.goodput, 100 * one.simulated);
  }
  for (size_t a = 0; a < outcomes.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const double measured = outcomes[a].goodput / outcomes[b].goodput - 1, simulated = outcomes[a].simulated / outcomes[b].simulated - 1;
      if (std::abs(simulated) <= tie) continue;
      ++pairs;
      agree += (measured > 0) == (simulated > 0) ? 1 : 0;
    }
  }
  return text + fmt::format("of {} pairs of policies whose simulated goodput is more than {:g} % apart {} stand in the same order on the fabric\n", pairs,
                            100 * tie, agree);
}

}  // namespace weft::real
