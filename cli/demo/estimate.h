// What a phase of the demo says about its jobs: how their iterations compare with the bound, and how sure that is.
//
//   block     of weft-train: kBlockSteps steps in a row, each of which says what its computations took of the job's core. Of
//             weft-nccl-job: a step whose exchange was apart (--apart-every), so that its compute was timed by itself, and the
//             ordinary steps nearest to it, on both sides. A machine whose speed drifts moves compute and iterations alike.
//   ratio     of a block: mean of its ordinary iterations, over the bound with the compute of that block (and with that of the
//             other jobs' blocks nearest in time). Of the phase: the median over its blocks, so that what hits less than half
//             of them changes little.
//   interval  between two order statistics of the blocks' ratios, as near to the median as holds it with 95 %, whatever the
//             distribution. Source: David and Nagaraja, Order Statistics, 3rd edition, section 7.1.
#pragma once

#include <string>
#include <vector>

#include "cli/demo/bound.h"
#include "cli/demo/training_job.h"
#include "common/units.h"

namespace weft::cli {

/// Steps of a block; of weft-nccl-job one of them has its exchange apart: seldom enough that agents still find the period of the
/// others.
inline constexpr int64_t kBlockSteps = 4;
/// What Weft promises: iterations at most so many times the bound.
inline constexpr double kMostOverBound = 1.10;

/// A median, and where the true one lies with 95 %.
struct Ratio {
  double value = 0;          ///< 0: not measured
  double low = 0, high = 0;  ///< 0: too few blocks to say
  int blocks = 0;
};

/// Median and interval of independent values; with fewer than six no interval holds 95 %. Complexity: n log n.
Ratio MedianOf(std::vector<double> values);

enum class Verdict { kNotMeasured, kWithin, kFellShort, kCannotTell };
/// Within or fell short where the whole interval is on that side of `most`.
Verdict Judge(const Ratio& ratio, double most = kMostOverBound);
/// "within", "fell short", "cannot tell" or "not measured".
std::string ToString(Verdict verdict);

/// What a few steps took.
struct Block {
  Seconds middle{0};     ///< when the timed step began, or half of the steps were through
  Seconds iteration{0};  ///< mean of the steps, or of the ordinary ones
  Seconds forward{0}, backward{0}, update{0};  ///< of the timed step
  std::vector<Seconds> ready;
  Computations computations;  ///< mean of the steps; then there is no timed one

  /// What an iteration computes: of a program the job's core, of all ranks.
  Seconds compute() const;
};

/// The blocks whose steps lie within [from, to). A timed step without ordinary ones on both sides is left out.
std::vector<Block> CutBlocks(const std::vector<TrainingStep>& steps, Seconds from, Seconds to);

/// `job` with the compute of `block`. Requires: as many ready times as the job has buckets, or computations of its program.
BoundJob WithCompute(const BoundJob& job, const Block& block);
/// A block of the medians of `blocks`. Requires: at least one; all have as many ready times and computations.
Block MedianBlock(const std::vector<Block>& blocks);

/// One job in a phase.
struct PhaseEstimate {
  Seconds iteration{0};  ///< median of the ordinary steps; 0: fewer than two
  Seconds compute{0};    ///< median over the blocks; 0 here and below: there are none
  Seconds bound{0};      ///< median over the blocks
  Ratio ratio;
  std::string formula;   ///< the bound with the medians put in
};

/// A job's steps, and what the bound knows of it beside compute.
struct PhaseJob {
  BoundJob job;
  std::vector<TrainingStep> steps;
};

/// All jobs of a phase in [from, to). Deterministic: the same steps give the same numbers.
/// Requires: as ComputeBound.
std::vector<PhaseEstimate> EstimatePhase(const BoundFabric& fabric, const std::vector<PhaseJob>& jobs, Seconds from,
                                         Seconds to, const std::vector<CableFactor>& cables,
                                         const std::vector<BackgroundFlow>& background);

}  // namespace weft::cli
