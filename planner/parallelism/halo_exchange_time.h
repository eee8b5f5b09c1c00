// 3D convolutional networks cut in space: each of g ranks holds a slab of every sample along its depth, the weights are
// whole on all of them. A convolution of kernel κ needs (κ-1)/2 planes of each neighbour: the halo, which travels while
// the interior is computed. A global pooling is a sum over the slabs, and a dense layer behind it is computed by all ranks.
// Source: arXiv 2007.12856, section 3; the formulas are derived there from the layers' shapes.
#pragma once

#include <cstdint>

#include "common/fractional_bytes.h"
#include "common/units.h"
#include "planner/parallelism/layer_time.h"
#include "planner/parallelism/memory_model.h"

namespace weft::planner::inline parallelism {

/// One halo message of a layer: element · samples · channels · (κ-1)/2 planes of height × width. 0 without a cut
/// or for kernels of depth 1.
FractionalBytes HaloBytes(const Cnn3dLayer& layer, int64_t samples, int64_t ranks, FractionalBytes element);

/// Of one sample, forward: 2 · in · out · kernel volume · output volume; a pooling layer reads and compares, or adds.
Flops CnnForwardFlops(const Cnn3dLayer& layer);

/// One layer, one micro-batch, on one of key.tp slabs. `communication`: where its communication is written, if not null.
/// Requires: a legal key.
LayerTime HaloExchangeTime(const JobSpec& job, const CalibratedHardware& hardware, const LayerKey& key, int64_t layer,
                           std::vector<Operation>* communication = nullptr);

/// Its activations: the input and its halos, and the normalisation's input. Recomputed fully, the input only.
LayerBytes HaloExchangeBytes(const JobSpec& job, const LayerKey& key, int64_t layer);

}  // namespace weft::planner::parallelism
