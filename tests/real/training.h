// Jobs that train on the fabric: weft-train, each with the step program of the strategy that `weft simulate` gave it, its
// computations stretched, since two cores run all ranks.
//
// The machines of the scenario are so many times slower than a core as computations are stretched. `weft plan`'s search
// finds each job's ways on them; then each way's computations are timed (`weft-train --calibrate`), and what its step
// program then takes alone, and waits for, is what the simulation goes by: as `weft-train --predict` has it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "tests/real/mix.h"

namespace weft::real {

struct TrainingOptions {
  /// SCENARIO.yaml: a leaf-spine of plain hosts of device cpu, at the rate that payload gets; jobs of models with precision
  /// fp32 and framework weft-train.
  std::string scenario;
  std::vector<planner::SimulationPolicy> policies;
  Installation installation;
  BitsPerSecond link_rate{0};      ///< of hosts' links, with headers
  double stretch = 1;
  std::string calibration;         ///< of `weft calibrate`: this machine's constants, which the search goes by
  std::string data;                ///< text to train on
  Seconds phase{10};               ///< measured, of each policy; longer where a machine is too slow for a few iterations
};

/// Calls `done` after each policy. Errors: those of the scenario and of Experiment; kInvalidArgument for a job without a
/// model, or that no strategy fits; kUnavailable with the last words of a program that failed.
[[nodiscard]] Status RunTraining(const TrainingOptions& options, const std::function<void(const MixOutcome&)>& done);

/// One line of JSON: the policy, goodput, and of each job its iteration, measured and foretold, and where and how it ran.
std::string TrainingLine(const MixOutcome& outcome);

/// What does not hold of bytes, policies and jobs side by side; nothing is about time. Each names the policy.
std::vector<std::string> BrokenFacts(const MixOutcome& outcome);

}  // namespace weft::real
