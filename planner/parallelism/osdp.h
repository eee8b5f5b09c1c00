// OSDP: for every operator (matrix) of a model, whether its state is replicated on all ranks (data parallel: one
// all-reduce of the gradient) or sharded (ZeRO-3: gathered twice, gradient reduce-scattered), optionally cut in slices
// that decide for themselves and of which only one is gathered at a time. The least communication that a memory budget
// allows, exactly; and the batch that gives the most samples per second.
//
// Costs as in the paper: communication and computation add up, nothing overlaps. Leaves out: activations' dependence on
// the sharding, slices' smaller matrix products.
//
//   OsdpProblem problem{.operators = {{.name = "mlp", .parameters = 4 * h * h, .count = 48}}, .ranks = 8, ...};
//   const OsdpPlan plan = MostThroughput(problem, 1024);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::planner {

struct OsdpOperator {
  std::string name;
  int64_t parameters = 0;      ///< elements
  Bytes activations;           ///< kept for one sample
  Seconds compute{0};          ///< one sample, forward and backward
  int64_t count = 1;           ///< equal operators
};

struct OsdpProblem {
  std::vector<OsdpOperator> operators;
  int64_t ranks = 1;
  Seconds latency{0};          ///< α: one step of a ring
  BitsPerSecond rate;          ///< of a ring over all ranks
  Seconds group_latency{0};    ///< the same inside a shard group
  BitsPerSecond group_rate;
  int64_t shard_group = 0;     ///< ranks that share a shard where "sharded in a group" is offered too; 0: not offered
  int64_t state_bytes = 16;    ///< per parameter: weights, gradients, optimizer
  int64_t element_bytes = 2;   ///< per element on the wire
  int64_t gathered_bytes = 2;  ///< per element of a gathered slice (4 or more where its gradient is whole as well)
  Bytes budget;                ///< of one GPU, for states, activations and gathered slices
  Seconds fixed_compute{0};    ///< of an iteration, whatever the batch
  std::vector<int64_t> slices = {1, 2, 4, 8};  ///< into how many an operator may be cut; {1} forbids splitting
  bool may_replicate = true;   ///< false: everything is sharded, as FSDP does
};

/// What `count` of the operators in one entry of the problem do.
struct OsdpDecision {
  int64_t count = 0;
  int64_t slices = 1;
  int64_t replicated = 0;      ///< slices of them that every rank keeps whole
  int64_t group_sharded = 0;   ///< slices sharded inside a shard group only
  int64_t sharded() const { return slices - replicated - group_sharded; }
};

struct OsdpPlan {
  bool feasible = false;
  bool complete = true;        ///< false: not proved to be the optimum
  int64_t batch = 0;           ///< samples per rank and iteration
  Seconds iteration{0}, communication{0};
  Seconds lower_bound{0};      ///< no plan with this batch is faster
  Bytes memory;
  std::vector<std::vector<OsdpDecision>> decisions;  ///< [operator entry]
  double samples_per_second(int64_t ranks) const {
    return feasible ? static_cast<double>(batch * ranks) / iteration.count() : 0;
  }
};

/// The fastest plan with `batch` samples per rank. Errors: kInvalidArgument naming the field. Infeasible is an answer.
/// With `tolerance` 0 the optimum exactly; the default proves it to one part in a million.
/// Complexity: see SolveChoiceKnapsack; about a millisecond for 96 layers of six operators.
/// Source: arXiv 2209.13258, section 3 (cost model), section 4 (operator splitting).
[[nodiscard]] Result<OsdpPlan> PlanOperators(const OsdpProblem& problem, int64_t batch, double tolerance = 1e-6);

/// The batch from 1 to `most_per_rank`, and the plan for it, that process most samples per second. A batch is skipped
/// where the linear relaxation shows that it cannot be the best. Ties go to the smaller batch.
[[nodiscard]] Result<OsdpPlan> MostThroughput(const OsdpProblem& problem, int64_t most_per_rank,
                                              double tolerance = 1e-6);

/// With identical operators, no latency and slices as fine as one likes: the share of parameters that is replicated.
/// x = (budget - gathered - batch·activations - state/N) / (state·(1 - 1/N)), within [0, 1]; negative if nothing fits.
/// Source: derived: memory is linear in x, and every replicated byte saves the same time.
double ReplicatedShare(const OsdpProblem& problem, int64_t batch);

}  // namespace weft::planner
