// A TorchScript model as one forward pass showed it: parameters, and operators in the order in which they ran.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::runtime {

using Shape = std::vector<int64_t>;

/// Not that of a single number, and without a dimension of 0.
inline bool HasElements(const Shape& shape) {
  return !shape.empty() && std::ranges::all_of(shape, [](int64_t size) { return size > 0; });
}

struct TracedParameter {
  std::string name;           ///< with its modules, such as "h.0.attn.c_attn.weight"
  Shape shape;
  int64_t element_bytes = 4;

  int64_t Count() const;
};

/// An operator that the model itself calls; what it calls in turn is counted with it.
struct TracedOperator {
  std::string kind;                    ///< "linear", "conv2d": without its namespace
  std::vector<size_t> parameters;      ///< that it reads, also by way of a view or a cast; matrices before vectors
  std::vector<Shape> inputs;           ///< of the tensors among its arguments, in order; parameters behind the others
  Shape output;                        ///< of the first tensor that it returns
  int64_t output_bytes = 0;            ///< of all that it returns
  double flops = 0;                    ///< of products; a multiplication and its addition are two
  bool reads_model_input = false;
  bool flag = false;                   ///< its first truth value
  int64_t number = 0;                  ///< its first whole number: k of topk
  Shape numbers;                       ///< its first list of them: the kernel of a pooling
  std::string word;                    ///< its first text
};

struct TracedModel {
  std::string name;
  Shape input;
  std::vector<TracedParameter> parameters;  ///< each once, however many modules have it
  std::vector<TracedOperator> operators;    ///< without those that only look at what is there

  int64_t Parameters() const;
  double Flops() const;
};

}  // namespace weft::runtime
