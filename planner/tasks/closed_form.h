// Pipeline times without simulating: what a schedule costs in the textbook case, and how far that is trusted.
#pragma once

#include "planner/tasks/pipeline.h"

namespace weft::planner {

/// An iteration by formula.
struct PipelineEstimate {
  Seconds iteration{0};  ///< as PipelineTime::iteration
  Seconds bubble{0};     ///< iteration - the work of the busiest stage
  /// Whether the formula is exact for this problem; else it is an estimate (never too low without hop delays, but for the
  /// split schedules).
  bool exact = false;
};

/// With F, B = D + W of a stage (all its chunks), m micro-batches, p stages, τ the mean hop:
///   gpipe         ΣF + (m-1) max F + ΣB + (m-1) max B + 2(p-1)τ                exact, also for unequal stages
///   1f1b          Σ(F+B) + (m-1) max(F+B) + 2τ(m(p-1)/p + p-2)                 exact for equal stages and p | m (τ < F)
///   eager-1f1b    Σ(F+B) + (m-1) max(F+B) + 2(p-1)τ                            exact for equal stages
///   interleaved   Σ(F+B)/v + (m - 1/v) max(F+B) + 2τ(pv-1)                     exact for equal stages (τ < F/v)
///   zb-h1         m max(F+D+W) + (p-1)(F+D-W) + hops as 1f1b                   exact for equal stages, m ≥ p, W ≤ F,
///                                                                              W ≤ D, no hops
///   zb-h2         m max(F+D+W) + (p-1) max(0, F+D-2W) + hops as eager-1f1b     exact for equal stages, m ≥ 2p-1,
///                                                                              W ≤ F, W ≤ D, no hops
///   zb-v          m max(F+D+W) + hops of one way down and up                   exact for F = D = W, m ≥ 2p-1, no hops
/// Blocking sends lengthen every F and B by τ. "Equal" includes chunks.
/// Errors: as SimulatePipeline. Complexity: O(p·v).
/// Source: arXiv 2104.04473 section 2.2, 2401.10241, 2211.05322; the delay terms are derived by simulation.
[[nodiscard]] Result<PipelineEstimate> ClosedFormPipeline(const PipelineProblem& problem);

/// What SimulatePipeline refuses, refused. For files of this folder.
[[nodiscard]] Status CheckPipeline(const PipelineProblem& problem);

}  // namespace weft::planner
