#include "formats/hf_tensors.h"

#include <fmt/format.h>

namespace weft::formats {
namespace {

using planner::ModelPart;
using planner::ModelSpec;
using planner::StateTensor;

/// Whether tensor `index` of a product is a bias, and of which of its matrices.
struct Which {
  bool bias = false;
  bool second = false;  ///< of the MLP: down
};
Which WhichOf(const ModelSpec& m, const StateTensor& t) {
  if (t.part == ModelPart::kMlp && !m.mlp_bias) return {.bias = false, .second = t.index == 1};
  if (t.part == ModelPart::kMlp) return {.bias = t.index % 2 == 1, .second = t.index >= 2};
  return {.bias = t.index == 1, .second = false};
}

std::string Gpt2Name(const StateTensor& t, Which which) {
  const std::string kind = which.bias ? "bias" : "weight", layer = fmt::format("h.{}.", t.layer);
  switch (t.part) {
    case ModelPart::kEmbedding:
      return "wte.weight";
    case ModelPart::kPositions:
      return "wpe.weight";
    case ModelPart::kAttentionNorm:
      return layer + "ln_1." + kind;
    case ModelPart::kQkv:
      return layer + "attn.c_attn." + kind;
    case ModelPart::kAttentionOut:
      return layer + "attn.c_proj." + kind;
    case ModelPart::kMlpNorm:
      return layer + "ln_2." + kind;
    case ModelPart::kMlp:
      return layer + (which.second ? "mlp.c_proj." : "mlp.c_fc.") + kind;
    case ModelPart::kFinalNorm:
      return "ln_f." + kind;
    default:
      return "lm_head.weight";
  }
}

/// By row.
std::vector<std::string> LlamaNames(const StateTensor& t, Which which) {
  const std::string kind = which.bias ? "bias" : "weight", layer = fmt::format("model.layers.{}.", t.layer);
  switch (t.part) {
    case ModelPart::kEmbedding:
      return {"model.embed_tokens.weight"};
    case ModelPart::kPositions:
      return {"model.embed_positions.weight"};
    case ModelPart::kAttentionNorm:
      return {layer + "input_layernorm." + kind};
    case ModelPart::kQkv:
      return {layer + "self_attn.q_proj." + kind, layer + "self_attn.k_proj." + kind, layer + "self_attn.v_proj." + kind};
    case ModelPart::kAttentionOut:
      return {layer + "self_attn.o_proj." + kind};
    case ModelPart::kMlpNorm:
      return {layer + "post_attention_layernorm." + kind};
    case ModelPart::kMlp:
      if (which.second) return {layer + "mlp.down_proj." + kind};
      return {layer + "mlp.gate_proj." + kind, layer + "mlp.up_proj." + kind};
    case ModelPart::kFinalNorm:
      return {"model.norm." + kind};
    case ModelPart::kRouter: return {layer + "block_sparse_moe.gate." + kind};
    default:
      return {"lm_head.weight"};
  }
}

/// Mixtral's: w1 is gate, w3 up, w2 down.
std::vector<HfTensor> ExpertTensors(const ModelSpec& model, const StateTensor& tensor) {
  std::vector<HfTensor> tensors;
  const int64_t rows = tensor.rows / model.experts, inner = model.expert_ffn_hidden;
  for (int64_t expert = 0; expert < model.experts; ++expert) {
    const auto add = [&](std::string_view matrix, int64_t row, int64_t count) {
      tensors.push_back({.name = fmt::format("model.layers.{}.block_sparse_moe.experts.{}.{}.weight", tensor.layer, expert, matrix),
                         .row = expert * rows + row,
                         .rows = count,
                         .transposed = false,
                         .shape = {count, tensor.columns}});
    };
    if (tensor.index == 0) {
      add("w1", 0, inner), add("w3", inner, inner);
    } else {
      add("w2", 0, rows);
    }
  }
  return tensors;
}

/// A 3D CNN's, as LibTorch's Conv3d and Linear have them.
HfTensor VolumeTensor(const ModelSpec& model, const StateTensor& tensor, const planner::TensorLayout& layout) {
  const planner::Cnn3dLayer& layer = model.cnn_layers[static_cast<size_t>(tensor.layer)];
  HfTensor made{.name = fmt::format("layers.{}.{}", tensor.layer, tensor.index == 1 ? "bias" : "weight"),
                .row = 0,
                .rows = tensor.rows,
                .transposed = false,
                .shape = layout.whole};
  const bool matrix = tensor.index == 0 && layer.kind == planner::Cnn3dKind::kConvolution;
  if (matrix) made.shape = {layer.out_channels, layer.in_channels, layer.kernel[0], layer.kernel[1], layer.kernel[2]};
  return made;
}

}  // namespace

std::vector<HfTensor> HfTensorsOf(const ModelSpec& model, const StateTensor& tensor) {
  if (tensor.part == ModelPart::kExperts) return ExpertTensors(model, tensor);
  const planner::TensorLayout layout = planner::LayoutOf(tensor.part, model, tensor.layer)[static_cast<size_t>(tensor.index)];
  if (model.IsCnn()) return {VolumeTensor(model, tensor, layout)};
  const Which which = WhichOf(model, tensor);
  const bool gpt2 = model.architecture == planner::Architecture::kGpt2, matrix = layout.whole.size() > 1;
  const std::vector<std::string> names = gpt2 ? std::vector<std::string>{Gpt2Name(tensor, which)} : LlamaNames(tensor, which);
  const bool product =
      tensor.part == ModelPart::kQkv || tensor.part == ModelPart::kAttentionOut || tensor.part == ModelPart::kMlp;
  std::vector<int64_t> rows = {tensor.rows};
  if (names.size() > 1 && names.size() == layout.pieces.size()) rows = layout.pieces;
  std::vector<HfTensor> tensors;
  int64_t row = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    HfTensor made{.name = names[i], .row = row, .rows = rows[i], .transposed = gpt2 && product && matrix, .shape = {rows[i]}};
    if (matrix) made.shape = made.transposed ? std::vector{tensor.columns, rows[i]} : std::vector{rows[i], tensor.columns};
    tensors.push_back(std::move(made));
    row += rows[i];
  }
  return tensors;
}

std::string_view PlainHfName(std::string_view name) {
  constexpr std::string_view kPrefix = "transformer.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

bool IsHfBuffer(const ModelSpec& model, std::string_view name) {
  if (name == "lm_head.weight") return model.tied_embeddings;
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

std::vector<int64_t> RowsOfBytes(const ModelSpec& model, int64_t rows) {
  const bool gpt2 = model.architecture == planner::Architecture::kGpt2;
  std::vector<int64_t> row_of(256);
  if (!gpt2 && rows == 32000) {
    for (size_t byte = 0; byte < 256; ++byte) row_of[byte] = static_cast<int64_t>(byte) + 3;
    return row_of;
  }
  if (rows != (gpt2 ? 50257 : 128256)) return {};
  const auto printable = [](size_t byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; };
  int64_t next = 0;
  for (const bool first : {true, false}) {
    for (size_t byte = 0; byte < 256; ++byte) {
      if (printable(byte) == first) row_of[byte] = next++;
    }
  }
  return row_of;
}

}  // namespace weft::formats
