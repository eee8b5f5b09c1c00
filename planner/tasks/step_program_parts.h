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
    case ModelPart::kQkv: return Arity{1, 2};
    case ModelPart::kAttentionCore: return Arity{2, 1};
    case ModelPart::kAttentionGathered:
    case ModelPart::kAttentionHeads:
    case ModelPart::kMlpNorm: return Arity{2, 2};
    case ModelPart::kDispatch:
    case ModelPart::kCombine:
    case ModelPart::kProduct:
    case ModelPart::kResidual: return Arity{2, 1};
    case ModelPart::kGridNorm: return Arity{3, 1};
    case ModelPart::kHeads: return Arity{1, 2};
    case ModelPart::kLossSums: return Arity{2, 2};
    case ModelPart::kLoss: return Arity{4, 1};
    case ModelPart::kMlpUp:
    case ModelPart::kMlpDown:
    case ModelPart::kPositions: return std::nullopt;
    default: return Arity{1, 1};
  }
}

inline std::optional<Arity> DataArity(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding: return Arity{1, 0};
    case ModelPart::kAttentionNorm: return Arity{2, 1};
    case ModelPart::kQkv: return Arity{2, 1};
    case ModelPart::kAttentionCore: return Arity{1, 2};
    case ModelPart::kAttentionGathered:
    case ModelPart::kAttentionHeads: return Arity{5, 2};
    case ModelPart::kProduct:
    case ModelPart::kHeads:
    case ModelPart::kActivation:
    case ModelPart::kRouter:
    case ModelPart::kMlpNorm: return Arity{2, 1};
    case ModelPart::kNormSums: return Arity{4, 1};
    case ModelPart::kGridNorm: return Arity{5, 2};
    case ModelPart::kCombine: return Arity{1, 2};
    case ModelPart::kLoss: return Arity{4, 1};
    case ModelPart::kAttentionOut:
    case ModelPart::kMlp:
    case ModelPart::kDispatch:
    case ModelPart::kExperts:
    case ModelPart::kFinalNorm:
    case ModelPart::kHead: return Arity{1, 1};
    case ModelPart::kPositions:
    case ModelPart::kResidual:
    case ModelPart::kLossMax:
    case ModelPart::kLossSums:
    case ModelPart::kSlice:
    case ModelPart::kSpread:
    case ModelPart::kCollect:
    case ModelPart::kMlpUp:
    case ModelPart::kMlpDown:
    case ModelPart::kToGrid:
    case ModelPart::kFromGrid:
    case ModelPart::kAttentionBlock: break;
    default: break;  // step_program_volumes.h
  }
  return std::nullopt;
}

/// Whether the part's computations are those of a grid of tensor ranks.
inline bool OfGrid(ModelPart part) { return part >= ModelPart::kProduct && part <= ModelPart::kFromGrid; }

/// Whether the part has computations with parameters that a grid has in panels instead.
inline bool InPanels(ModelPart part) {
  switch (part) {
    case ModelPart::kAttentionNorm:
    case ModelPart::kQkv:
    case ModelPart::kAttentionOut:
    case ModelPart::kMlpNorm:
    case ModelPart::kMlpUp:
    case ModelPart::kMlpDown:
    case ModelPart::kFinalNorm: return true;
    default: return false;
  }
}

/// Whether the data gradient keeps nothing of the forward pass and reads its inputs and outputs instead.
inline bool ReadsAgain(ModelPart part) {
  return OfGrid(part) || part == ModelPart::kLoss || part == ModelPart::kHalo || part == ModelPart::kGlobalPooling ||
         part == ModelPart::kClassLoss || part == ModelPart::kAttentionBlock || part == ModelPart::kAttentionGathered ||
         part == ModelPart::kAttentionHeads;
}

inline bool HasParameters(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding:
    case ModelPart::kAttentionNorm:
    case ModelPart::kQkv:
    case ModelPart::kAttentionOut:
    case ModelPart::kMlpNorm:
    case ModelPart::kMlp:
    case ModelPart::kMlpUp:
    case ModelPart::kMlpDown:
    case ModelPart::kRouter:
    case ModelPart::kExperts:
    case ModelPart::kFinalNorm:
    case ModelPart::kConvolution:
    case ModelPart::kClassifier:
    case ModelPart::kHead: return true;
    default: return false;
  }
}

inline std::optional<Arity> WeightArity(ModelPart part) {
  if (part == ModelPart::kProduct) return Arity{2, 1};
  return IsProduct(part) ? std::optional(Arity{1, 0}) : std::nullopt;
}

inline std::optional<Arity> ArityOf(const Instruction& i) {
  if (OfPart(i.action) && i.part == ModelPart::kAttentionBlock) {
    if (i.tag < 0 || i.action == StepAction::kWeight) return std::nullopt;
    if (i.action == StepAction::kForward) return Arity{i.tag == 0 ? size_t{2} : 4, 2};
    return Arity{i.tag == 1 ? size_t{5} : 7, 2};
  }
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
    case StepAction::kParameters: return InPanels(i.part) ? std::optional(Arity{0, 1}) : std::nullopt;
    case StepAction::kGradient: return InPanels(i.part) ? std::optional(Arity{1, 0}) : std::nullopt;
    case StepAction::kReduce: return Arity{i.tag > 0 ? size_t{2} : 1, 1};
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
    case ModelPart::kAttentionBlock:
    case ModelPart::kAttentionGathered:
    case ModelPart::kAttentionHeads:
    case ModelPart::kAttentionOut:
    case ModelPart::kMlpNorm:
    case ModelPart::kMlp:
    case ModelPart::kMlpUp:
    case ModelPart::kMlpDown:
    case ModelPart::kProduct:
    case ModelPart::kHeads:
    case ModelPart::kActivation:
    case ModelPart::kRouter:
    case ModelPart::kDispatch:
    case ModelPart::kExperts:
    case ModelPart::kCombine:
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
  // A grid cuts rows as well.
  const int64_t here = p.grid.exists() ? rows : tokens, cut = p.grid.exists() ? p.grid.side : p.tensor;
  const ValueShape stream{rows, p.hidden / p.grid.side}, whole{tokens, p.hidden};
  const ValueShape logits{tokens, p.vocab / p.tensor}, column{tokens, 1};
  const ValueShape queries{here, p.heads * p.head_dim / cut / slices}, keys{here, 2 * p.kv_heads * p.head_dim / cut / slices};
  const ValueShape all_keys{p.context * keys.rows, keys.columns}, sums{tokens, p.heads / p.tensor};
  const auto spread = [&](const ValueShape& v) { return ValueShape{p.context * v.rows, v.columns / p.context}; };
  const ValueShape slice{tokens / p.tensor, p.hidden}, scalar{1, 1};
  const ValueShape scores{tokens / p.tensor, p.experts};
  const ValueShape routed{p.experts == 0 ? 0 : p.experts * CapacityOf(p), p.hidden};
  const ValueShape gathered{routed.rows * p.expert_tensor, p.hidden};  // by the ranks of each expert's matrices
  switch (part) {
    case ModelPart::kEmbedding: return {.inputs = {}, .outputs = {whole}};
    case ModelPart::kAttentionNorm:
    case ModelPart::kFinalNorm: return {.inputs = {stream}, .outputs = {stream}};
    case ModelPart::kQkv: return {.inputs = {whole}, .outputs = {queries, keys}};
    case ModelPart::kAttentionCore: return {.inputs = {queries, keys}, .outputs = {queries}};
    case ModelPart::kAttentionBlock: return {.inputs = {queries, keys, queries, sums}, .outputs = {queries, sums}};
    case ModelPart::kAttentionGathered: return {.inputs = {queries, all_keys}, .outputs = {queries, sums}};
    case ModelPart::kAttentionHeads: return {.inputs = {spread(queries), spread(keys)}, .outputs = {spread(queries), spread(sums)}};
    case ModelPart::kAttentionOut: return {.inputs = {queries}, .outputs = {whole}};
    case ModelPart::kMlpNorm: return {.inputs = {stream, stream}, .outputs = {stream, stream}};
    case ModelPart::kMlp: return {.inputs = {whole}, .outputs = {whole}};
    case ModelPart::kRouter: return {.inputs = {slice}, .outputs = {scores}};
    case ModelPart::kDispatch: return {.inputs = {slice, scores}, .outputs = {routed}};
    case ModelPart::kExperts: return {.inputs = {gathered}, .outputs = {gathered}};
    case ModelPart::kCombine: return {.inputs = {routed, scores}, .outputs = {slice}};
    case ModelPart::kResidual: return {.inputs = {stream, stream}, .outputs = {stream}};
    case ModelPart::kHead: return {.inputs = {whole}, .outputs = {logits}};
    case ModelPart::kLossMax: return {.inputs = {logits}, .outputs = {column}};
    case ModelPart::kLossSums: return {.inputs = {logits, column}, .outputs = {column, column}};
    case ModelPart::kLoss: return {.inputs = {logits, column, column, column}, .outputs = {scalar}};
    case ModelPart::kSlice: return {.inputs = {whole}, .outputs = {slice}};
    case ModelPart::kHeads: return {.inputs = {{here, queries.columns + keys.columns}}, .outputs = {queries, keys}};
    case ModelPart::kToGrid: return {.inputs = {whole}, .outputs = {{p.tensor * rows, stream.columns}}};
    case ModelPart::kFromGrid: return {.inputs = {{p.tensor * rows, stream.columns}}, .outputs = {whole}};
    case ModelPart::kProduct:
    case ModelPart::kNormSums:
    case ModelPart::kGridNorm:
    case ModelPart::kActivation:  // FitsProduct(), NormShapes()
    case ModelPart::kMlpUp:
    case ModelPart::kMlpDown:
    case ModelPart::kSpread:
    case ModelPart::kCollect:
    case ModelPart::kPositions: break;
    default: break;  // step_program_volumes.h
  }
  return {};
}

/// Rows of the stream, and of heads and inner columns, on a rank of a grid.
inline int64_t GridRows(const StepProgram& p) { return TokensOf(p) / p.grid.batches(); }

/// Of norms and activations on a grid, whose widths follow from the model: `have` are the shapes of an instruction's inputs, `out`
/// of its first output.
inline PartShapes NormShapes(const StepProgram& p, const Instruction& i, const std::vector<ValueShape>& have,
                             const ValueShape& out) {
  const ValueShape stream{GridRows(p), p.hidden / p.grid.side};
  const bool forward = i.action == StepAction::kForward;
  if (i.part == ModelPart::kActivation) {
    const int64_t inner = p.ffn_hidden / p.grid.side, before = forward ? have[0].columns : have[1].columns;
    const ValueShape up{stream.rows, before == 2 * inner ? before : inner}, active{stream.rows, inner};
    return forward ? PartShapes{{up}, {active}} : PartShapes{{active, up}, {up}};
  }
  if (i.part == ModelPart::kNormSums && forward) return {{stream}, {{stream.rows, out.columns == 2 ? 2 : 1}}};
  // As many sums of a row as parameters for each column: one, or two.
  const ValueShape panels = forward ? have[2] : have[3];
  const ValueShape sums{stream.rows, panels.elements() == 2 * stream.columns ? 2 : 1};
  const ValueShape expected{panels.rows, panels.rows > 0 ? stream.columns * sums.columns / panels.rows : 0};
  if (i.part == ModelPart::kNormSums) return {{stream, stream, sums, expected}, {sums}};
  if (forward) return {{stream, sums, expected}, {stream}};
  return {{stream, stream, sums, expected, sums}, {stream, expected}};
}

/// Whether the shapes of a product on a grid belong together: rows of a matrix and a piece of its bias in each panel.
inline bool FitsProduct(const StepProgram& p, const Instruction& i, const std::vector<ValueShape>& in, const ValueShape& out) {
  const ValueShape& x = i.action == StepAction::kForward ? in[0] : i.action == StepAction::kData ? out : in[1];
  const ValueShape& y = i.action == StepAction::kForward ? out : in[0];
  const ValueShape& panels = i.action == StepAction::kWeight ? out : in[1];
  const int64_t bias = panels.elements() - x.columns * y.columns;
  if (x.rows != y.rows || bias < 0 || y.columns % panels.rows != 0 || bias % panels.rows != 0) return false;
  return (bias == 0 || bias * p.grid.side == y.columns) && (!AddsToSlices(i) || in.back() == out);
}

/// Of a part that moves heads to other ranks, whatever heads they are; `input`: what it has.
inline PartShapes MovedShapes(const StepProgram& p, ModelPart part, const ValueShape& input) {
  const int64_t tokens = TokensOf(p), parts = p.context;
  if (part == ModelPart::kCollect)
    return {.inputs = {{parts * tokens, input.columns}}, .outputs = {{tokens, parts * input.columns}}};
  const int64_t each = input.columns / parts;
  return {.inputs = {{tokens, each * parts}}, .outputs = {{parts * tokens, each}}};
}

/// Of an instruction of a part; `first`: what its first input is. Requires: the part has such a computation.
inline PartShapes ShapesOfSlice(const StepProgram& p, const Instruction& i, int64_t rows, const ValueShape& first) {
  if (i.part == ModelPart::kSpread || i.part == ModelPart::kCollect) return MovedShapes(p, i.part, first);
  PartShapes forward = ForwardShapes(p, i.part, rows, i.slices);
  if (i.action == StepAction::kForward) return forward;
  if (i.action == StepAction::kWeight) return {.inputs = {forward.inputs.front()}, .outputs = {}};
  const ValueShape stream{rows, p.hidden};
  switch (i.part) {
    case ModelPart::kAttentionNorm:
    case ModelPart::kMlpNorm: return {.inputs = {stream, stream}, .outputs = {stream}};
    case ModelPart::kRouter: return {.inputs = {forward.outputs.front(), forward.inputs.front()}, .outputs = forward.inputs};
    case ModelPart::kDispatch: return {.inputs = forward.outputs, .outputs = {forward.inputs.front()}};
    case ModelPart::kLoss: return {.inputs = forward.inputs, .outputs = {forward.inputs.front()}};
    case ModelPart::kAttentionBlock:
    case ModelPart::kAttentionGathered:
    case ModelPart::kAttentionHeads: {
      const ValueShape q = forward.inputs[0], kv = forward.inputs[1];
      return {.inputs = {q, q, kv, q, forward.outputs[1], q, kv}, .outputs = {q, kv}};
    }
    default: return {.inputs = forward.outputs, .outputs = forward.inputs};
  }
}

/// The same, with the sum that slices hand on.
inline PartShapes ShapesOf(const StepProgram& p, const Instruction& i, int64_t rows, const ValueShape& first) {
  PartShapes shapes = ShapesOfSlice(p, i, rows, first);
  if (AddsToSlices(i)) shapes.inputs.push_back(shapes.outputs.front());
  return shapes;
}

}  // namespace weft::planner::tasks
