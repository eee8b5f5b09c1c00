// What all ranks were to send while a program ran, and what they sent.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collectives/bootstrap.h"
#include "common/result.h"
#include "planner/planner.h"
#include "runtime/execute/program_groups.h"
#include "runtime/program_report.h"

namespace weft::runtime {

using VolumeKey = std::pair<planner::CommunicatorKind, planner::StepAction>;
using Volumes = std::map<VolumeKey, MeasuredVolume>;

/// Adds those of the steps [begin, end) of a program, of which the groups have sent all. Collective over all ranks, those that
/// stand by included. Errors: as AllGather.
[[nodiscard]] Status AddVolumes(const planner::StepProgram& program, int64_t begin, int64_t end, const ProgramGroups& groups,
                                collectives::Bootstrap* bootstrap, Volumes* volumes);

}  // namespace weft::runtime
