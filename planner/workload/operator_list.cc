#include "planner/workload/operator_list.h"

namespace weft::planner::inline workload {

int64_t OperatorProfile::Parameters() const {
  int64_t sum = 0;
  for (const OperatorGroup& group : groups) {
    for (const ModelOperator& o : group.operators) sum += group.count * o.parameters;
  }
  return sum;
}

Flops OperatorProfile::ForwardFlops() const {
  Flops sum;
  for (const OperatorGroup& group : groups) {
    for (const ModelOperator& o : group.operators) sum += static_cast<double>(group.count) * o.flops;
  }
  return sum;
}

Bytes OperatorProfile::Activations() const {
  Bytes sum;
  for (const OperatorGroup& group : groups) sum += group.count * group.activations;
  return sum;
}

}  // namespace weft::planner::workload
