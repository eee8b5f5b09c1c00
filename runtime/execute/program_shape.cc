#include "runtime/execute/program_shape.h"

#include <fmt/format.h>

#include <tuple>

namespace weft::runtime {
namespace {

using planner::Instruction;
using planner::ModelPart;

/// Whether the head's table is the program's as the model has it.
Status CheckHead(const planner::RankClass& list, const planner::ModelSpec& m) {
  bool has_table = false, uses_table = false;
  for (const planner::ParameterBlock& b : list.blocks) {
    if (b.part != ModelPart::kHead) continue;
    has_table = true;
    if (b.copy != m.tied_embeddings) {
      return Fail(Code::kInvalidArgument, fmt::format("program: the head's table is {}, expected {} of the embedding's",
                                                      b.copy ? "a copy" : "its own", m.tied_embeddings ? "a copy" : "no copy"));
    }
  }
  for (const Instruction& i : list.instructions) {
    uses_table = uses_table || (planner::OfPart(i.action) && i.part == ModelPart::kHead);
  }
  if (uses_table && !has_table && !m.tied_embeddings)
    return Fail(Code::kInvalidArgument, "program: the head has no table, expected one of its own, as the model has");
  return Ok();
}

}  // namespace

Status CheckModel(const planner::StepProgram& p, const planner::ModelSpec& m, int rank) {
  if (rank < 0 || static_cast<size_t>(rank) >= p.ranks.size()) {
    return Fail(Code::kInvalidArgument, fmt::format("program: made for {} ranks, this is rank {}", p.ranks.size(), rank));
  }
  const std::tuple<const char*, int64_t, int64_t> sizes[] = {
      {"layers", p.layers, m.layers},       {"hidden", p.hidden, m.hidden},       {"heads", p.heads, m.heads},
      {"kv_heads", p.kv_heads, m.kv_heads}, {"head_dim", p.head_dim, m.head_dim}, {"ffn_hidden", p.ffn_hidden, m.ffn_hidden},
      {"vocab", p.vocab, m.vocab},          {"experts", p.experts, m.experts},
      {"experts_per_token", p.experts_per_token, m.experts_per_token}, {"expert_hidden", p.expert_hidden, m.expert_ffn_hidden}};
  for (const auto& [name, program, model] : sizes) {
    if (program != model)
      return Fail(Code::kInvalidArgument, fmt::format("program: {} {}, expected the model's {}", name, program, model));
  }
  if (p.volumes != m.cnn_layers) return Fail(Code::kInvalidArgument, "program: layers of a 3D CNN, expected the model's");
  if (m.learned_positions && p.sequence > m.max_positions) {
    return Fail(Code::kInvalidArgument,
                fmt::format("program: sequence {}, expected at most the model's {} positions", p.sequence, m.max_positions));
  }
  return CheckHead(p.classes[static_cast<size_t>(p.ranks[static_cast<size_t>(rank)].rank_class)], m);
}

ModelShape ShapeOf(const planner::StepProgram& p, const planner::ModelSpec& model, int rank) {
  ModelShape shape{.model = model, .type = p.type == planner::ElementType::kFloat64 ? torch::kFloat64 : torch::kFloat32};
  shape.tensor = p.ranks[static_cast<size_t>(rank)].tensor;
  shape.tensors = p.tensor;
  shape.context = p.ranks[static_cast<size_t>(rank)].context;
  shape.contexts = p.context;
  const planner::ExpertPlace place = planner::ExpertPlaceOf(p, rank);
  shape.expert = place.expert;
  shape.expert_ranks = p.expert_ranks;
  shape.expert_tensor = place.tensor;
  shape.expert_tensors = p.expert_tensor;
  shape.grid = p.grid;
  shape.batch = p.micro_batch;
  shape.sequence = p.sequence / p.context;
  shape.loss_tokens = p.global_batch / (p.replicas_differ ? p.replicas : 1) * p.sequence;
  return shape;
}

namespace {

/// Of a 3D CNN: a slab of every sample, and the class, which is the byte that follows.
MicroBatchTokens SamplesOf(const ModelShape& shape, const std::vector<uint8_t>& bytes) {
  const planner::Cnn3dLayer& first = shape.model.cnn_layers.front();
  const int64_t whole = first.InputElements(), planes = first.extent[0] / shape.tensors;
  const torch::Tensor all = torch::from_blob(const_cast<uint8_t*>(bytes.data()), {shape.batch, whole + 1}, torch::kUInt8);
  const torch::Tensor volumes =
      all.narrow(1, 0, whole).unflatten(1, {first.in_channels, first.extent[0], first.extent[1] * first.extent[2]});
  const torch::Tensor classes = all.select(1, whole).to(torch::kInt64).remainder_(shape.model.cnn_layers.back().out_channels);
  return {volumes.narrow(2, shape.tensor * planes, planes).reshape({shape.batch, -1}).clone(), classes, {}};
}

}  // namespace

MicroBatchTokens TokensOf(const ModelShape& shape, const std::vector<uint8_t>& bytes) {
  if (shape.model.IsCnn()) return SamplesOf(shape, bytes);
  const int64_t whole = shape.sequence * shape.contexts;
  const torch::Tensor rows =
      torch::from_blob(const_cast<uint8_t*>(bytes.data()), {shape.batch, whole + 1}, torch::kUInt8).to(torch::kInt64).t();
  const torch::Tensor positions = torch::tensor(planner::PositionsOf(whole, shape.contexts, shape.context), torch::kInt64);
  return {rows.index_select(0, positions).reshape({-1}), rows.index_select(0, positions + 1).reshape({-1}), positions};
}

}  // namespace weft::runtime
