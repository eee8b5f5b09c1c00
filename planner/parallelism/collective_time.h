// The costs of planner/collectives/collective_cost.h, with seconds and bytes as types.
#pragma once

#include "common/fractional_bytes.h"
#include "common/units.h"
#include "planner/collectives/collective_cost.h"

namespace weft::planner::inline parallelism {

inline Seconds GatherTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return Seconds(GatherTime(network, group, bytes.count()));
}
inline Seconds AllReduceTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return Seconds(AllReduceTime(network, group, bytes.count()));
}
inline Algorithm AllReduceAlgorithm(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return AllReduceAlgorithm(network, group, bytes.count());
}
inline Seconds HierarchicalAllReduceTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return Seconds(HierarchicalAllReduceTime(network, group, bytes.count()));
}
inline Seconds ParameterServerTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return Seconds(ParameterServerTime(network, group, bytes.count()));
}
inline Seconds SwitchSumTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return Seconds(SwitchSumTime(network, group, bytes.count()));
}
inline Seconds GossipTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return Seconds(GossipTime(network, group, bytes.count()));
}
inline Seconds AllToAllTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes, bool one_kernel = false) {
  return Seconds(AllToAllTime(network, group, bytes.count(), one_kernel));
}
inline Seconds SendTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return Seconds(SendTime(network, group, bytes.count()));
}
inline Seconds SendTime(const GroupNetwork& network, int64_t stride, size_t units_left, FractionalBytes bytes) {
  return Seconds(SendTime(network, stride, units_left, bytes.count()));
}
inline Seconds RingStepTime(const GroupNetwork& network, const Group& group, FractionalBytes bytes) {
  return Seconds(RingStepTime(network, group, bytes.count()));
}

}  // namespace weft::planner::parallelism
