// A model as the operators of its forward pass, layers that are alike put together: what `weft profile` writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/units.h"

namespace weft::planner::inline workload {

/// One operator of a layer, for the whole input.
struct ModelOperator {
  std::string name;            ///< in its layer, such as "attention.output"
  std::string type;            ///< linear, attention, embedding, convolution …
  int64_t parameters = 0;      ///< biases included; of a tied matrix 0 where it is used the second time
  Flops flops;                 ///< forward; a multiplication and its addition are two; attention whole, also where it is causal
  Bytes output;                ///< that it writes

  friend bool operator==(const ModelOperator&, const ModelOperator&) = default;
};

/// `count` layers in a row that have the same operators.
struct OperatorGroup {
  std::string name;
  int64_t count = 1;
  std::vector<ModelOperator> operators;
  Bytes activations;           ///< of one layer: kept for the backward pass, nothing recomputed
};

struct OperatorProfile {
  std::string source;                    ///< what was read
  std::vector<int64_t> input;            ///< shape that FLOPs and bytes are of
  int64_t element_bytes = 4;             ///< of a parameter and of an activation
  std::vector<OperatorGroup> groups;
  std::vector<std::string> assumptions;  ///< one line each

  int64_t Parameters() const;
  Flops ForwardFlops() const;
  Bytes Activations() const;
};

}  // namespace weft::planner::workload
