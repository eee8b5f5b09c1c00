// What communication costs when it may hide behind compute: tasks on streams, each stream in its own order, with the mutual
// slow-down of kernels that share memory bandwidth and multiprocessors. On top of it the three ways in which training hides
// communication: parameters fetched ahead of the layer that needs them, gradients reduced behind the backward pass in
// buckets, and a collective cut in pieces that alternate with pieces of the matrix product it feeds.
//
// Leaves out: more than one compute stream; that two collectives on one link slow each other (layer 4 knows).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "common/units.h"

namespace weft::planner {

/// A task on a stream. Tasks of one stream run in the order in which they are listed.
struct StreamTask {
  int32_t stream = 0;                   ///< 0 computes, others communicate
  Seconds duration{0};                  ///< alone
  std::array<int32_t, 2> after{-1, -1}; ///< indices of earlier tasks of the list that must be over; -1: none
};

/// How much longer a task takes while the other side runs as well: 0.2 is a fifth. Both are constants of a device that
/// calibration finds; that they do not depend on the kernels is the model's simplification.
struct OverlapCost {
  double compute = 0;        ///< of compute while anything communicates
  double communication = 0;  ///< of communication while compute runs
};

struct OverlapTime {
  Seconds makespan{0};
  Seconds compute{0};        ///< sum, alone
  Seconds communication{0};  ///< sum, alone
  Seconds exposed{0};        ///< makespan - compute
  std::vector<Seconds> start, end;  ///< [tasks]
};

/// Runs tasks as early as streams and dependencies allow.
/// Errors: kInvalidArgument for a negative or endless duration, stream or slow-down, or a dependency that is not earlier.
/// Complexity: O(tasks · streams).
[[nodiscard]] Result<OverlapTime> RunStreams(std::span<const StreamTask> tasks, OverlapCost cost = {});

/// One unit of layers whose parameters are sharded (ZeRO-3, FSDP), in one direction.
struct ShardedUnit {
  Seconds compute{0};
  Seconds gather{0};  ///< before it computes
  Seconds reduce{0};  ///< after it has computed; 0 in forward
};

/// Gathers run up to `prefetch` units ahead of the one that computes; reductions have a stream of their own. With a
/// prefetch of 0 nothing hides but reductions. Errors: as RunStreams; kInvalidArgument for a negative prefetch.
[[nodiscard]] Result<OverlapTime> RunShardedUnits(std::span<const ShardedUnit> units, int64_t prefetch,
                                                  OverlapCost cost = {});

/// The exposed time of n equal units with one ahead and no slow-down: the first gather, then what each gather is longer
/// than a unit's compute; at the end the last reduction, and what the reductions are longer in total.
/// Exact against RunShardedUnits where reductions are the only or no bottleneck. Complexity: O(1).
Seconds ExposedShardedUnits(const ShardedUnit& unit, int64_t n);

/// A collective of `transfer` cut in `pieces` that alternate with pieces of the product of `compute` that needs them:
/// piece k of the product starts when piece k has arrived. Each piece of the product costs `per_piece` more than its
/// share. Source: tensor-parallel overlap by decomposition, ASPLOS 2023, Wang et al.; derived: with c and g per piece the
/// time is c + (k-1) max(c, g) + g.
Seconds PiecewiseTime(Seconds transfer, Seconds compute, int64_t pieces, Seconds per_piece);

/// The number of pieces from 1 to `most` with the least PiecewiseTime; ties go to fewer. Complexity: O(log most).
int64_t BestPieces(Seconds transfer, Seconds compute, int64_t most, Seconds per_piece);

}  // namespace weft::planner
