// Exchange of gradients and parameters between replicas: all-reduce, ZeRO, HSDP, parameter servers; what of it hides.
#pragma once

#include <vector>

#include "common/units.h"
#include "planner/parallelism/calibrated_hardware.h"
#include "planner/parallelism/memory_model.h"
#include "planner/parallelism/strategy.h"
#include "planner/tasks/operations.h"

namespace weft::planner::inline parallelism {

/// Once per iteration, of one stage.
struct DataTime {
  Seconds gradients{0};   ///< behind the last backward pass, as far as it overlaps
  Seconds parameters{0};  ///< ZeRO-1, 2 and kept ZeRO-3: gathered after the step
  Seconds tail{0};        ///< of `gradients`, the last bucket: never hidden
  Seconds optimizer{0};   ///< the step's memory traffic
};
/// `operations`: where the exchanges are written, if not null; what of them is exposed is not known here.
DataTime ComputeDataTime(const CalibratedHardware& hardware, const SoftwareStack& stack, const Strategy& strategy, const StateBytes& state,
                         const StageShape& shape, bool spatial = false, std::vector<Operation>* operations = nullptr);

/// Per layer and micro-batch: ZeRO-2 and 3 scatter gradients, ZeRO-3 gathers parameters unless they are kept.
struct UnitTime {
  Seconds gather{0};   ///< of one unit's parameters
  Seconds scatter{0};  ///< of its gradient, and HSDP's sum over replicas
};
/// `operations`: where they are written, the gather as one of the forward pass and the others as of the backward pass, if not null.
/// `experts`: the unit's parameters are routed experts', of ExpertReplicaGroup().
UnitTime ComputeUnitTime(const CalibratedHardware& hardware, const SoftwareStack& stack, const Strategy& strategy, const StateBytes& state,
                         double unit_parameters, std::vector<Operation>* operations = nullptr, bool experts = false);

/// All-reduce of the gradients of `parameters` replicated ones in buckets; nothing hidden.
Seconds GradientSumTime(const CalibratedHardware& hardware, const Strategy& strategy, const StateBytes& state, const Group& group,
                        double parameters, std::vector<Operation>* operations = nullptr);
/// Gather of `parameters` kept ones after the step; nothing hidden.
Seconds ParameterGatherTime(const CalibratedHardware& hardware, const Strategy& strategy, const StateBytes& state,
                            double parameters, std::vector<Operation>* operations = nullptr);
/// The step's memory traffic for `parameters` local ones.
Seconds OptimizerTime(const CalibratedHardware& hardware, double parameters);

/// The replicas of one parameter as a communicator. `spatial`: ranks that share a sample hold the same weights.
Group ReplicaGroup(const Strategy& strategy, bool spatial = false);
/// Of a routed expert's; of one rank where each expert lies once.
Group ExpertReplicaGroup(const Strategy& strategy);

}  // namespace weft::planner::parallelism
