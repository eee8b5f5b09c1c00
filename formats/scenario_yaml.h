// SCENARIO.yaml of `weft simulate`: a cluster, the jobs that come and go on it, and the links that fail.
//
//   version: 1
//   name: two-jobs
//   duration: 60s               # simulated
//   seed: 1                     # optional: of hashes, samples and random placement
//   draws: 32                   # optional: hash seeds that the figures of ecmp and layers-apart are the mean of; 1
//   classes: 8                  # optional: priority classes that the fabric has
//   policies: [ecmp, weft]      # optional, unless the command line names others; weft
//   restart: 5min               # optional: what it costs a job to begin anew with another strategy; 5 min
//   profile_error: 0.2          # optional: compute times of what happens are off by up to so much, and no policy knows; 0
//   cluster: {fabric: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4, host_rate: 100Gbit/s}   # scenario_cluster.h
//   jobs:
//     - {name: a, hosts: [h1, h5], compute: 100ms, release: 40ms, bytes: 1GiB, pattern: ring}
//     - {name: b, hosts: 4, placement: spread, compute: 80ms, flows: [{from: h2, to: h6, bytes: 500MB}], arrival: 5s}
//     - {name: c, hosts: 2, model: gpt2, global_batch: 64, sequence: 1024, iterations: 100}    # needs cluster.device
//     - {name: d, min_gpus: 8, max_gpus: 32, deadline: 2h, model: gpt2, global_batch: 64, sequence: 1024, iterations: 100}
//     - {name: e, hosts: 2, placement: any, compute: 80ms, bytes: 1GiB, iterations: 1000}      # begins when hosts are free
//   faults:
//     - {at: 10s, link: leaf1->spine1, rate: 10Gbit/s}
//     - {at: 20s, cable: leaf1-spine1, rate: down}        # both directions; or up
//     - {at: 30s, switch: spine1, rate: down}             # all of its links
//
// docs/simulate.md has every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "planner/jobs/simulate/scenario.h"
#include "planner/plan/model_ways.h"

namespace weft::formats {

/// A job, or several copies of one, that the planner has to profile before the scenario can run.
struct ScenarioModel {
  std::string place;                                   ///< "two-jobs.yaml:9: key "jobs[2].model"", for messages
  planner::JobSpec spec;
  planner::ClusterSpec cluster;                        ///< the job's hosts
  planner::ModelWaysOptions options;                   ///< where changes are allowed the framework is any: no program does these
  std::vector<size_t> jobs;                            ///< in the scenario
  std::optional<size_t> size;                          ///< of a job whose hosts are open: which of its sizes this is
  std::vector<std::vector<planner::TrafficEnd>> ends;  ///< of each of these jobs, in order of rank
};

struct ScenarioFile {
  planner::Scenario scenario;                          ///< jobs with a model have no compute and no flows yet
  std::vector<ScenarioModel> models;
  std::vector<planner::SimulationPolicy> policies;     ///< at least one
  double profile_error = 0;                            ///< share by which compute times of what happens may be off
};

/// Flows of all jobs together: what a simulation of minutes can hold.
constexpr size_t kMostScenarioFlows = 500'000;

/// Gives the i-th job of `model`, or its size, the ways that the planner found to run it. `fine`: with a burst for every micro-batch.
/// Errors: kInvalidArgument past kMostScenarioFlows. Requires: at least one way.
[[nodiscard]] Status ApplyWays(const ScenarioModel& model, size_t i, const std::vector<planner::ModelWay>& ways, bool fine,
                               planner::Scenario* scenario);

/// `seed`, where given, stands in place of the file's. Errors: kNotFound for a missing file (the scenario's, a model's,
/// a topology's); kInvalidArgument naming file, line, key, value and what was expected.
[[nodiscard]] Result<ScenarioFile> ReadScenarioYaml(const std::string& path,
                                                    std::optional<uint64_t> seed = std::nullopt);

/// The same from text; files that it names are relative to `folder`.
[[nodiscard]] Result<ScenarioFile> ParseScenarioYaml(std::string_view text, std::string_view source_name,
                                                     const std::string& folder,
                                                     std::optional<uint64_t> seed = std::nullopt);

}  // namespace weft::formats
