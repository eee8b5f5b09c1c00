// What the computations of a 3D CNN read and write: how many values, of which shapes. Internal to CheckProgram.
#pragma once

#include <optional>

#include "planner/tasks/step_program_parts.h"
#include "planner/tasks/volume_slabs.h"

namespace weft::planner::inline tasks {

/// The layer that an instruction is of: of kVolume the first, of kClassLoss the last. Requires: a CNN, and a layer in range where it
/// has one.
inline const Cnn3dLayer& VolumeLayer(const StepProgram& p, const Instruction& i) {
  if (i.part == ModelPart::kVolume) return p.volumes.front();
  return i.part == ModelPart::kClassLoss ? p.volumes.back() : p.volumes[static_cast<size_t>(i.layer)];
}

/// Whether the part is one that the layer has.
inline bool HasVolumePart(const Cnn3dLayer& layer, int64_t ranks, ModelPart part) {
  switch (layer.kind) {
    case Cnn3dKind::kConvolution:
      return part == ModelPart::kConvolution || part == ModelPart::kVolume ||
             (part == ModelPart::kHalo && HaloPlanes(layer, ranks) > 0);
    case Cnn3dKind::kPooling: return part == ModelPart::kPooling;
    case Cnn3dKind::kGlobalPooling: return part == ModelPart::kGlobalPooling;
    case Cnn3dKind::kDense: return part == ModelPart::kClassifier || part == ModelPart::kClassLoss;
    case Cnn3dKind::kTransposedConvolution: break;
  }
  return false;
}

/// Whether an instruction is of a part of a CNN that the program has at that layer.
inline bool IsOfItsVolumes(const StepProgram& p, const Instruction& i) {
  if (!p.IsCnn() || !OfVolumes(i.part)) return false;
  const bool once = i.part == ModelPart::kVolume || i.part == ModelPart::kClassLoss;
  if (once ? i.layer != -1 : i.layer < 0 || static_cast<size_t>(i.layer) >= p.volumes.size()) return false;
  return HasVolumePart(VolumeLayer(p, i), p.tensor, i.part);
}

/// Shapes; nullopt where there is no such computation. Requires: IsOfItsVolumes().
inline std::optional<PartShapes> VolumeShapes(const StepProgram& p, const Instruction& i) {
  const Cnn3dLayer& layer = VolumeLayer(p, i);
  const int64_t b = p.micro_batch, t = p.tensor;
  const ValueShape x = SlabInput(layer, b, t), y = SlabOutput(layer, b, t), halo = SlabHalo(layer, b, t), scalar{1, 1};
  PartShapes with_halo{.inputs = {x}, .outputs = {y}};
  if (HaloPlanes(layer, t) > 0) with_halo.inputs.push_back(halo);
  const bool convolution = i.part == ModelPart::kConvolution;
  switch (i.action) {
    case StepAction::kForward:
      if (convolution) return with_halo;
      if (i.part == ModelPart::kVolume) return PartShapes{{}, {x}};
      if (i.part == ModelPart::kHalo) return PartShapes{{x}, {halo}};
      return i.part == ModelPart::kClassLoss ? PartShapes{{y}, {scalar}} : PartShapes{{x}, {y}};
    case StepAction::kData:
      if (i.part == ModelPart::kVolume) return std::nullopt;
      if (convolution) return PartShapes{{y}, i.layer == 0 ? std::vector<ValueShape>() : with_halo.inputs};
      if (i.part == ModelPart::kHalo) return PartShapes{{x, halo}, {x}};
      return i.part == ModelPart::kClassLoss ? PartShapes{{y}, {y}} : PartShapes{{y}, {x}};
    case StepAction::kWeight:
      if (convolution) return PartShapes{with_halo.inputs, {}};
      return i.part == ModelPart::kClassifier ? std::optional(PartShapes{{x}, {}}) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace weft::planner::tasks
