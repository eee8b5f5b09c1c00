// A box of a model's tensor, from a rank's memory into a tensor of a file and back: rows or columns first, in the file's type,
// and nothing of the file touched but the box.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/result.h"
#include "formats/hf_tensors.h"
#include "formats/safetensors.h"
#include "runtime/state/unit_state.h"

namespace weft::runtime {

/// An open file and a tensor in it.
struct TensorPlace {
  int descriptor = -1;
  const std::string* path = nullptr;  ///< for messages
  formats::StoredTensor stored;
  formats::HfTensor part;                  ///< which rows of the model's tensor it is
  std::span<const int64_t> file_row = {};  ///< the file's row by the model's; empty: the same
};

/// The sum of a tensor is that of MixedElement() over its elements, modulo 2⁶⁴: ranks that each have a part add theirs up.
uint64_t MixedElement(int64_t index, uint64_t bits);

/// What `held` has of the place's tensor goes into the file; nothing where it has none of it. Adds to the sum.
/// Errors: those of writing, with the path; kDataLoss for an element that is no finite number.
[[nodiscard]] Status WriteBox(const RankState& state, size_t part, const planner::HeldBox& held, const TensorPlace& place,
                              uint64_t* sum);

/// The other way round; the file's type is converted. Errors: those of reading; kInvalidArgument for a file that ends too early;
/// kDataLoss for an element that is no finite number.
[[nodiscard]] Status ReadBox(const RankState& state, size_t part, const planner::HeldBox& held, const TensorPlace& place,
                             uint64_t* sum);

}  // namespace weft::runtime
