// Planner types to and from their messages, for controller and command line alike.
#pragma once

#include "common/result.h"
#include "planner/planner.h"
#include "proto/job.pb.h"

namespace weft::proto {

v1::Strategy ToProto(const planner::Strategy& strategy);
v1::Prediction ToProto(const planner::Prediction& predicted);
/// Strategy, prediction, bound, gap and reasons; the other fields of `out` stay.
void ToProto(const planner::JobPlan& plan, v1::JobPlan& out);

/// Errors: kInvalidArgument naming the field, e.g. a degree below 1.
[[nodiscard]] Result<planner::Strategy> StrategyFromProto(const v1::Strategy& message);

/// The planner's job for `spec`; its model text has been parsed to `model`. An empty precision means bf16.
/// Errors: kInvalidArgument naming the field.
[[nodiscard]] Result<planner::JobSpec> JobSpecFromProto(const v1::JobSpec& spec, const planner::ModelSpec& model);

}  // namespace weft::proto
