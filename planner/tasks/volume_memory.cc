// What the computations of a 3D CNN take: the account of runtime/model/volume.cc.
#include <algorithm>
#include <array>

#include "planner/tasks/part_memory.h"
#include "planner/tasks/volume_slabs.h"

namespace weft::planner::inline tasks {
namespace {

constexpr int64_t kIndex = 8;  // bytes of a place in a window

/// Of one convolution, in bytes.
struct Convolution {
  int64_t padded = 0;    ///< its input with planes around it
  int64_t columns = 0;   ///< what its kernel sees for one plane of a sample's output
  int64_t matrices = 0;  ///< a copy of its matrix, one for each place of the kernel
  int64_t seen = 0;      ///< what one place of the kernel sees of a sample
};

Convolution ConvolutionOf(const PartShape& s) {
  const StepProgram& p = s.program;
  const Cnn3dLayer& l = p.volumes[static_cast<size_t>(s.instruction.layer)];
  const int64_t b = BytesOf(p.type), places = l.kernel[0] * l.kernel[1] * l.kernel[2];
  const std::array<int64_t, 3> out = l.OutputExtent();
  const int64_t planes = l.extent[0] / p.tensor + l.kernel[0] - 1, rows = l.extent[1] + l.kernel[1] - 1;
  return {.padded = b * p.micro_batch * l.in_channels * planes * rows * (l.extent[2] + l.kernel[2] - 1),
          .columns = b * places * l.in_channels * out[1] * out[2],
          .matrices = places > 1 ? b * places * l.in_channels * l.out_channels : 0,
          .seen = b * l.in_channels * (out[0] / p.tensor) * out[1] * out[2]};
}

PartMemory OfConvolution(const PartShape& s) {
  const Convolution c = ConvolutionOf(s);
  const auto bytes = [&](const ValueShape& shape) { return shape.elements() * BytesOf(s.program.type); };
  PartMemory m;
  if (s.instruction.action == StepAction::kForward) {
    m.first = c.padded + c.columns + bytes(s.outputs[0]);
    m.kept = {{.of = KeptTensor::Of::kOutput}};  // where it is zero
  } else if (s.instruction.action == StepAction::kData) {
    const int64_t own = bytes(s.inputs[0]);
    int64_t made = 0;
    for (const ValueShape& output : s.outputs) made += bytes(output);
    m.first = own;
    m.second = own + (made > 0 ? c.padded + std::max(c.matrices + c.seen, made) : 0);
    m.gradients = {{.of = KeptTensor::Of::kOwn, .bytes = own}};
  } else {
    m.first = c.padded + c.columns;
  }
  return m;
}

}  // namespace

PartMemory MemoryOfVolumes(const PartShape& s) {
  const auto bytes = [&](const ValueShape& shape) { return shape.elements() * BytesOf(s.program.type); };
  if (s.instruction.part == ModelPart::kConvolution) return OfConvolution(s);
  if (s.instruction.action == StepAction::kWeight) return {};
  const bool forward = s.instruction.action == StepAction::kForward;
  PartMemory m;
  m.first = bytes(s.outputs[0]);
  switch (s.instruction.part) {
    case ModelPart::kPooling:
      if (!forward) break;
      m.first += kIndex * s.outputs[0].elements();
      m.kept = {{.of = KeptTensor::Of::kOwn, .bytes = kIndex * s.outputs[0].elements()}};
      break;
    case ModelPart::kGlobalPooling:
      if (!forward) m.first += bytes(s.inputs[0]);
      break;
    case ModelPart::kClassifier:
      if (!forward) m.gradients = {{.of = KeptTensor::Of::kInput}};
      break;
    case ModelPart::kClassLoss:
      if (forward) m.first = bytes(s.inputs[0]);
      break;
    default: break;
  }
  return m;
}

int64_t MemoryOfSamples(const StepProgram& p) {
  return SlabInput(p.volumes.front(), p.micro_batch, p.tensor).elements() + kIndex * p.micro_batch;
}

}  // namespace weft::planner::tasks
