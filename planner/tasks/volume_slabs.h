// The layers of a 3D CNN as step programs have them (ModelPart, step_program.h): which are executed, and what a tensor rank has of
// each: a slab of every sample.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "planner/tasks/step_program.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline tasks {

/// Why no program is made of these layers: the first that is not executed, its value, what was expected; nullopt if there is one.
/// Executed are convolutions and poolings in a row, then a global pooling and one dense layer.
std::optional<std::string> WhyNoVolumes(std::span<const Cnn3dLayer> layers);

/// Why so many ranks cannot share each sample along its depth; nullopt if they can. Requires: layers that WhyNoVolumes() accepts.
std::optional<std::string> WhyNoSlabs(std::span<const Cnn3dLayer> layers, int64_t ranks);

/// Planes that a layer needs of each neighbour.
int64_t HaloPlanes(const Cnn3dLayer& layer, int64_t ranks);

/// Of a layer on one of so many ranks, of so many samples: what it reads, what it makes, and the planes at both ends.
ValueShape SlabInput(const Cnn3dLayer& layer, int64_t samples, int64_t ranks);
ValueShape SlabOutput(const Cnn3dLayer& layer, int64_t samples, int64_t ranks);
ValueShape SlabHalo(const Cnn3dLayer& layer, int64_t samples, int64_t ranks);

}  // namespace weft::planner::tasks
