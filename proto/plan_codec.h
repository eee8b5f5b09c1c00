// Planner types to and from their messages, for controller and command line alike.
#pragma once

#include <string>

#include "common/result.h"
#include "planner/planner.h"
#include "proto/job.pb.h"

namespace weft::proto {

v1::Strategy ToProto(const planner::Strategy& strategy);
v1::Prediction ToProto(const planner::Prediction& predicted);
/// Strategy, prediction, bound, gap, reasons and, where the plan has them, operations; the other fields of `out` stay, its origin too.
void ToProto(const planner::JobPlan& plan, v1::JobPlan& out);

/// What later versions have added may be missing: it then has its default. Errors: kInvalidArgument naming the field, its value and
/// what was expected, e.g. of a degree below 1.
[[nodiscard]] Result<planner::Strategy> StrategyFromProto(const v1::Strategy& message);

/// All variables, so that defaults that change elsewhere do not change it.
v1::GivenStrategy ToGivenProto(const planner::Strategy& strategy, const std::string& source);
/// Errors: kInvalidArgument naming the variable, its value and what was expected: unknown or named twice, out of range, more
/// than 64 of them, a source that is no line of at most 255 characters.
[[nodiscard]] Result<planner::Strategy> StrategyFromProto(const v1::GivenStrategy& message);

/// The planner's job for `spec`; its model text has been parsed to `model`. An empty precision means bf16.
/// Errors: kInvalidArgument naming the field.
[[nodiscard]] Result<planner::JobSpec> JobSpecFromProto(const v1::JobSpec& spec, const planner::ModelSpec& model);

}  // namespace weft::proto
