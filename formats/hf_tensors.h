// What Hugging Face calls a model's tensors, and how its files have them: of the GPT-2 and Llama families. GPT-2's products are
// "Conv1D", stored [inputs × outputs]; Llama has queries, keys and values, and gate and up, as tensors of their own. A 3D CNN, of which
// it has none, has names of our own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/tasks/program_state.h"

namespace weft::formats {

/// Rows [row, row + rows) of a planner::StateTensor as a tensor of a file.
struct HfTensor {
  std::string name;  ///< "h.0.attn.c_attn.weight", "model.layers.0.self_attn.q_proj.weight"
  int64_t row = 0, rows = 0;
  bool transposed = false;     ///< the file has columns first
  std::vector<int64_t> shape;  ///< in the file
};

/// The tensors of a file that make up `tensor`, by row. Requires: a model that WhyNoProgram() accepts.
std::vector<HfTensor> HfTensorsOf(const planner::ModelSpec& model, const planner::StateTensor& tensor);

/// The name without the "transformer." that GPT-2's may or may not have in front.
std::string_view PlainHfName(std::string_view name);

/// Whether files of the family have a tensor of this (plain) name that holds nothing learnt: masks, frequencies, a tied head.
bool IsHfBuffer(const planner::ModelSpec& model, std::string_view name);

/// The rows of an embedding of `rows` tokens that stand for the single bytes, by byte: of GPT-2's vocabulary (50257), Llama's
/// (32000) and Llama 3's (128256); empty for another. Source: their tokenizers; GPT-2's and Llama 3's begin with the bytes,
/// printable ones first, Llama's with three special tokens.
std::vector<int64_t> RowsOfBytes(const planner::ModelSpec& model, int64_t rows);

}  // namespace weft::formats
