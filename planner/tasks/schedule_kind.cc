#include "planner/tasks/schedule_kind.h"

#include <fmt/format.h>

namespace weft::planner::inline tasks {

std::string_view ScheduleName(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGpipe: return "gpipe";
    case ScheduleKind::k1F1B: return "1f1b";
    case ScheduleKind::kEager1F1B: return "eager-1f1b";
    case ScheduleKind::kInterleaved: return "interleaved";
    case ScheduleKind::kZbH1: return "zb-h1";
    case ScheduleKind::kZbH2: return "zb-h2";
    case ScheduleKind::kZbV: return "zb-v";
  }
  return "";
}

Result<ScheduleKind> ParseSchedule(std::string_view text) {
  std::string known;
  for (const ScheduleKind kind : kAllSchedules) {
    if (text == ScheduleName(kind)) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", ScheduleName(kind));
  }
  return Fail(Code::kInvalidArgument, fmt::format("schedule \"{}\": expected one of {}", text, known));
}

}  // namespace weft::planner::tasks
