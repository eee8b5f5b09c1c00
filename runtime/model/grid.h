// The computations of a grid of tensor ranks (planner/tasks/rank_grid.h): products of panels, norms of rows that lie on several
// ranks, and how activations are cut. None keeps anything: each reads what it needs.
#pragma once

#include "runtime/model/parts.h"

namespace weft::runtime {

/// Of kProduct, kNormSums, kGridNorm, kHeads, kActivation, kToGrid and kFromGrid. Requires: shapes that CheckProgram() accepts.
Tensors GridForward(const PartCall& call);
Tensors GridData(const PartCall& call);

/// The weight gradient of kProduct: that of the panels.
Tensors ProductWeight(const PartCall& call);

}  // namespace weft::runtime
