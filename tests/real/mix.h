// A mix of jobs with models: the strategies, paths and classes that `weft simulate` decides on under each policy, on the
// fabric. Here replayed in miniature, everything scaled to the fabric's rates; training.h has jobs that train.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/jobs/simulate/scenario.h"
#include "tests/real/experiment.h"

namespace weft::real {

struct MixOptions {
  std::string scenario;            ///< SCENARIO.yaml: a leaf-spine of plain hosts, jobs with models on two hosts each
  std::vector<planner::SimulationPolicy> policies;
  Installation installation;
  Seconds phase{5};                ///< measured, of each policy
  int draws = 1;                   ///< of the phases between jobs
};

/// What one policy made of it. Goodput as `weft simulate` has it.
struct MixOutcome {
  Outcome outcome;
  std::vector<std::string> strategies;   ///< per job
  std::vector<std::vector<std::string>> hosts;  ///< per job, in order of rank
  std::vector<Seconds> foretold;         ///< per job: its iteration as the simulation that decided has it
  double foretold_goodput = 0;
  Ending ending;
  double goodput = 0;                    ///< measured
  double simulated = 0;                  ///< with the phases that the jobs had
};

/// A leaf-spine of plain hosts.
struct Shape {
  int leaves = 0, spines = 0, hosts = 0;
  BitsPerSecond host_rate, spine_rate;

  /// A fabric of this shape whose hosts' links have that rate.
  testbed::FabricOptions At(BitsPerSecond rate, testbed::FabricOptions options) const;
};

/// Errors: kInvalidArgument for another fabric.
[[nodiscard]] Result<Shape> ShapeOf(const planner::Topology& topology);

/// One of a job's ways: 0 is the first, as ScenarioJob has it, k the (k-1)-th of its others.
planner::ScenarioWay WayOf(const planner::ScenarioJob& job, size_t way);

/// How a job runs in one of its ways.
using SpecMaker = std::function<JobSpec(size_t job, size_t way, const planner::SimulatedJob& simulated)>;

/// What `policy` decides for the scenario, on the fabric. `experiment` has all but the jobs. Errors: those of Simulate() and
/// Experiment.
[[nodiscard]] Result<MixOutcome> RunPolicy(ExperimentOptions experiment, const planner::Scenario& scenario,
                                           planner::SimulationPolicy policy, const SpecMaker& spec_of);

/// Calls `done` after each policy. Errors: those of the scenario; kInvalidArgument for one that is no such; those of Experiment.
[[nodiscard]] Result<std::vector<MixOutcome>> RunMix(const MixOptions& options, const std::function<void(const MixOutcome&)>& done);

/// One line per policy and job, the goodputs, and whether both orders agree: policies within `tie` of each other, relatively, count as equal.
std::string MixText(const std::vector<MixOutcome>& outcomes, double tie);

}  // namespace weft::real
