// The master problem: how much all jobs of a cluster can get done together, whatever controls their flows, and which
// configuration each should run.
//
// Job j runs configuration x for the share z_jx of the time at full speed (T_x per iteration alone), and the bytes that must
// cross a cut S fit through it:
//   maximise  Σ v_jx z_jx   subject to   Σ b_jx(S) z_jx / T_x ≤ B(S),  Σ g_x z_jx ≤ G,  Σ_x z_jx ≤ 1,  z ≥ 0.
// Any schedule, priority or time shift yields such a z, so the optimum bounds every controller on the given placements.
// Configurations are columns, made on demand: duals are prices of bytes over cuts and of GPUs, and each job answers with
// the configuration that earns most at these prices, until none earns more than its job already does.
//
// The bound does not rest on the solver: for any prices π, γ ≥ 0, no z is worth more than
//   Σ_S π_S B(S) + γ G + Σ_j max(0, max_x (v_jx - Σ_S π_S b_jx(S) / T_x - γ g_x)).
//
// Source: Dantzig and Wolfe 1960 (columns on demand), Lasdon 1970 (the bound at any prices). The caller names the cuts and what each configuration puts on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/fabric/fabric_cuts.h"

namespace weft::planner::inline jobs {

/// One way to run a job.
struct Configuration {
  std::string name;
  int64_t gpus = 1;
  Seconds compute{0};             ///< that its GPUs compute per iteration
  Seconds iteration{0};           ///< alone, ≥ compute; raised to its worst bytes / capacity of a cut
  std::vector<CutLoad> loads;     ///< cuts distinct
};

struct MasterJob {
  std::string name;
  double weight = 1;
  Seconds deadline{0};            ///< iteration time that it must reach, for kDeadlines
};

enum class MasterObjective : uint8_t {
  kGpuUse,      ///< Σ weight · GPUs that compute
  kLeastSpeed,  ///< the least over jobs of speed / the best speed alone that its source has offered
  kDeadlines,   ///< Σ weight of jobs that meet their deadline (fractions count): 1 - the blocking rate, if normalised
};

/// Returns the configuration of `job` for which `profit` is largest. Must be a function, and never empty-handed.
using ConfigurationSource =
    std::function<Configuration(size_t job, const std::function<double(const Configuration&)>& profit)>;

struct MasterProblem {
  std::vector<BitsPerSecond> cuts;       ///< capacity of each
  int64_t gpus = 0;                      ///< of the cluster; 0: placements are given and fit
  std::vector<MasterJob> jobs;
  ConfigurationSource source;
  MasterObjective objective = MasterObjective::kGpuUse;
  int32_t rounds = 200;                  ///< of column generation; past them complete = false
  int32_t moves = 200;                   ///< programmes that rounding may solve
};

struct MasterChoice {
  bool runs = false;
  Configuration configuration;
  double share = 0;                      ///< of its speed alone, 0 … 1, in the rounded answer
};

struct MasterAnswer {
  double bound = 0;                      ///< no controller reaches more
  double relaxed = 0;                    ///< optimum over the columns made
  double rounded = 0;                    ///< with one configuration per job, speeds by the same programme
  std::vector<MasterChoice> jobs;
  std::vector<double> cut_price;         ///< objective per further byte/s over a cut
  double gpu_price = 0;                  ///< objective per further GPU
  int64_t columns = 0;
  int32_t rounds = 0;
  bool complete = true;                  ///< bound = relaxed up to 1e-6
};

/// Errors: kInvalidArgument for a job without a way to run, an unknown cut, a load on a cut without capacity, GPUs, times or
/// bytes that are not positive or not finite; names the job. kInternal where the solver gives up.
[[nodiscard]] Result<MasterAnswer> SolveMaster(const MasterProblem& problem);

/// A source that picks from a list per job; ties go to the first.
ConfigurationSource FromPools(std::vector<std::vector<Configuration>> pools);

}  // namespace weft::planner::jobs
