// Matrix products on grids of ranks: 2D (SUMMA, arXiv 2104.05343), 2.5D (arXiv 2105.14500) and 3D (arXiv 2105.14450),
// with 1D for comparison. Volumes are elements that one rank receives, every broadcast pipelined so that each rank
// receives each panel once; a sum that one rank gets is a broadcast the other way round.
//
// P = q² ranks (2D), q²·z (2.5D), q³ (3D). Batch lies over rows, width and heads over columns, so attention's core is
// local; needs q | batch and q | heads. Where the ranks stand: planner/tasks/rank_grid.h. A bias travels with its matrix; of 3D the
// gathered inputs and matrices are kept for the backward pass, as in Colossal-AI. Norms gather their parameters and scatter the
// gradients, and sum one number per token (layer norms two) over its columns, forward and backward.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/parallelism/layer_time.h"
#include "planner/tasks/rank_grid.h"

namespace weft::planner::inline parallelism {

/// Y = X·W + B with X [tokens × in], W [in × out]; `bias` elements of B, out or none.
struct GridProduct {
  double tokens = 0, in = 0, out = 0, bias = 0;
};

/// q of a grid of `ranks`, nullopt if the count is no square (2D), depth · square (2.5D) or cube (3D).
std::optional<int64_t> GridSide(TensorMode mode, int64_t ranks, int64_t depth);

/// Where tensor ranks stand; a grid of side 1 with 1D, with one rank, and where there is no such grid.
RankGrid GridOf(TensorMode mode, int64_t ranks, int64_t depth);
RankGrid GridOf(const Strategy& strategy);

/// Adds to `list` what one norm on a grid exchanges in both passes. Requires: a legal key with a grid.
void AddGridNorm(std::vector<Operation>* list, const JobSpec& job, const CalibratedHardware& hardware, const LayerKey& key);

/// Adds the layer's linear products, their communication and the norms' sums. Requires: a legal key, no MoE.
void AddGridLinears(LayerTime& layer, const JobSpec& job, const CalibratedHardware& hardware, const LayerKey& key);

}  // namespace weft::planner::parallelism
