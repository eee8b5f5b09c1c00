// Matrix products on grids of ranks: 2D (SUMMA, arXiv 2104.05343), 2.5D (arXiv 2105.14500) and 3D (arXiv 2105.14450),
// with 1D for comparison. Volumes are elements that one rank receives, every broadcast pipelined so that each rank
// receives each panel once.
//
// P = q² ranks (2D), q²·z (2.5D), q³ (3D). Batch lies over rows, width and heads over columns, so attention's core is
// local; needs q | batch and q | heads.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/parallelism/layer_time.h"

namespace weft::planner::inline parallelism {

/// Y = X·W with X [tokens × in], W [in × out].
struct GridProduct {
  double tokens = 0, in = 0, out = 0;
};

/// q of a grid of `ranks`, nullopt if the count is no square (2D), depth · square (2.5D) or cube (3D).
std::optional<int64_t> GridSide(TensorMode mode, int64_t ranks, int64_t depth);

/// Adds the layer's linear products, their communication and the norms' sums. Requires: a legal key, no MoE.
void AddGridLinears(LayerTime& layer, const JobSpec& job, const CalibratedHardware& hardware, const LayerKey& key);

}  // namespace weft::planner::parallelism
