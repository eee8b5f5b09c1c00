// What those who have jobs decided about (situation.h) name as well: what is weighed, what it may cost, and advice.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "common/units.h"

namespace weft::planner::inline jobs {

/// What a decision weighs.
enum class SimulationObjective : uint8_t {
  kBalanced,   ///< GPU use, mean and 99th-percentile slow-down, none given up for another without good reason
  kGpuUse,     ///< GPU use alone: jobs of little weight may be held back for long, as Crux accepts
};

/// Of one decision, unless told otherwise: plans that are simulated, and events of all of them together.
inline constexpr int64_t kDefaultEvaluations = 12'000, kDefaultWork = 20'000'000;

/// What a decision may cost.
struct DecideBudget {
  int64_t evaluations = kDefaultEvaluations;   ///< plans that are simulated
  int64_t work = kDefaultWork;                 ///< their simulated events; 10⁷ are about a second
  std::stop_token stop = {};                   ///< asks for the best answer until now
};

/// What a job that runs would gain in another way, as seen at a decision. Nobody restarts it.
struct RestartAdvice {
  Seconds at{0};
  std::string job, way;
  Seconds now{0}, then{0};          ///< its iteration
  double goodput_now = 0, goodput_then = 0;  ///< of all jobs that are there
  Seconds pays_after{0};            ///< since the restart, which is then made up for; before the end of the scenario
};

}  // namespace weft::planner::jobs
