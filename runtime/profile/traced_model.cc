#include "runtime/profile/traced_model.h"

namespace weft::runtime {

int64_t TracedParameter::Count() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

int64_t TracedModel::Parameters() const {
  int64_t count = 0;
  for (const TracedParameter& parameter : parameters) count += parameter.Count();
  return count;
}

double TracedModel::Flops() const {
  double sum = 0;
  for (const TracedOperator& o : operators) sum += o.flops;
  return sum;
}

}  // namespace weft::runtime
