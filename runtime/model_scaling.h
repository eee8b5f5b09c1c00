// Makes a published model small enough for the machine at hand, and says what was changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "planner/workload/model_spec.h"

namespace weft::runtime {

/// 0 leaves the model's own value.
struct ModelScaling {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  friend bool operator==(const ModelScaling&, const ModelScaling&) = default;
};

struct ScaledModel {
  planner::ModelSpec model;
  std::vector<std::string> changes;  ///< "layers 12 -> 2", one per change, for people
};

/// `model` with the asked layers, width and heads, bytes as vocabulary, and the MLP kept in proportion to the width.
/// A 3D CNN stays as it is. Errors: kInvalidArgument for a negative value, heads that do not divide the width, or any for a CNN.
[[nodiscard]] Result<ScaledModel> ScaleModel(const planner::ModelSpec& model, const ModelScaling& scaling);

}  // namespace weft::runtime
