// What each part's computations read and write: how many values, of which shapes. Internal to CheckProgram.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/tasks/step_program.h"

namespace weft::planner::inline tasks {

/// How many values a part's computation reads and writes; nullopt: it has no such computation.
struct Arity {
  size_t inputs, outputs;
};

inline std::optional<Arity> ForwardArity(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding: return Arity{0, 1};
    case ModelPart::kQkv: return Arity{1, 3};
    case ModelPart::kAttentionCore: return Arity{3, 1};
    case ModelPart::kMlpNorm: return Arity{2, 2};
    case ModelPart::kResidual: return Arity{2, 1};
    case ModelPart::kLossSums: return Arity{2, 2};
    case ModelPart::kLoss: return Arity{4, 1};
    case ModelPart::kPositions: return std::nullopt;
    default: return Arity{1, 1};
  }
}

inline std::optional<Arity> DataArity(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding: return Arity{1, 0};
    case ModelPart::kAttentionNorm: return Arity{2, 1};
    case ModelPart::kQkv: return Arity{3, 1};
    case ModelPart::kAttentionCore: return Arity{1, 3};
    case ModelPart::kMlpNorm: return Arity{2, 1};
    case ModelPart::kLoss: return Arity{4, 1};
    case ModelPart::kAttentionOut:
    case ModelPart::kMlp:
    case ModelPart::kFinalNorm:
    case ModelPart::kHead: return Arity{1, 1};
    case ModelPart::kPositions:
    case ModelPart::kResidual:
    case ModelPart::kLossMax:
    case ModelPart::kLossSums:
    case ModelPart::kSlice: break;
  }
  return std::nullopt;
}

inline bool HasParameters(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding:
    case ModelPart::kAttentionNorm:
    case ModelPart::kQkv:
    case ModelPart::kAttentionOut:
    case ModelPart::kMlpNorm:
    case ModelPart::kMlp:
    case ModelPart::kFinalNorm:
    case ModelPart::kHead: return true;
    default: return false;
  }
}

inline std::optional<Arity> WeightArity(ModelPart part) {
  const bool matrices =
      part == ModelPart::kQkv || part == ModelPart::kAttentionOut || part == ModelPart::kMlp || part == ModelPart::kHead;
  return matrices ? std::optional(Arity{1, 0}) : std::nullopt;
}

inline std::optional<Arity> ArityOf(const Instruction& i) {
  const auto with_sum = [&](std::optional<Arity> arity) {
    if (arity && AddsToSlices(i)) ++arity->inputs;
    return arity;
  };
  switch (i.action) {
    case StepAction::kForward:
      return with_sum(ForwardArity(i.part));
    case StepAction::kData:
      return with_sum(DataArity(i.part));
    case StepAction::kWeight: return WeightArity(i.part);
    case StepAction::kLossSum:
    case StepAction::kSquares: return Arity{0, 1};
    case StepAction::kUpdate: return Arity{1, 0};
    case StepAction::kRelease: return Arity{0, 0};
    case StepAction::kSend: return Arity{1, 0};
    case StepAction::kReceive: return Arity{0, 1};
    default: return i.unit >= 0 ? Arity{0, 0} : Arity{1, 1};
  }
}

/// Whether each layer has the part; the model has the others once.
inline bool OfLayer(ModelPart part) {
  switch (part) {
    case ModelPart::kAttentionNorm:
    case ModelPart::kQkv:
    case ModelPart::kAttentionCore:
    case ModelPart::kAttentionOut:
    case ModelPart::kMlpNorm:
    case ModelPart::kMlp:
    case ModelPart::kResidual: return true;
    default: return false;
  }
}

/// Whether the part works on rows of the residual stream, which sequence parallelism splits.
inline bool OfStream(ModelPart part) {
  return part == ModelPart::kAttentionNorm || part == ModelPart::kMlpNorm || part == ModelPart::kResidual ||
         part == ModelPart::kFinalNorm;
}

inline int64_t TokensOf(const StepProgram& p) { return p.micro_batch * p.sequence / p.context; }

/// Shapes of what a computation reads and writes.
struct PartShapes {
  std::vector<ValueShape> inputs, outputs;
};

/// Of a forward pass (the table in step_program.h) of one of so many slices; `rows` of the residual stream.
inline PartShapes ForwardShapes(const StepProgram& p, ModelPart part, int64_t rows, int64_t slices) {
  const int64_t tokens = TokensOf(p);
  const ValueShape stream{rows, p.hidden}, whole{tokens, p.hidden}, logits{tokens, p.vocab / p.tensor}, column{tokens, 1};
  const ValueShape queries{tokens, p.heads * p.head_dim / p.tensor / slices},
      keys{tokens, p.kv_heads * p.head_dim / p.tensor / slices};
  const ValueShape slice{tokens / p.tensor, p.hidden}, scalar{1, 1};
  switch (part) {
    case ModelPart::kEmbedding: return {.inputs = {}, .outputs = {whole}};
    case ModelPart::kAttentionNorm:
    case ModelPart::kFinalNorm: return {.inputs = {stream}, .outputs = {stream}};
    case ModelPart::kQkv: return {.inputs = {whole}, .outputs = {queries, keys, keys}};
    case ModelPart::kAttentionCore: return {.inputs = {queries, keys, keys}, .outputs = {queries}};
    case ModelPart::kAttentionOut: return {.inputs = {queries}, .outputs = {whole}};
    case ModelPart::kMlpNorm: return {.inputs = {stream, stream}, .outputs = {stream, stream}};
    case ModelPart::kMlp: return {.inputs = {whole}, .outputs = {whole}};
    case ModelPart::kResidual: return {.inputs = {stream, stream}, .outputs = {stream}};
    case ModelPart::kHead: return {.inputs = {whole}, .outputs = {logits}};
    case ModelPart::kLossMax: return {.inputs = {logits}, .outputs = {column}};
    case ModelPart::kLossSums: return {.inputs = {logits, column}, .outputs = {column, column}};
    case ModelPart::kLoss: return {.inputs = {logits, column, column, column}, .outputs = {scalar}};
    case ModelPart::kSlice: return {.inputs = {whole}, .outputs = {slice}};
    case ModelPart::kPositions: break;
  }
  return {};
}

/// Of an instruction of a part. Requires: the part has such a computation.
inline PartShapes ShapesOfSlice(const StepProgram& p, const Instruction& i, int64_t rows) {
  PartShapes forward = ForwardShapes(p, i.part, rows, i.slices);
  if (i.action == StepAction::kForward) return forward;
  if (i.action == StepAction::kWeight) return {.inputs = {forward.inputs.front()}, .outputs = {}};
  const ValueShape stream{rows, p.hidden};
  switch (i.part) {
    case ModelPart::kAttentionNorm:
    case ModelPart::kMlpNorm: return {.inputs = {stream, stream}, .outputs = {stream}};
    case ModelPart::kLoss: return {.inputs = forward.inputs, .outputs = {forward.inputs.front()}};
    default: return {.inputs = forward.outputs, .outputs = forward.inputs};
  }
}

/// The same, with the sum that slices hand on.
inline PartShapes ShapesOf(const StepProgram& p, const Instruction& i, int64_t rows) {
  PartShapes shapes = ShapesOfSlice(p, i, rows);
  if (AddsToSlices(i)) shapes.inputs.push_back(shapes.outputs.front());
  return shapes;
}

}  // namespace weft::planner::tasks
