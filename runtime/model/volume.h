// The parts of a 3D CNN, forward and backward, on a slab of every sample (planner/tasks/step_program.h). A convolution is a product
// for each plane of its output, over an input with planes around it: a neighbour's where the slab ends, zeros where the volume does.
// What they take is planner/tasks/volume_memory.cc's account.
#pragma once

#include "runtime/model/parts.h"

namespace weft::runtime {

/// What a sample's bytes are as numbers: -1 to 1.
torch::Tensor NumbersOf(const torch::Tensor& bytes, torch::ScalarType type);

/// Of the parts that planner::OfVolumes() names; as ForwardOf(), DataGradientOf() and AddWeightGradient() (parts.h).
Tensors VolumesForward(const PartCall& call, PartState* state);
Tensors VolumesData(const PartCall& call, PartState& state);
void AddVolumesGradient(const PartCall& call, PartState& state);

}  // namespace weft::runtime
